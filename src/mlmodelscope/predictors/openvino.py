"""Turns tensors into tensors with OpenVINO on the CPU.

Reads OpenVINO's own IR (.xml; the weights are `weights_path`, or the .bin file beside it), ONNX, TensorFlow Lite,
TensorFlow graphs and Paddle models. Option: `precision` (f32, the default; bf16 or f16 where the processor has them).
Left to itself OpenVINO computes in bfloat16 wherever the processor can, and quantises what feeds compressed weights.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import contextlib
import os
import sys
import tempfile
from typing import Any, ClassVar, Dict, Iterator, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.openvinoprofile import Profile, inner_infer, kernel_facts
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

_DEVICE = "CPU"
_CAPABILITIES = {"f32": "FP32", "bf16": "BF16", "f16": "FP16"}
_READABLE = frozenset(
    (
        "an ONNX model",
        "a TensorFlow Lite model",
        "a TensorFlow graph (protobuf)",
        "a TensorFlow SavedModel",
        "an XML file",
        "an XML file (OpenVINO IR?)",
    )
)
_ENDINGS = {"an ONNX model": ".onnx", "a TensorFlow Lite model": ".tflite"}
# Paddle's files have no mark of their own
_TRUSTED_ENDINGS = (".pdmodel", ".pb")


class Predictor(object):
    name: ClassVar[str] = "openvino"
    packages: ClassVar[Tuple[str, ...]] = ("openvino",)
    environment: ClassVar[Dict[str, str]] = {}
    formats: ClassVar[Tuple[str, ...]] = (".xml", ".onnx", ".tflite", ".pb", ".pdmodel")

    def __init__(self) -> None:
        self._request: Any = None
        self._infer: Any = None
        self._model: Any = None
        self._names: List[str] = []
        self._revealing: Tuple[Tuple[str, ...], Any, Optional[List[int]]] = ((), None, [])
        self._profile: Optional[Profile] = None

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, {"precision": sorted(_CAPABILITIES)})
        threads = check_threads(self.name, model.get("threads", 1))
        ov = _import_quietly()
        self._core = ov.Core()
        self._settings = _settings(self._core, options.get("precision", "f32"), threads)
        graph = _read(self._core, model["graph_path"], model.get("weights_path"))
        inputs, outputs = [_layer(port) for port in graph.inputs], [_layer(port) for port in graph.outputs]
        chosen = select_layers("input", model.get("inputs") or [], [fact["name"] for fact in inputs])
        check_all_fed([fact["name"] for fact in inputs], chosen)
        self._inputs = [inputs[index] for index in chosen]
        check_element_types(model.get("inputs") or [], self._inputs)
        picked = select_layers("output", model.get("outputs") or [], [fact["name"] for fact in outputs])
        compiled = self._compile(graph)
        self._bind(ov, graph, compiled, chosen, picked)
        return dict(
            kernel_facts(compiled),
            framework=self.name,
            version=distribution_version(self.packages) or ov.get_version().partition("-")[0],
            threads=int(compiled.get_property("INFERENCE_NUM_THREADS")),
            inputs=self._inputs,
            outputs=[outputs[index] for index in picked],
        )

    def _compile(self, graph: Any, **settings: Any) -> Any:
        try:
            return self._core.compile_model(graph, _DEVICE, dict(self._settings, **settings))
        except Exception as error:
            raise PredictorFault(
                "predictor_failed", f"openvino cannot compile the model: {_last_line(error)}", error=str(error)
            ) from error

    def _bind(self, ov: Any, graph: Any, compiled: Any, chosen: List[int], picked: List[int]) -> None:
        import numpy as np

        self._tensor = ov.Tensor
        self._places = chosen
        self._dtypes = [_dtype(np, fact["element_type"]) for fact in self._inputs]
        self._picked = None if picked == list(range(len(graph.outputs))) else picked
        self._model = graph
        self._request = compiled.create_infer_request()
        self._infer = inner_infer(self._request)

    def predict(self, inputs: List[Any]) -> List[Any]:
        feed = {}
        try:
            tensor = self._tensor
            for place, dtype, value in zip(self._places, self._dtypes, inputs):
                # big-endian numbers would be taken for little-endian ones without a word
                if value.dtype is not dtype and dtype is not None and value.dtype != dtype:
                    raise TypeError(place)
                try:
                    feed[place] = tensor(value, True)
                except (RuntimeError, ValueError):  # not in C order, or not to be written to
                    feed[place] = tensor(value.copy("C"), False)
            if len(inputs) != len(self._places):
                raise TypeError("inputs")
            results = list(self._infer(feed, False, False).values())
        except Exception as error:  # whatever fails in OpenVINO is a RuntimeError, a ValueError or a TypeError
            raise self._fault(inputs, error) from error
        return results if self._picked is None else [results[index] for index in self._picked]

    def _fault(self, inputs: Sequence[Any], error: Exception) -> PredictorFault:
        if self._request is None:
            return unloaded(self.name)
        return misfit(self._inputs, inputs) or PredictorFault(
            "predictor_failed", f"openvino: {_last_line(error)}", framework=self.name, error=str(error)
        )

    def start_profile(self, folder: str) -> None:
        """A second compiled model does the profiled calls: whether layers are timed is decided at compiling."""
        if self._request is None:
            raise unloaded(self.name)
        self.stop_profile()
        self._profile = Profile(self._compile(self._model, PERF_COUNT=True), self._tensor)
        self._infer = self._profile.infer

    def stop_profile(self) -> List[Optional[List[Dict[str, Any]]]]:
        profile, self._profile = self._profile, None
        if profile is None:
            return []
        self._infer = inner_infer(self._request)
        return profile.finish()

    def layer_names(self) -> List[str]:
        if self._request is None:
            raise unloaded(self.name)
        if not self._names:
            self._names = list(_computing(self._model))
        return list(self._names)

    def reveal(self, inputs: List[Any], names: Sequence[str]) -> List[Any]:
        wanted = select_layers("inner", [{"layer_name": name} for name in names], self.layer_names())
        if self._revealing[0] != tuple(names):
            self._revealing = (tuple(names), *self._opened([self._names[index] for index in wanted]))
        kept = self._infer, self._picked
        _, self._infer, self._picked = self._revealing
        try:
            return self.predict(inputs)
        finally:
            self._infer, self._picked = kept

    def _opened(self, names: Sequence[str]) -> Tuple[Any, List[int]]:
        """A copy of the model that also gives the named layers' outputs, and where among its outputs they are."""
        graph = self._model.clone()
        nodes = _computing(graph)
        for name in names:
            graph.add_outputs([nodes[name].output(0)])  # adds nothing where it is an output already
        sources = [port.get_node().input_value(0) for port in graph.outputs]
        places = [(source.get_node().friendly_name, source.get_index()) for source in sources]
        request = self._compile(graph).create_infer_request()
        return inner_infer(request), [places.index((name, 0)) for name in names]

    def unload(self) -> None:
        self.stop_profile()
        self._request = self._infer = self._model = self._core = None
        self._names = []
        self._revealing = ((), None, [])


