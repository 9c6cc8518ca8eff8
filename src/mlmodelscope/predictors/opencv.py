"""Turns tensors into tensors with the DNN module of OpenCV 4.

Reads Caffe (.prototxt with the .caffemodel as `weights_path`), Darknet (.cfg with the .weights), ONNX, TensorFlow Lite
and TensorFlow graphs. Images are NCHW whatever the file's own layout. Option: `optimization` (all, the default, or
none: no fused layers, no Winograd convolutions). The number of threads is OpenCV's own, one for the whole process: it
also holds for image steps that run in this process.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import ctypes
from typing import Any, ClassVar, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.opencvfile import (
    ModelFiles,
    describe_inputs,
    identify,
    read_net,
    reason,
    unreadable,
)
from mlmodelscope.predictors.opencvprofile import PREFIX, Profile
from mlmodelscope.predictors.port import (
    PredictorFault,
    check_all_fed,
    check_element_types,
    check_options,
    check_threads,
    distribution_version,
    import_framework,
    misfit,
    select_layers,
    unloaded,
)

__all__ = ["Predictor"]

Layer = Dict[str, Any]

_TAKES = ("float32", "uint8", "int8")


class Predictor(object):
    name: ClassVar[str] = "opencv"
    packages: ClassVar[Tuple[str, ...]] = (
        "opencv-python-headless",
        "opencv-python",
        "opencv-contrib-python-headless",
        "opencv-contrib-python",
    )
    environment: ClassVar[Dict[str, str]] = {"OPENCV_LOG_LEVEL": "ERROR"}
    formats: ClassVar[Tuple[str, ...]] = (".onnx", ".prototxt", ".cfg", ".tflite", ".pb")

    def __init__(self) -> None:
        self._net: Any = None
        self._set: Any = None
        self._forward: Any = None
        self._unfused: Any = None
        self._checks: List[Any] = []
        self._shapes: Optional[List[Any]] = None
        self._profile: Optional[Profile] = None

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, {"optimization": ("all", "none")})
        threads = check_threads(self.name, model.get("threads", 1))
        self._cv2 = cv2 = import_framework(self.name, ["cv2"])
        self._files = identify(model["graph_path"], model.get("weights_path"))
        inputs, declared = describe_inputs(self._files)
        optimization = options.get("optimization", "all")
        self._is_optimised = optimization == "all"
        net = _open_net(cv2, self._files, self._is_optimised)
        chosen = select_layers("input", model.get("inputs") or [], [fact["name"] for fact in inputs])
        self._all_inputs = [fact["name"] for fact in inputs]
        check_all_fed(self._all_inputs, chosen)
        self._inputs = [inputs[index] for index in chosen]
        _check_takes(self._inputs)
        check_element_types(model.get("inputs") or [], self._inputs)
        outputs = _outputs(cv2, net, self._files, inputs, declared)
        picked = [outputs[i] for i in select_layers("output", model.get("outputs") or [], [o["name"] for o in outputs])]
        cv2.setNumThreads(threads)
        self._bind(net, picked)
        return {
            "framework": self.name,
            "version": distribution_version(self.packages) or cv2.__version__,
            "threads": int(cv2.getNumThreads()),
            "provider": "OpenCV",
            "device": "cpu",
            "library": f"OpenCV {cv2.__version__}",
            "optimization": optimization,
            "precision": _precision(net),
            "inputs": self._inputs,
            "outputs": picked,
        }

    def _bind(self, net: Any, outputs: List[Layer]) -> None:
        import numpy as np

        # a network with one input takes it whatever its name, and some importers forget the name
        names = [fact["name"] for fact in self._inputs] if len(self._inputs) > 1 else [""]
        self._checks = list(zip(names, [np.dtype(fact["element_type"]) for fact in self._inputs]))
        # an array of three dimensions would be taken for an image with channels
        self._wrap = self._cv2.Mat if any(len(fact["shape"] or ()) == 3 for fact in self._inputs) else None
        self._output_names = [fact["name"] for fact in outputs]
        self._net, self._set, self._forward = net, net.setInput, net.forward

    def predict(self, inputs: List[Any]) -> List[Any]:
        try:
            shapes = [value.shape for value in inputs]
            if shapes != self._shapes:
                self._refit(inputs, shapes)
            for (name, dtype), value in zip(self._checks, inputs):
                # big-endian numbers would be taken for little-endian ones, and numbers of any other type be converted
                if value.dtype != dtype:
                    raise TypeError(name)
                self._set(value if self._wrap is None else self._wrap(value), name)
            return list(self._forward(self._output_names))
        except PredictorFault:
            raise
        except Exception as error:  # cv2.error, or what an object that is no array raises
            raise self._fault(inputs, error) from error

    def _refit(self, inputs: Sequence[Any], shapes: List[Any]) -> None:
        """Makes the network ready for other shapes than the call before had, or says why they do not fit.

        OpenCV itself computes something for almost any shape. And a network that is set up a second time merges the
        fused layers into its weights a second time: with a residual network, 4.14.0, the answers are wrong.
        """
        if self._net is None:
            raise unloaded(self.name)
        fault = misfit(self._inputs, inputs)
        if fault is not None:
            raise fault
        if self._shapes is not None and self._is_optimised:
            self._net = _open_net(self._cv2, self._files, is_optimised=True)
            if self._profile is None:
                self._set, self._forward = self._net.setInput, self._net.forward
            else:
                self._profile.use(self._net)
        self._shapes = shapes

    def _fault(self, inputs: Sequence[Any], error: Exception) -> PredictorFault:
        if self._net is None:
            return unloaded(self.name)
        return misfit(self._inputs, inputs) or PredictorFault(
            "predictor_failed", f"opencv: {reason(error)}", framework=self.name, error=str(error)
        )

    def start_profile(self, folder: str) -> None:
        if self._net is None:
            raise unloaded(self.name)
        profile = Profile(self._net, self._cv2.getTickFrequency(), self._all_inputs)
        self._profile, self._set, self._forward = profile, profile.set, profile.forward

    def stop_profile(self) -> List[List[Layer]]:
        profile, self._profile = self._profile, None
        if profile is None:
            return []
        self._set, self._forward = self._net.setInput, self._net.forward
        return profile.finish()

    def layer_names(self) -> List[str]:
        if self._net is None:
            raise unloaded(self.name)
        return list(_named(self._net))

    def reveal(self, inputs: List[Any], names: Sequence[str]) -> List[Any]:
        """A second network without fused layers answers: a layer that was fused into another has no output."""
        known = self.layer_names()
        wanted = [known[i] for i in select_layers("inner", [{"layer_name": name} for name in names], known)]
        if self._unfused is None:
            self._unfused = _open_net(self._cv2, self._files, is_optimised=False)
        fault = misfit(self._inputs, inputs)
        if fault is not None:
            raise fault
        theirs = _named(self._unfused)
        try:
            for (name, _), value in zip(self._checks, inputs):
                self._unfused.setInput(value if self._wrap is None else self._wrap(value), name)
            return list(self._unfused.forward([theirs[name] for name in wanted]))
        except self._cv2.error as error:
            raise self._fault(inputs, error) from error

    def unload(self) -> None:
        self.stop_profile()
        was_loaded = self._net is not None
        self._net = self._set = self._forward = self._unfused = None
        self._checks = []
        self._shapes = None
        if was_loaded:
            _return_memory()


def _return_memory() -> None:
    """The C library keeps freed memory in its pools, where another model's load cannot always use it."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # not the C library of GNU
        pass


