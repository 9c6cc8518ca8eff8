"""Turns tensors into tensors with Caffe 1.0: a network (`graph_path`, .prototxt) and its weights (`weights_path`).

Any blob of the network can be an output. Caffe ends the whole process where it finds fault with a file, so the files
are looked over before it sees them (`caffefile.py`).

Option: `batch` (open, the default: the network is reshaped when a call brings another batch size, and that call pays
for it; or fixed: the batch size of the file is the only one).
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import ctypes
import time
from typing import Any, ClassVar, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.caffefile import check_weights, read_network, read_weights
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
    thread_ids,
    threads_in_force,
    unloaded,
)

__all__ = ["Predictor"]

_DISTRIBUTIONS = ("kendryte-caffe", "caffe-cpu", "caffe-gpu")


class Predictor(object):
    name: ClassVar[str] = "caffe"
    packages: ClassVar[Tuple[str, ...]] = _DISTRIBUTIONS
    # otherwise every layer is announced on stderr; errors still are
    environment: ClassVar[Dict[str, str]] = {"GLOG_minloglevel": "2"}
    formats: ClassVar[Tuple[str, ...]] = (".prototxt", ".caffemodel")

    def __init__(self) -> None:
        self._net: Any = None
        self._forward: Any = None
        self._given: List[Any] = []
        self._shapes: List[Tuple[int, ...]] = []
        self._profile: Optional[List[Optional[List[Dict[str, Any]]]]] = None
        self._described: Dict[Any, List[Dict[str, Any]]] = {}

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        options = model.get("options") or {}
        check_options(self.name, options, {"batch": ("open", "fixed")})
        threads = check_threads(self.name, model.get("threads", 1))
        before = thread_ids()
        caffe = _import()
        caffe.set_mode_cpu()
        in_force, library = _set_threads(caffe, threads, before)
        net = _open_net(caffe, model["graph_path"], model.get("weights_path"))
        inputs, outputs = list(net.inputs), list(net.outputs)
        chosen = select_layers("input", model.get("inputs") or [], inputs)
        check_all_fed(inputs, chosen)
        is_open = options.get("batch", "open") == "open"
        facts = [_fact(net, name, is_open) for name in (inputs[index] for index in chosen)]
        check_element_types(model.get("inputs") or [], facts)
        picked = _select_outputs(net, model.get("outputs") or [], outputs)
        self._bind(net, facts, picked)
        return {
            "framework": self.name,
            "version": distribution_version(_DISTRIBUTIONS) or str(caffe.__version__),
            "threads": in_force,
            "provider": "caffe",
            "device": "cpu",
            "library": library,
            "optimization": "none",
            "precision": facts[0]["element_type"],
            "inputs": facts,
            "outputs": [_fact(net, name, is_open) for name in picked],
        }

    def _bind(self, net: Any, inputs: List[Dict[str, Any]], outputs: Sequence[str]) -> None:
        self._net, self._inputs = net, inputs
        self._given = [net.blobs[fact["name"]] for fact in inputs]
        self._results = [net.blobs[name] for name in outputs]
        self._dtypes = [blob.data.dtype for blob in self._given]
        self._shapes = [tuple(blob.shape) for blob in self._given]
        self._last = len(net.layers) - 1
        # net.forward does this, and then gathers results that nobody has asked for
        self._forward = net._forward  # noqa: SLF001

    def predict(self, inputs: List[Any]) -> List[Any]:
        try:
            self._feed(inputs)
        except (AttributeError, TypeError, ValueError) as error:
            self._refit(inputs, error)
        try:
            self._forward(0, self._last)
            return [blob.data.copy() for blob in self._results]
        except (RuntimeError, TypeError, ValueError) as error:
            raise PredictorFault(
                "predictor_failed", f"caffe: {error}", framework=self.name, error=str(error)
            ) from error

    def _feed(self, inputs: List[Any]) -> None:
        if len(inputs) != len(self._shapes) or self._net is None:
            raise TypeError("inputs")
        for blob, shape, dtype, value in zip(self._given, self._shapes, self._dtypes, inputs):
            # numpy would convert another type, and spread one sample over a batch, without a word
            if value.shape != shape or (value.dtype is not dtype and value.dtype != dtype):
                raise TypeError("inputs")
            blob.data[...] = value

    def _refit(self, inputs: List[Any], error: Exception) -> None:
        """Reshapes the network for the batch that came, or says why the inputs cannot fit."""
        if self._net is None:
            raise unloaded(self.name) from error
        fault = misfit(self._inputs, inputs) or _uneven(self._inputs, inputs)
        if fault is not None:
            raise fault from error
        for blob, value in zip(self._given, inputs):
            blob.reshape(*value.shape)
        self._net.reshape()
        self._shapes = [tuple(value.shape) for value in inputs]
        self._feed(inputs)

    def layer_names(self) -> List[str]:
        if self._net is None:
            raise unloaded(self.name)
        inputs = set(self._net.inputs)
        return [name for name in self._net.blobs if name not in inputs]

    def reveal(self, inputs: List[Any], names: Sequence[str]) -> List[Any]:
        """Blobs that a layer works on in place show what the last such layer left there."""
        known = self.layer_names()
        chosen = select_layers("inner", [{"layer_name": name} for name in names], known)
        self.predict(inputs)
        return [self._net.blobs[known[index]].data.copy() for index in chosen]

    def start_profile(self, folder: str) -> None:
        """From now on the layers are called one by one; nothing is written to `folder`."""
        if self._net is None:
            raise unloaded(self.name)
        self._profile, self._described = [], {}
        self._forward = self._forward_by_layer

    def stop_profile(self) -> List[Optional[List[Dict[str, Any]]]]:
        profile, self._profile = self._profile, None
        if profile is None:
            return []
        if self._net is not None:
            self._forward = self._net._forward  # noqa: SLF001
        return profile

    def _forward_by_layer(self, first: int, last: int) -> None:
        clock = getattr(time, "monotonic_ns", None) or (lambda: int(time.monotonic() * 1e9))
        forward = self._net._forward  # noqa: SLF001
        times = []
        for index in range(first, last + 1):
            begin = clock()
            forward(index, index)
            times.append((begin, clock()))
        key = tuple(self._shapes)
        if key not in self._described:
            self._described[key] = [_layer(self._net, index) for index in range(first, last + 1)]
        assert self._profile is not None
        self._profile.append(
            [
                dict(layer, start_ns=begin, duration_ns=end - begin)
                for layer, (begin, end) in zip(self._described[key], times)
                if layer["operator"] != "Input"
            ]
        )

    def unload(self) -> None:
        self._profile = None
        self._net = self._forward = None
        self._given, self._results = [], []


def _import() -> Any:
    try:
        caffe = import_framework("caffe", ["caffe"])
    except (AttributeError, TypeError) as error:
        raise PredictorFault(
            "environment_missing",
            f"caffe is installed but cannot be imported: {error}",
            hint="Caffe 1.0 needs protobuf 3.20.3 or older and numpy older than 1.24",
            framework="caffe",
        ) from error
    if not hasattr(caffe, "Net"):
        raise PredictorFault(
            "environment_missing",
            "the package named caffe that is installed here is not the framework",
            hint="install kendryte-caffe, which is Caffe 1.0",
            framework="caffe",
        )
    return caffe


def _set_threads(caffe: Any, threads: int, before: Any) -> Tuple[int, str]:
    """Caffe has no setting of its own: its only threads are those of the OpenBLAS inside it."""
    library = ctypes.CDLL(caffe._caffe.__file__)  # noqa: SLF001
    try:
        library.openblas_set_num_threads(ctypes.c_int(threads))
        return int(library.openblas_get_num_threads()), "OpenBLAS"
    except AttributeError:
        return threads_in_force(threads, before, thread_ids()), "unknown"


def _open_net(caffe: Any, graph_path: str, weights_path: Optional[str]) -> Any:
    text_format = import_framework("caffe", ["google.protobuf.text_format"])
    messages = import_framework("caffe", ["caffe.proto.caffe_pb2"])
    read_network(text_format, messages, graph_path, set(caffe.layer_type_list()))
    weights = read_weights(messages, weights_path)
    try:
        net = caffe.Net(graph_path, caffe.TEST)
        check_weights(net, weights, graph_path, weights_path)
        del weights
        if weights_path is not None:
            net.copy_from(weights_path)
    except (RuntimeError, TypeError, ValueError) as error:
        raise PredictorFault(
            "predictor_failed", f"caffe cannot load {graph_path}: {error}", path=graph_path, error=str(error)
        ) from error
    return net


def _select_outputs(net: Any, asked: Sequence[Dict[str, Any]], outputs: Sequence[str]) -> List[str]:
    """An inner blob is as good as an output, but only those are listed, and counted by indices."""
    names = [layer.get("layer_name") for layer in asked]
    inner = [name for name in names if isinstance(name, str) and name in net.blobs and name not in outputs]
    for layer, name in zip(asked, names):
        if isinstance(name, int):
            select_layers("output", [layer], outputs)
    known = list(outputs) + inner
    return [known[index] for index in select_layers("output", asked, known)] if asked else list(outputs)


def _fact(net: Any, name: str, is_open: bool) -> Dict[str, Any]:
    blob = net.blobs[name]
    shape: List[Optional[int]] = [int(size) for size in blob.shape]
    if is_open and shape:
        shape[0] = None
    return {"name": name, "shape": shape, "element_type": str(blob.data.dtype)}


def _uneven(facts: Sequence[Dict[str, Any]], inputs: Sequence[Any]) -> Optional[PredictorFault]:
    """Sizes that Caffe would end the process for."""
    sizes = {int(value.shape[0]) for value in inputs if value.shape}
    if len(sizes) <= 1 and 0 not in sizes:
        return None
    return PredictorFault(
        "shape_mismatch",
        f"the inputs must have one batch size, of 1 or more, not {sorted(sizes)}",
        expected=[fact["shape"] for fact in facts],
        got=[list(value.shape) for value in inputs],
    )


def _layer(net: Any, index: int) -> Dict[str, Any]:
    name, layer = net._layer_names[index], net.layers[index]  # noqa: SLF001
    return {
        "name": name,
        "operator": layer.type,
        # copies that Caffe puts in where a blob has several readers are no layers of the file
        "nodes": [] if layer.type == "Split" and name.endswith("_split") else [name],
        "provider": "caffe",
        "inputs": [_tensor(net.blobs[blob]) for blob in net.bottom_names[name]],
        "outputs": [_tensor(net.blobs[blob]) for blob in net.top_names[name]],
        "parameter_bytes": sum(4 * int(blob.count) for blob in layer.blobs),
    }


def _tensor(blob: Any) -> Dict[str, Any]:
    return {"element_type": str(blob.data.dtype), "shape": [int(size) for size in blob.shape]}
