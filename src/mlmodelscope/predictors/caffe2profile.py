"""Turns calls of a Caffe2 net into layers: every operator becomes a net of its own, run and timed in turn.

The framework's own benchmark repeats the net and gives averages without times of day, and its observers print. Here the
operators of the very call are timed; each time holds the call of a net of one operator, about 2 microseconds.
"""

import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

__all__ = ["Profile"]

Layer = Dict[str, Any]


class Profile(object):
    """Begins when it is made; `run` stands for the net's own call until `finish`."""

    def __init__(self, workspace: Any, net: Any, inputs: Sequence[str]) -> None:
        self._clock = getattr(time, "monotonic_ns", None) or (lambda: int(time.monotonic() * 1e9))
        self._calls: List[List[Tuple[int, int, List[Any], List[Any]]]] = []
        self._operators = list(net.op)
        self._weights = set(workspace.blobs) - {name for operator in net.op for name in operator.output} - set(inputs)
        self._runs = [_net_of(workspace, net, place).run for place in range(len(net.op))]
        self._blobs = dict(workspace.blobs)

    def run(self) -> None:
        clock, call = self._clock, []
        for run, operator in zip(self._runs, self._operators):  # noqa: B905 - zip(strict=) is younger than Python 3.6
            begin = clock()
            run()
            end = clock()
            call.append((begin, end, self._tensors(operator.input), self._tensors(operator.output)))
        self._calls.append(call)

    def _tensors(self, names: Sequence[str]) -> List[Tuple[str, Any]]:
        return [(name, _shape(self._blobs[name])) for name in names if name in self._blobs]

    def finish(self) -> List[Optional[List[Layer]]]:
        return [[self._layer(place, *measured) for place, measured in enumerate(call)] or None for call in self._calls]

    def _layer(self, place: int, begin: int, end: int, given: List[Any], results: List[Any]) -> Layer:
        operator = self._operators[place]
        name = operator.name or (operator.output[0] if operator.output else f"{operator.type}_{place}")
        return {
            "name": name,
            "start_ns": begin,
            "duration_ns": end - begin,
            "operator": operator.type,
            "nodes": list(operator.output),
            "inputs": [{"element_type": "float32", "shape": shape} for _, shape in given if shape is not None],
            "outputs": [{"element_type": "float32", "shape": shape} for _, shape in results if shape is not None],
            "parameter_bytes": sum(_bytes(shape) for name, shape in given if name in self._weights),
            "output_bytes": sum(_bytes(shape) for _, shape in results),
        }


def _net_of(workspace: Any, net: Any, place: int) -> Any:
    alone = type(net)()
    alone.name, alone.type = f"{net.name}/{place}", "simple"
    alone.op.add().CopyFrom(net.op[place])
    alone.external_input.extend(net.op[place].input)
    return workspace.create_net(alone.SerializeToString(), True)


def _shape(blob: Any) -> Optional[List[int]]:
    return [int(size) for size in blob.tensor().shape] if blob.is_tensor() else None


def _bytes(shape: Optional[Sequence[int]]) -> int:
    count = 4 if shape is not None else 0
    for size in shape or ():
        count *= size
    return count