def _import_quietly() -> Any:
    # Importing openvino starts its telemetry, which only a file in the user's home would stop. It does without the
    # package that sends, and nothing else needs that package.
    if "openvino" not in sys.modules:
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    return import_framework("openvino", ["openvino"])


def _settings(core: Any, precision: str, threads: int) -> Dict[str, Any]:
    able = list(core.get_property(_DEVICE, "OPTIMIZATION_CAPABILITIES"))
    if _CAPABILITIES[precision] not in able:
        has = [name for name, capability in sorted(_CAPABILITIES.items()) if capability in able]
        raise PredictorFault(
            "predictor_failed",
            f"openvino cannot compute in {precision} on this processor",
            hint=f"precision is one of: {', '.join(has)}",
            option="precision",
            expected=has,
            got=precision,
        )
    return {
        "INFERENCE_PRECISION_HINT": precision,
        # without it weights of 8 bits and less make their inputs 8 bits wide too
        "EXECUTION_MODE_HINT": "ACCURACY",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
    }


def _read(core: Any, path: str, weights: Optional[str]) -> Any:
    looks = describe_file(path)
    if looks not in _READABLE and (looks.startswith("unreadable") or not path.endswith(_TRUSTED_ENDINGS)):
        raise PredictorFault(
            "model_format",
            f"{path} is no model that openvino reads: it is {looks}",
            hint="give openvino an .xml (with its .bin), .onnx, .tflite, .pb or .pdmodel file",
            path=path,
            expected="OpenVINO IR, ONNX, TensorFlow Lite, TensorFlow or Paddle",
            got=looks,
        )
    beside = weights or (os.path.splitext(path)[0] + ".bin" if path.endswith(".xml") else None)
    if beside is not None and path.endswith(".xml") and not os.path.isfile(beside):
        raise PredictorFault(
            "model_format",
            f"the weights of {path} are missing: there is no {beside}",
            hint="give the .bin file as weights_path, or lay it beside the .xml file",
            path=path,
            expected=beside,
        )
    try:
        with _with_ending(path, _ENDINGS.get(looks, "")) as named:
            return core.read_model(named) if weights is None else core.read_model(named, weights)
    except Exception as error:
        raise PredictorFault(
            "model_format",
            f"openvino cannot read {path}: {_last_line(error)}",
            hint=f"the file looks like {looks}, but is cut short, damaged or uses what openvino does not know",
            path=path,
            error=str(error),
        ) from error