def _open_net(cv2: Any, files: ModelFiles, is_optimised: bool) -> Any:
    net = read_net(cv2, files)
    # the target of 16-bit floats, and backends that other builds have, are never taken unasked
    net.setPreferableBackend(cv2.dnn.DNN_BACKEND_OPENCV)
    net.setPreferableTarget(cv2.dnn.DNN_TARGET_CPU)
    if not is_optimised:
        net.enableFusion(False)
        if hasattr(net, "enableWinograd"):
            net.enableWinograd(False)
    return net


def _check_takes(inputs: Sequence[Layer]) -> None:
    for fact in inputs:
        if fact["element_type"] not in _TAKES:
            raise PredictorFault(
                "predictor_failed",
                f"opencv takes no {fact['element_type']}, which input {fact['name']!r} is: only {', '.join(_TAKES)}",
                hint="run this model with onnxruntime or openvino",
                layer=fact["name"],
                expected=list(_TAKES),
                got=fact["element_type"],
            )


def _outputs(cv2: Any, net: Any, files: ModelFiles, inputs: Sequence[Layer], declared: Sequence[Layer]) -> List[Layer]:
    """The outputs as the file declares them where the network kept their names, else the layers nobody reads."""
    ends = list(net.getUnconnectedOutLayersNames())
    known = {fact["name"]: fact for fact in declared}
    if known and all(name in known for name in ends) and len(ends) == len(known):
        # whatever the file says, results are float32 unless the network is quantised
        kinds = {"int8": "int8", "uint8": "uint8"}
        return [dict(fact, element_type=kinds.get(fact["element_type"], "float32")) for fact in declared]
    try:
        shapes = _shapes_of(net, ends, inputs)
    except cv2.error as error:  # weights of another network, or none
        raise unreadable(files, reason(error)) from error
    return [{"name": name, "shape": shapes.get(name), "element_type": "float32"} for name in ends]


def _shapes_of(net: Any, names: Sequence[str], inputs: Sequence[Layer]) -> Dict[str, Any]:
    given = [[1] + list(fact["shape"][1:]) for fact in inputs if fact["shape"] and None not in fact["shape"][1:]]
    if len(given) != len(inputs):
        return {}
    ids, _, outer = net.getLayersShapes(given)
    places = {int(place): shapes for place, shapes in zip(list(ids.ravel()), outer)}
    found: Dict[str, Any] = {}
    for name in names:
        sizes = [int(size) for size in list(places[int(net.getLayerId(name))][0])]
        found[name] = [None] + sizes[1:] if sizes[:1] == [1] else None
    return found


def _named(net: Any) -> Dict[str, str]:
    """By the model's own name, OpenCV's name of the layer; where a name has two, the output's."""
    found: Dict[str, str] = {}
    for name in net.getLayerNames():
        found[name[len(PREFIX) :] if name.startswith(PREFIX) else name] = name
    return found


def _precision(net: Any) -> str:
    """OpenCV computes in float32, but for layers of types of their own."""
    return "int8 quantised" if any(str(kind).endswith("Int8") for kind in net.getLayerTypes()) else "float32"
