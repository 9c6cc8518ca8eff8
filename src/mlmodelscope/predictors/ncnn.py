"""Turns tensors into tensors with ncnn on the CPU.

`graph_path` is the .param file, `weights_path` the .bin file (unless given, the one of that name beside it). ncnn has
no batch dimension: a batch of N is N runs, one after the other, inside one call, and their results stacked. Left to
itself it stores and computes in 16-bit floats where the processor can; that is off.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import ctypes
import os
from typing import Any, ClassVar, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.modelfile import describe_file
from mlmodelscope.predictors.ncnnfile import ParamLayer, input_shape, param_precision, read_param
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

_REDUCED = (
    "use_fp16_packed",
    "use_fp16_storage",
    "use_fp16_arithmetic",
    "use_bf16_storage",
    "use_bf16_packed",
    "use_vulkan_compute",
)
# layers that only read what they are given; any other may write to it, and to the caller's memory with it
_READING = frozenset(("Convolution", "ConvolutionDepthWise", "InnerProduct"))


class Predictor(object):
    name: ClassVar[str] = "ncnn"
    packages: ClassVar[Tuple[str, ...]] = ("ncnn",)
    environment: ClassVar[Dict[str, str]] = {}
    formats: ClassVar[Tuple[str, ...]] = (".param",)

    def __init__(self) -> None:
        self._net: Any = None
        self._layers: List[ParamLayer] = []
        self._inputs: List[Dict[str, Any]] = []
        self._feeds: List[Tuple[str, bool]] = []
        self._shapes: Optional[List[Any]] = None
        self._output_names: List[str] = []

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        check_options(self.name, model.get("options") or {}, {})
        threads = check_threads(self.name, model.get("threads", 1))
        ncnn = import_framework(self.name, ["ncnn"])
        path = model["graph_path"]
        layers = _read(ncnn, path)
        inputs = [_input(layer, top) for layer in layers if layer.operator == "Input" for top in layer.tops]
        chosen = select_layers("input", model.get("inputs") or [], [fact["name"] for fact in inputs])
        check_all_fed([fact["name"] for fact in inputs], chosen)
        check_element_types(model.get("inputs") or [], [inputs[index] for index in chosen])
        ends = _unread(layers)
        picked = [ends[index] for index in select_layers("output", model.get("outputs") or [], ends)]
        net = _open_net(ncnn, path, model.get("weights_path"), threads)
        self._inputs = [inputs[index] for index in chosen]
        self._layers = layers
        self._bind(ncnn, net, picked)
        try:
            outputs = self._describe(picked)
        except PredictorFault:
            self.unload()
            raise
        return {
            "framework": self.name,
            "version": distribution_version(self.packages) or ncnn.__version__,
            "threads": int(net.opt.num_threads),
            "provider": "CPU",
            "device": "cpu",
            "library": "ncnn",
            "optimization": "light mode, one sample at a time" if net.opt.lightmode else "one sample at a time",
            "precision": param_precision(layers) if not any(getattr(net.opt, key) for key in _in(net)) else "unknown",
            "inputs": self._inputs,
            "outputs": outputs,
        }

    def _bind(self, ncnn: Any, net: Any, outputs: List[str]) -> None:
        import numpy as np

        self._zeros, self._array, self._stack = np.zeros, np.array, np.stack
        self._mat, self._float = ncnn.Mat, np.dtype("float32")
        self._feeds = [(fact["name"], self._is_only_read(fact["name"])) for fact in self._inputs]
        self._output_names = outputs
        self._net, self._extractor = net, net.create_extractor

    def _is_only_read(self, blob: str) -> bool:
        return all(layer.operator in _READING for layer in self._layers if blob in layer.bottoms)

    def _describe(self, names: Sequence[str]) -> List[Dict[str, Any]]:
        """The outputs' sizes, from one run with zeros; nobody else knows them."""
        shapes: List[Any] = [None] * len(names)
        if all(fact["shape"] is not None for fact in self._inputs):
            zeros = [self._zeros([1] + fact["shape"][1:], self._float) for fact in self._inputs]
            shapes = [[None] + list(result.shape[1:]) for result in self.predict(zeros)]
        return [{"name": name, "shape": shape, "element_type": "float32"} for name, shape in zip(names, shapes)]

    def predict(self, inputs: List[Any]) -> List[Any]:
        try:
            if [value.shape for value in inputs] != self._shapes:
                self._refit(inputs)
            runs = [self._run(inputs, place, self._extractor(), self._output_names) for place in self._places]
        except PredictorFault:
            raise
        except Exception as error:  # what an object that is no array raises, or the binding
            raise self._fault(inputs, error) from error
        return [result[None] for result in runs[0]] if len(runs) == 1 else [self._stack(made) for made in zip(*runs)]

    def _refit(self, inputs: Sequence[Any]) -> None:
        """Takes note of shapes that fit. ncnn checks nothing: an input of another size would be read beyond its end."""
        fault = unloaded(self.name) if self._net is None else misfit(self._inputs, inputs) or _unequal(inputs)
        if fault is not None:
            raise fault
        self._shapes = [value.shape for value in inputs]
        self._places = range(len(inputs[0]))

    def _run(self, inputs: Sequence[Any], place: int, extractor: Any, names: Sequence[str]) -> List[Any]:
        held = []  # what is not copied must live until the run is over
        for (name, is_only_read), value in zip(self._feeds, inputs):
            if value.dtype != self._float:
                raise TypeError(name)
            sample = value[place]
            if not sample.flags.c_contiguous:
                sample = sample.copy("C")
            held.append(sample)
            mat = self._mat(sample)
            extractor.input(name, mat if is_only_read else mat.clone())
        results = []
        for name in names:
            status, mat = extractor.extract(name)
            if status != 0:
                raise _uncomputed(name, status)
            results.append(self._array(mat))
        return results

    def _fault(self, inputs: Sequence[Any], error: Exception) -> PredictorFault:
        if self._net is None:
            return unloaded(self.name)
        return misfit(self._inputs, inputs) or PredictorFault(
            "predictor_failed", f"ncnn: {error}", framework=self.name, error=str(error)
        )

    def layer_names(self) -> List[str]:
        if self._net is None:
            raise unloaded(self.name)
        return [top for layer in self._layers if layer.operator != "Input" for top in layer.tops]

    def reveal(self, inputs: List[Any], names: Sequence[str]) -> List[Any]:
        known = self.layer_names()
        wanted = [known[i] for i in select_layers("inner", [{"layer_name": name} for name in names], known)]
        fault = misfit(self._inputs, inputs) or _unequal(inputs)
        if fault is not None:
            raise fault
        runs = []
        for place in range(len(inputs[0])):
            extractor = self._extractor()
            extractor.set_light_mode(False)  # which would free what only another layer reads
            runs.append(self._run(inputs, place, extractor, wanted))
        return [self._stack(results) for results in zip(*runs)]

    def unload(self) -> None:
        net, self._net, self._extractor = self._net, None, None
        self._feeds, self._shapes = [], None
        self._layers = []
        if net is not None:
            net.clear()
            _return_memory()


