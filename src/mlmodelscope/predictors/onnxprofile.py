"""Turns ONNX Runtime's profile of some runs into layers per run, with the model's own nodes behind each.

The runtime rewrites the graph before it runs it, and its profile speaks of the rewritten nodes. The rewritten graph is
saved next to the profile; tensors that both graphs have, and names the rewriting left recognisable, tie the two.
"""

import json
import os
import time
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Set

from mlmodelscope.predictors.modelfile import Node, read_onnx_nodes
from mlmodelscope.predictors.port import element_type

__all__ = ["Profile", "origins", "read_layers"]

Layer = Dict[str, Any]

_OPTIMISED = "profiled.onnx"
_WEIGHTS = "profiled-weights.bin"
_KERNEL = "_kernel_time"
_BLOCKED = "_nchwc"
# nodes that the rewriting adds to change layout or place; no node of the model is behind them
_INSERTED = frozenset(("ReorderInput", "ReorderOutput", "MemcpyFromHost", "MemcpyToHost"))
# operators that a rewriting moves into the node behind them
_PREPARING = frozenset(("Cast", "DequantizeLinear", "Identity", "Pad", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
# a profile beyond this would take minutes and gigabytes to read; calls behind it count as incomplete
_MOST_LAYERS = 500000


class Profile(object):
    """One profiled session. Make it, give `options` to the session, `begin`, call `run`, then `finish`."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._marks: List[int] = []
        self._wall = getattr(time, "time_ns", None) or (lambda: int(time.time() * 1e9))
        self._monotonic = getattr(time, "monotonic_ns", None) or (lambda: int(time.monotonic() * 1e9))

    def prepare(self, options: Any, saves_graph: bool) -> None:
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(self._folder, "profile")
        if saves_graph:
            options.optimized_model_filepath = os.path.join(self._folder, _OPTIMISED)
            # beside the graph, because a graph with its weights inside may not exceed two gigabytes
            options.add_session_config_entry("session.optimized_model_external_initializers_file_name", _WEIGHTS)

    def begin(self, session: Any, run: Any) -> None:
        self._session, self._plain_run = session, run

    def run(self, names: Any, feed: Any, options: Any) -> Any:
        # the profile is in wall-clock time, which may be set meanwhile: each call notes how far apart the clocks are
        self._marks.append(self._monotonic() - self._wall())
        return self._plain_run(names, feed, options)

    def finish(self, model_path: str) -> List[Optional[List[Layer]]]:
        """The layers of each call in the order of execution; None for a call whose profile is not complete."""
        start = self._session.get_profiling_start_time_ns()
        path = self._session.end_profiling()
        self._session = self._plain_run = None
        try:
            nodes = self._origins(model_path)
            with open(path, encoding="utf-8", errors="replace") as file:
                return list(read_layers(file, [start + shift for shift in self._marks], nodes))
        finally:
            for name in (path, *(os.path.join(self._folder, name) for name in (_OPTIMISED, _WEIGHTS))):
                if os.path.exists(name):
                    os.remove(name)

    def _origins(self, model_path: str) -> Dict[str, List[str]]:
        optimised = os.path.join(self._folder, _OPTIMISED)
        try:
            return origins(read_onnx_nodes(model_path), read_onnx_nodes(optimised))
        except (OSError, ValueError):  # another format, or a graph that was not saved: the names stay the runtime's
            return {}


def read_layers(
    lines: Iterable[str], zeros_ns: Sequence[int], nodes: Dict[str, List[str]]
) -> Iterator[Optional[List[Layer]]]:
    """Layers per call from the profile's lines, an event each; `zeros_ns` is the profile's time zero for every call."""
    layers: List[Layer] = []
    calls = count = broken = 0
    for line in lines:
        event = _parse(line)
        if event is None:
            broken += 1
            continue
        if calls == len(zeros_ns) or count > _MOST_LAYERS:
            break
        if event.get("cat") == "Node" and str(event["name"]).endswith(_KERNEL):
            layers.append(_layer(event, zeros_ns[calls], nodes))
            count += 1
        elif event.get("name") == "model_run":
            yield layers if not broken else None
            layers, broken = [], 0
            calls += 1
    for _ in range(calls, len(zeros_ns)):
        yield None


def _parse(line: str) -> Optional[Dict[str, Any]]:
    text = line.strip().rstrip(",")
    if text in ("", "[", "]"):
        return {}
    try:
        event = json.loads(text)
        return event if isinstance(event, dict) else None
    except ValueError:
        return None


def _layer(event: Dict[str, Any], zero_ns: int, nodes: Dict[str, List[str]]) -> Layer:
    name, facts = event["name"][: -len(_KERNEL)], event.get("args", {})
    layer = {
        "name": name,
        "start_ns": zero_ns + 1000 * int(event["ts"]),
        "duration_ns": 1000 * int(event["dur"]),
        "operator": facts.get("op_name", ""),
        "provider": facts.get("provider", ""),
        "nodes": nodes.get(name, []),
        "inputs": _tensors(facts.get("input_type_shape", [])),
        "outputs": _tensors(facts.get("output_type_shape", [])),
    }
    sizes = (("parameter_size", "parameter_bytes"), ("activation_size", "input_bytes"), ("output_size", "output_bytes"))
    for theirs, ours in sizes:
        if theirs in facts:
            layer[ours] = int(facts[theirs])
    return layer


def _tensors(described: Any) -> List[Dict[str, Any]]:
    if not isinstance(described, list):
        return []
    return [
        {"element_type": element_type(kind), "shape": shape} for tensor in described for kind, shape in tensor.items()
    ]


def origins(original: Sequence[Node], optimised: Sequence[Node]) -> Dict[str, List[str]]:
    """For each rewritten node, by the name that the profile gives it, the model's own nodes that it does the work of.

    A node without a name is called after its first output. Nodes computed once and for all at load belong to nobody.
    """
    return _Origins(original, optimised).found()


class _Origins(object):
    def __init__(self, original: Sequence[Node], optimised: Sequence[Node]) -> None:
        self._original, self._optimised = original, optimised
        self._maker = {tensor: i for i, node in enumerate(original) for tensor in node.outputs if tensor}
        self._named = {node.name: i for i, node in enumerate(original) if node.name}
        self._alive: Set[str] = {tensor for node in optimised for tensor in node.outputs}
        self._owner: Dict[int, int] = {}

    def found(self) -> Dict[str, List[str]]:
        self._own_by_name()
        self._own_by_outputs()
        anchors = sorted(self._owner.items(), key=lambda pair: (pair[1], pair[0]))
        for node, place in anchors:
            self._own_what_is_before(node, place)
        self._own_what_is_left()
        behind: Dict[int, List[int]] = {}
        for node in sorted(self._owner):
            behind.setdefault(self._owner[node], []).append(node)
        first = {place: node for node, place in reversed(anchors)}
        return {
            self._profiled_name(place, first): [_label(self._original[node]) for node in nodes]
            for place, nodes in behind.items()
        }

    def _profiled_name(self, place: int, first: Dict[int, int]) -> str:
        node = self._optimised[place]
        return node.name or "{}_{}".format(node.operator, first[place])

    def _own_by_name(self) -> None:
        for place, node in enumerate(self._optimised):
            index = self._named.get(node.name)
            if index is not None and self._original[index].operator == node.operator:
                self._owner.setdefault(index, place)

    def _own_by_outputs(self) -> None:
        for place, node in enumerate(self._optimised):
            if node.operator in _INSERTED:
                continue
            tensors = [tensor for tensor in node.outputs if tensor in self._maker]
            if not tensors and node.name.endswith(_BLOCKED):
                # blocked layouts rename the tensors, but call the node after the output it had
                stem = node.name[: -len(_BLOCKED)]
                index = self._maker.get(stem, self._named.get(stem))
                if index is not None:
                    self._owner.setdefault(index, place)
            for tensor in tensors:
                self._owner.setdefault(self._maker[tensor], place)

    def _own_what_is_before(self, node: int, place: int) -> None:
        """Nodes whose results nobody else can see any more were merged into the node that used them.

        Before the node that gave the merged one its operator there is only what prepares its input: an activation or a
        sum there was merged into the node before.
        """
        operator = self._optimised[place].operator
        waiting = [(node, False)]
        while waiting:
            user, is_past = waiting.pop()
            is_past = is_past or operator.endswith(self._original[user].operator)
            for tensor in self._original[user].inputs:
                maker = self._maker.get(tensor)
                if maker is None or maker in self._owner or tensor in self._alive:
                    continue
                if not is_past or self._original[maker].operator in _PREPARING:
                    self._owner[maker] = place
                    waiting.append((maker, is_past))

    def _own_what_is_left(self) -> None:
        """What remains was merged into the last of the nodes that it had to wait for."""
        for index, node in enumerate(self._original):
            if index not in self._owner:
                makers = [self._maker[tensor] for tensor in node.inputs if tensor in self._maker]
                places = [self._owner[maker] for maker in makers if maker in self._owner]
                if places:
                    self._owner[index] = max(places)


def _label(node: Node) -> str:
    return node.name or next((tensor for tensor in node.outputs if tensor), node.operator)
