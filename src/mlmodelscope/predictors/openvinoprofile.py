"""Turns OpenVINO's counters and its compiled graph into layers per call, and into what the kernels compute with."""

import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

__all__ = ["Profile", "inner_infer", "kernel_facts", "lay_out", "precision_of"]

Layer = Dict[str, Any]

# where nearly all arithmetic happens; what these compute in is what a model computes in
_HEAVY = frozenset(
    ("Convolution", "Deconvolution", "FullyConnected", "MatMul", "RNNCell", "RNNSeq", "ScaledDotProductAttention")
)
_MOVING = frozenset(("Const", "Input", "Output", "Reorder", "Reshape", "Transpose", "Convert", "Subgraph"))
_TYPES = {
    "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64",
    "i8": "int8", "u8": "uint8", "i32": "int32", "i64": "int64",
}  # fmt: skip


def inner_infer(request: Any) -> Any:
    """The method below InferRequest.infer, which finds out in every call what is known since load.

    Medians of a call on a two-node model, interleaved, 2026.4.1: this 52 us, infer with shared inputs 82,
    set_input_tensor and get_output_tensor 61, start_async and wait 92.
    """
    return super(type(request), request).infer


class Profile(object):
    """Runs one compiled model with counters on, and keeps what they said after every call."""

    def __init__(self, compiled: Any, tensor: Any) -> None:
        """`tensor` makes one of a type and a shape."""
        self._compiled, self._tensor = compiled, tensor
        self._request = compiled.create_infer_request()
        self._run = inner_infer(self._request)
        self._calls: List[Tuple[int, int, Any, Any]] = []
        self._now = getattr(time, "monotonic_ns", None) or (lambda: int(time.monotonic() * 1e9))

    def infer(self, feed: Dict[int, Any], *sharing: bool) -> Any:
        begin = self._now()
        results = self._run(feed, *sharing)
        end = self._now()
        given = tuple((place, tensor.element_type, tuple(tensor.shape)) for place, tensor in feed.items())
        self._calls.append((begin, end, self._request.profiling_info, given))
        return results

    def finish(self) -> List[Optional[List[Layer]]]:
        found: List[Optional[List[Layer]]] = []
        graphs: Dict[Any, Dict[str, Layer]] = {}
        self._latest = self._calls[-1][3] if self._calls else None
        for begin, end, counters, given in self._calls:
            shapes = tuple(shape for _, _, shape in given)
            if shapes not in graphs:
                graphs[shapes] = self._graph(given)
            layers = [_layer(counter, graphs[shapes]) for counter in counters if counter.status.name == "EXECUTED"]
            found.append(lay_out(layers, begin, end))
        self._request = self._run = self._compiled = None
        return found

    def _graph(self, given: Sequence[Tuple[int, Any, Tuple[int, ...]]]) -> Dict[str, Layer]:
        """The compiled graph as it is for inputs of these shapes: its sizes are those of the latest call."""
        if self._latest != given:
            self._latest = given
            self._run({place: self._tensor(kind, shape) for place, kind, shape in given}, False, False)
        return _nodes(self._compiled)


def lay_out(layers: List[Layer], begin_ns: int, end_ns: int) -> List[Layer]:
    """One after the other from the beginning of the call: the counters hold durations, in whole microseconds."""
    start = begin_ns
    for layer in layers:
        layer["start_ns"] = start
        layer["duration_ns"] = min(layer["duration_ns"], end_ns - start)
        start += layer["duration_ns"]
    return layers


def _layer(counter: Any, graph: Dict[str, Layer]) -> Layer:
    layer: Layer = {
        "name": counter.node_name,
        "start_ns": 0,
        "duration_ns": round(counter.real_time.total_seconds() * 1e6) * 1000,
        "operator": counter.node_type,
        "provider": counter.exec_type,
    }
    layer.update(graph.get(counter.node_name, {}))
    return layer


def _nodes(compiled: Any) -> Dict[str, Layer]:
    """By the name that the counters use: the model's own nodes, and the tensors in and out."""
    nodes: Dict[str, Layer] = {}
    constant = set()
    for node in compiled.get_runtime_model().get_ordered_ops():
        facts = _facts(node)
        inputs = [node.input_value(place) for place in range(node.get_input_size())]
        weights = [port for port in inputs if port.get_node().friendly_name in constant]
        data = [port for port in inputs if port.get_node().friendly_name not in constant]
        if facts.get("layerType") == "Const" or (inputs and not data):
            constant.add(node.friendly_name)
        nodes[node.friendly_name] = {
            "nodes": [name for name in facts.get("originalLayersNames", "").split(",") if name],
            "inputs": [_tensor(port) for port in data],
            "outputs": [_tensor(port) for port in node.outputs()],
            "parameter_bytes": sum(_size(port) for port in weights),
            "input_bytes": sum(_size(port) for port in data),
            "output_bytes": sum(_size(port) for port in node.outputs()),
        }
    return nodes


def _facts(node: Any) -> Dict[str, str]:
    return {key: _text(value) for key, value in node.get_rt_info().items()}


def _text(value: Any) -> str:
    return str(value.astype(str) if hasattr(value, "astype") else value)


def _shape(port: Any) -> List[Optional[int]]:
    return [None if size.is_dynamic else int(size.get_length()) for size in port.partial_shape]


def _tensor(port: Any) -> Dict[str, Any]:
    kind = port.element_type.get_type_name()
    return {"element_type": _TYPES.get(kind, kind), "shape": _shape(port)}


def _size(port: Any) -> int:
    elements = 1
    for size in _shape(port):
        elements *= size or 0
    return elements * int(port.element_type.size)


def kernel_facts(compiled: Any) -> Dict[str, Any]:
    """What is in force, asked of the compiled model and of the kernels chosen for its nodes."""
    nodes = [_facts(node) for node in compiled.get_runtime_model().get_ordered_ops()]
    kernels = " ".join(facts.get("primitiveType", "") for facts in nodes)
    hint = str(compiled.get_property("PERFORMANCE_HINT")).rpartition(".")[2].lower()
    return {
        "provider": "+".join(compiled.get_property("EXECUTION_DEVICES")),
        "device": "cpu",
        # kernels for open shapes are chosen in the first call
        "library": "oneDNN+MLAS" if "mlas" in kernels else "oneDNN or MLAS" if "undef" in kernels else "oneDNN",
        "optimization": hint,
        "precision": precision_of([(facts.get("layerType", ""), facts.get("runtimePrecision", "")) for facts in nodes]),
    }


def precision_of(nodes: List[Tuple[str, str]]) -> str:
    """From pairs of a node's type and the precision of its kernel: the commonest first, joined by "+"."""
    heavy = [precision for kind, precision in nodes if precision and kind in _HEAVY]
    light = [precision for kind, precision in nodes if precision and kind not in _MOVING]
    for found in (heavy, light, [precision for _, precision in nodes if precision]):
        counts = {precision: found.count(precision) for precision in found}
        if counts:
            return "+".join(_TYPES.get(name, name) for name in sorted(counts, key=lambda name: (-counts[name], name)))
    return "unknown"
