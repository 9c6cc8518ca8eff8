"""Turns MXNet's profile of some calls into layers per call, with the model's own nodes behind each.

The profile has the times of every operator, in microseconds of the wall clock and without the layer's name. Operators
run in the order of the graph, so that the graph as it was rewritten for execution gives the names.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import json
import os
import re
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.mxnetsymbol import operator_nodes
from mlmodelscope.predictors.port import element_type

__all__ = ["Profile", "read_events", "read_layers"]

Layer = Dict[str, Any]
# one call: its begin and end on the wall clock in microseconds, and the monotonic clock minus the wall clock
Mark = Tuple[int, int, int]

_FILE = "mxnet-profile.json"
_OBJECT = re.compile(r"\{[^{}]*\}")


class Profile(object):
    """Profiles from when it is made. `wrapped` gives the call to use instead of an executor's `forward`."""

    def __init__(self, mx: Any, folder: str, network: Any) -> None:
        self._mx = mx
        self._network = network
        self._path = os.path.join(folder, _FILE)
        self._marks: List[Mark] = []
        self._layers: List[List[Layer]] = []
        self._wall = getattr(time, "time_ns", None) or (lambda: int(time.time() * 1e9))
        self._monotonic = getattr(time, "monotonic_ns", None) or (lambda: int(time.monotonic() * 1e9))
        mx.nd.waitall()
        mx.profiler.set_config(
            profile_symbolic=True,
            profile_imperative=False,
            profile_memory=False,
            profile_api=False,
            continuous_dump=False,
            aggregate_stats=False,
            filename=self._path,
        )
        mx.profiler.set_state("run")

    def wrapped(self, executor: Any) -> Any:
        layers = _described(executor, self._network)

        def forward(is_train: bool) -> Any:
            begin = self._wall()
            outputs = executor.forward(is_train=is_train)
            for output in outputs:
                output.wait_to_read()
            end = self._wall()
            self._marks.append((begin // 1000, end // 1000, self._monotonic() - self._wall()))
            self._layers.append(layers)
            return outputs

        return forward

    def finish(self) -> List[Optional[List[Layer]]]:
        """The layers of each call in the order of execution; None for a call whose profile is not complete."""
        self._mx.nd.waitall()
        self._mx.profiler.set_state("stop")
        try:
            self._mx.profiler.dump(True)
            with open(self._path, encoding="utf-8", errors="replace") as file:
                events = read_events(file.read())
        except OSError:
            events = []
        finally:
            if os.path.exists(self._path):
                os.remove(self._path)
        return read_layers(events, self._marks, self._layers)


def read_events(text: str) -> List[Tuple[str, int, int]]:
    """Operator, begin and end in microseconds, in the order of time; the file may lack its end."""
    begun: Dict[Tuple[Any, str], List[int]] = {}
    events = []
    for found in _OBJECT.finditer(text):
        try:
            event = json.loads(found.group())
        except ValueError:
            continue
        if event.get("cat") != "operator" or event.get("ph") not in ("B", "E"):
            continue
        key = (event.get("tid"), str(event["name"]))
        if event["ph"] == "B":
            begun.setdefault(key, []).append(int(event["ts"]))
        elif begun.get(key):
            events.append((key[1], begun[key].pop(), int(event["ts"])))
    return sorted(events, key=lambda event: (event[1], event[2]))


def read_layers(
    events: Sequence[Tuple[str, int, int]], marks: Sequence[Mark], layers: Sequence[List[Layer]]
) -> List[Optional[List[Layer]]]:
    """Layers with their times, per call; `layers` are those of each call's graph, in the order of execution."""
    calls: List[Optional[List[Layer]]] = []
    place = 0
    for (begin, end, shift), described in zip(marks, layers):
        while place < len(events) and events[place][1] < begin:
            place += 1
        first = place
        while place < len(events) and events[place][1] <= end:
            place += 1
        timed = events[first:place]
        if [event[0] for event in timed] != [layer["operator"] for layer in described]:
            calls.append(None)
            continue
        calls.append(
            [
                dict(layer, start_ns=1000 * start + shift, duration_ns=1000 * (stop - start))
                for layer, (_, start, stop) in zip(described, timed)
            ]
        )
    return calls


def _described(executor: Any, network: Any) -> List[Layer]:
    """What is known of the layers before they run: name, operator, the model's nodes, shapes and bytes."""
    symbol = executor.get_optimized_symbol()
    graph = json.loads(symbol.tojson())
    shapes = _shapes(symbol, executor)
    nodes = graph["nodes"]
    described = []
    for node in operator_nodes(symbol):
        given = [nodes[entry[0]] for entry in node["inputs"]]
        weights = [other["name"] for other in given if other["name"] in network.parameters]
        layer = {
            "name": node["name"],
            "operator": node["op"],
            "nodes": _behind(node),
            "provider": "cpu",
            "parameter_bytes": sum(_size(network.parameters[name]) for name in weights),
        }
        outputs = [shapes[name] for name in _outputs_of(node, shapes)]
        if outputs:
            layer["outputs"] = outputs
        described.append(layer)
    return described


def _behind(node: Dict[str, Any]) -> List[str]:
    inner = [
        part["name"] for graph in node.get("subgraphs", []) for part in graph.get("nodes", []) if part["op"] != "null"
    ]
    return inner or [node["name"]]


def _shapes(symbol: Any, executor: Any) -> Dict[str, Dict[str, Any]]:
    internals = symbol.get_internals()
    given = {name: array.shape for name, array in executor.arg_dict.items()}
    names = internals.list_outputs()
    try:
        found = internals.infer_shape_partial(**given)[1] or []
    except (RuntimeError, ValueError):
        return {}
    kinds = _types(internals, executor) or [None] * len(names)
    return {
        name: dict(_named(kind), shape=list(shape))
        for name, shape, kind in zip(names, found, kinds)
        if shape and 0 not in shape
    }


def _types(internals: Any, executor: Any) -> Any:
    try:
        return internals.infer_type_partial(**{name: array.dtype for name, array in executor.arg_dict.items()})[1]
    except (RuntimeError, TypeError, ValueError):
        return None


def _named(kind: Any) -> Dict[str, str]:
    """The element type, where MXNet knows it; bfloat16 is a structure with one field of that name."""
    import numpy as np

    if kind is None:
        return {}
    dtype = np.dtype(kind)
    return {"element_type": element_type(dtype.names[0] if dtype.names else dtype.name)}


def _outputs_of(node: Dict[str, Any], shapes: Dict[str, Any]) -> List[str]:
    return [name for name in (f"{node['name']}_output", f"{node['name']}_output0") if name in shapes]


def _size(array: Any) -> int:
    import numpy as np

    return int(array.size) * int(np.dtype(array.dtype).itemsize)
