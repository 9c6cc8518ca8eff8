"""Turns OpenCV's counters of some calls into layers per call.

OpenCV counts always and tells a layer's time, not when it began; a layer fused into another shows no time at all.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import time
from typing import Any, Dict, List, Sequence, Tuple

__all__ = ["PREFIX", "Profile", "lay_out"]

Layer = Dict[str, Any]

# what the importer puts before the name of an ONNX node
PREFIX = "onnx_node!"


class Profile(object):
    """Stands between the predictor and its network while calls are profiled."""

    def __init__(self, net: Any, ticks_per_second: float, names: Sequence[str]) -> None:
        """`names` are the network's inputs in its own order."""
        self._net, self._names = net, list(names)
        self._ns_per_tick = 1e9 / ticks_per_second
        self._shapes: Dict[str, Tuple[int, ...]] = {}
        self._calls: List[Tuple[int, int, Any, Tuple[Tuple[int, ...], ...]]] = []
        self._now = getattr(time, "monotonic_ns", None) or (lambda: int(time.monotonic() * 1e9))

    def use(self, net: Any) -> None:
        """From now on calls go to another network of the same model."""
        self._net = net

    def set(self, value: Any, name: str) -> None:
        self._shapes[name or self._names[0]] = value.shape
        self._net.setInput(value, name)

    def forward(self, outputs: List[str]) -> Any:
        begin = self._now()
        results = self._net.forward(outputs)
        end = self._now()
        shapes = tuple(self._shapes[name] for name in self._names)
        self._calls.append((begin, end, self._net.getPerfProfile()[1], shapes))
        return results

    def finish(self) -> List[List[Layer]]:
        described: Dict[Any, List[Layer]] = {}
        found = []
        for begin, end, ticks, shapes in self._calls:
            if shapes not in described:
                described[shapes] = _layers(self._net, shapes)
            timed = [
                dict(layer, duration_ns=round(float(count) * self._ns_per_tick))
                for layer, count in zip(described[shapes], ticks.ravel())
                if count > 0
            ]
            found.append(lay_out(timed, begin, end))
        self._net = None
        return found


def lay_out(layers: List[Layer], begin_ns: int, end_ns: int) -> List[Layer]:
    """One after the other from the beginning of the call."""
    start = begin_ns
    for layer in layers:
        layer["start_ns"] = start
        layer["duration_ns"] = max(0, min(layer["duration_ns"], end_ns - start))
        start += layer["duration_ns"]
    return layers


def _layers(net: Any, shapes: Sequence[Sequence[int]]) -> List[Layer]:
    """The network's layers in the order of its counters, without times."""
    ids, inner, outer = net.getLayersShapes([[int(size) for size in shape] for shape in shapes])
    sizes = {int(place): (ins, outs) for place, ins, outs in zip(list(ids.ravel()), inner, outer)}
    layers = []
    for name in net.getLayerNames():
        layer = net.getLayer(name)
        ins, outs = sizes.get(int(net.getLayerId(name)), ((), ()))
        inputs, outputs = [_tensor(shape) for shape in ins], [_tensor(shape) for shape in outs]
        layers.append(
            {
                "name": name,
                "start_ns": 0,
                "duration_ns": 0,
                "operator": layer.type,
                "nodes": [name[len(PREFIX) :] if name.startswith(PREFIX) else name],
                "inputs": inputs,
                "outputs": outputs,
                "parameter_bytes": sum(int(blob.nbytes) for blob in layer.blobs),
                "input_bytes": sum(_size(tensor) for tensor in inputs),
                "output_bytes": sum(_size(tensor) for tensor in outputs),
            }
        )
    return layers


def _tensor(shape: Any) -> Dict[str, Any]:
    # integers are computed with in layers of their own kind, whose names end in Int8; sizes are told for float32 alone
    return {"element_type": "float32", "shape": [int(size) for size in list(shape)]}


def _size(tensor: Dict[str, Any]) -> int:
    elements = 4
    for size in tensor["shape"]:
        elements *= size
    return elements