def _return_memory() -> None:
    """The C library keeps freed memory in its pools, where another model's load cannot always use it."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):  # not the C library of GNU
        pass


def _uncomputed(name: str, status: int) -> PredictorFault:
    return PredictorFault(
        "predictor_failed",
        f"ncnn: {name!r} cannot be computed ({status})",
        hint="the memory does not suffice (-100), or the model does not fit its weights or this input",
        framework="ncnn",
        layer=name,
        status=status,
    )


def _in(net: Any) -> List[str]:
    return [key for key in _REDUCED if hasattr(net.opt, key)]


def _read(ncnn: Any, path: str) -> List[ParamLayer]:
    looks = describe_file(path)
    if looks != "a text file":
        raise PredictorFault(
            "model_format",
            f"{path} is no ncnn model: it is {looks}",
            hint="give ncnn a .param file, with the .bin file as weights_path",
            path=path,
            expected="a text file of ncnn layers",
            got=looks,
        )
    try:
        return read_param(path, lambda operator: ncnn.layer_to_index(operator) >= 0)
    except ValueError as error:
        raise _unreadable(path, str(error)) from error


def _unreadable(path: str, why: str) -> PredictorFault:
    return PredictorFault(
        "model_format",
        f"ncnn cannot read {path}: {why}",
        hint="the file is no ncnn model, or is cut short or damaged",
        path=path,
        error=why,
    )


def _open_net(ncnn: Any, path: str, weights: Optional[str], threads: int) -> Any:
    beside = weights or os.path.splitext(path)[0] + ".bin"
    if not os.path.isfile(beside):
        raise PredictorFault(
            "model_format",
            f"the weights of {path} are missing: there is no {beside}",
            hint="give the .bin file as weights_path, or lay it beside the .param file",
            path=path,
            expected=beside,
        )
    net = ncnn.Net()
    net.opt.num_threads = threads
    for key in _in(net):
        setattr(net.opt, key, False)
    if net.load_param(path) != 0:
        raise _unreadable(path, "the library refuses it")
    if net.load_model(beside) != 0:
        raise _unreadable(beside, "it does not hold the weights of this network")
    return net


def _input(layer: ParamLayer, name: str) -> Dict[str, Any]:
    return {"name": name, "shape": input_shape(layer), "element_type": "float32"}


def _unread(layers: Sequence[ParamLayer]) -> List[str]:
    read = {blob for layer in layers for blob in layer.bottoms}
    return [top for layer in layers for top in layer.tops if top not in read]


def _unequal(values: Sequence[Any]) -> Optional[PredictorFault]:
    """What misfit cannot see: no samples at all, inputs of unequal batch sizes, or a rank that no layer has."""
    shapes = [list(value.shape) for value in values]
    counts = {shape[0] for shape in shapes if shape}
    if len(counts) == 1 and 0 not in counts and all(2 <= len(shape) <= 5 for shape in shapes):
        return None
    return PredictorFault(
        "shape_mismatch",
        "ncnn takes batches of one or more samples, the same number for each input, of one to four dimensions each",
        expected="[batch, one to four sizes]",
        got=shapes,
    )