@contextlib.contextmanager
def _with_ending(path: str, ending: str) -> Iterator[str]:
    """The file under a name with this ending: by that OpenVINO tells formats apart."""
    if path.endswith(ending):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        named = os.path.join(folder, "model" + ending)
        os.symlink(os.path.abspath(path), named)
        yield named


def _layer(port: Any) -> Dict[str, Any]:
    """The facts of an input or output; one without a name of its own goes by the node that computes it."""
    node = port.get_node()
    if node.get_type_name() == "Result":
        node = node.input_value(0).get_node()
    names = sorted(port.get_names(), key=lambda name: (len(name), name))
    shape = port.partial_shape
    sizes = None if shape.rank.is_dynamic else [None if size.is_dynamic else size.get_length() for size in shape]
    kind = port.element_type.get_type_name()
    return {"name": names[0] if names else node.friendly_name, "shape": sizes, "element_type": _type_name(kind)}


def _type_name(kind: str) -> str:
    """numpy's name for OpenVINO's: f32, bf16, i64, u8, boolean, string."""
    for start, name in (("bf", "bfloat"), ("f", "float"), ("i", "int"), ("u", "uint")):
        if kind.startswith(start) and kind[len(start) :].isdigit():
            return name + kind[len(start) :]
    return {"boolean": "bool"}.get(kind, kind)


def _dtype(np: Any, name: str) -> Any:
    try:
        return None if name == "string" else np.dtype(name)
    except TypeError:
        return None


def _computing(graph: Any) -> Dict[str, Any]:
    """By name, the nodes whose values come from the inputs' values, not from their shapes or from constants."""
    found: Dict[str, Any] = {}
    fed = set()
    for node in graph.get_ordered_ops():
        kind, name = node.get_type_name(), node.friendly_name
        sources = [node.input_value(place).get_node().friendly_name for place in range(node.get_input_size())]
        if kind == "Parameter" or (kind != "ShapeOf" and any(source in fed for source in sources)):
            fed.add(name)
            if kind not in ("Parameter", "Result"):
                found.setdefault(name, node)
    return found


def _last_line(error: Exception) -> str:
    """What went wrong; before it OpenVINO lists the places in its source that passed the error on."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
