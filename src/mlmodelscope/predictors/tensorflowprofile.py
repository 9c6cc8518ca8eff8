"""Turns TensorFlow's own profiles (RunMetadata of a session, xplane of the eager runtime) into layers per call."""

import bisect
import glob
import importlib
import os
import re
import shutil
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.tensorflowprecision import TYPES

__all__ = ["EagerProfile", "SessionProfile", "layers_of_plane", "layers_of_step"]

Layer = Dict[str, Any]
Calls = List[Optional[List[Layer]]]

_HOST_PLANE = "/host:CPU"
_MARK = "mlmodelscope call "
# an executed node is called NAME:OPERATOR; what else the runtime traces has spaces or double colons in its name
_EXECUTED = re.compile(r"([^\s:#]+):([A-Za-z_][\w>]*)(?:#.*)?$")
_ALL_OPERATORS = 3
# nodes that compute nothing: the runtime hands values in and out by them
_HANDING = frozenset(("Const", "_Arg", "_Retval", "_Send", "_Recv", "_HostSend", "_HostRecv", "NoOp"))
_LABEL = re.compile(r"\S+ = ([\w>]+)\(")


def _wall_ns() -> int:
    return time.time_ns() if hasattr(time, "time_ns") else int(time.time() * 1e9)


def _monotonic_ns() -> int:
    return time.monotonic_ns() if hasattr(time, "monotonic_ns") else int(time.monotonic() * 1e9)


class SessionProfile(object):
    """Calls of a session that is traced; `new_metadata` makes an empty RunMetadata."""

    def __init__(self, call: Callable[..., Any], new_metadata: Callable[[], Any]) -> None:
        self._call, self._new_metadata = call, new_metadata
        self._steps: List[Tuple[Any, int]] = []

    def run(self, *inputs: Any) -> Any:
        # the trace is in wall-clock time, which may be set meanwhile: each call notes how far apart the clocks are
        metadata, shift = self._new_metadata(), _monotonic_ns() - _wall_ns()
        results = self._call(*inputs, run_metadata=metadata)
        self._steps.append((metadata.step_stats, shift))
        return results

    def finish(self) -> Calls:
        return [layers_of_step(stats, shift) or None for stats, shift in self._steps]


def layers_of_step(stats: Any, shift_ns: int) -> List[Layer]:
    """The executed nodes of one call, from its StepStats, moved by `shift_ns` onto our clock."""
    layers = []
    for device in stats.dev_stats:
        # a GPU's streams repeat what its device says; "/host:CPU" of 1.15 repeats the kernels without their nodes
        if not device.device.startswith("/job:") or "/stream:" in device.device:
            continue
        layers += [_node_layer(node, device.device, shift_ns) for node in device.node_stats if _is_layer(node)]
    return sorted(layers, key=lambda layer: int(layer["start_ns"]))


def _operator(node: Any) -> str:
    found = _LABEL.search(node.timeline_label)
    return found.group(1) if found else ""


def _is_layer(node: Any) -> bool:
    return node.node_name not in ("_SOURCE", "_SINK") and _operator(node) not in _HANDING


def _node_layer(node: Any, device: str, shift_ns: int) -> Layer:
    begin = (node.all_start_nanos or 1000 * node.all_start_micros) + shift_ns
    lasts = (node.op_start_rel_nanos, node.op_end_rel_nanos)
    if not lasts[1]:
        lasts = (1000 * node.op_start_rel_micros, 1000 * node.op_end_rel_micros)
    layer = {
        "name": node.node_name,
        "start_ns": begin + lasts[0],
        "duration_ns": max(0, lasts[1] - lasts[0]),
        "operator": _operator(node),
        "provider": device.rpartition("device:")[2],
        "outputs": [_tensor(output.tensor_description) for output in node.output],
    }
    sizes = [output.tensor_description.allocation_description.requested_bytes for output in node.output]
    if sizes:
        layer["output_bytes"] = sum(sizes)
    used = [memory.total_bytes for memory in node.memory]
    if used:
        layer["allocated_bytes"] = sum(used)
    return layer


def _tensor(described: Any) -> Dict[str, Any]:
    return {
        "element_type": TYPES.get(described.dtype, "unknown"),
        "shape": [int(dimension.size) for dimension in described.shape.dim],
    }


class EagerProfile(object):
    """Calls of a function while the profiler of TensorFlow 2 runs; one per process at a time."""

    def __init__(self, profiler: Any, call: Callable[..., Any], folder: str) -> None:
        self._profiler, self._call = profiler, call
        self._folder = tempfile.mkdtemp(prefix="xplane-", dir=folder)
        self._begins: List[int] = []
        options = profiler.ProfilerOptions(host_tracer_level=_ALL_OPERATORS, python_tracer_level=0)
        try:
            profiler.start(self._folder, options=options)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def run(self, *inputs: Any) -> Any:
        name = "{}{}".format(_MARK, len(self._begins))
        self._begins.append(_monotonic_ns())
        with self._profiler.Trace(name):
            return self._call(*inputs)

    def finish(self) -> Calls:
        """The layers of each call; None for a call that the profiler lost."""
        try:
            self._profiler.stop()
            for plane in _planes(self._folder):
                if plane.name == _HOST_PLANE:
                    return layers_of_plane(plane, self._begins)
            return [None] * len(self._begins)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)


def _planes(folder: str) -> Iterator[Any]:
    xplane_pb2: Any = importlib.import_module("tensorflow.tsl.profiler.protobuf.xplane_pb2")
    for path in glob.glob(os.path.join(folder, "**", "*.xplane.pb"), recursive=True):
        space = xplane_pb2.XSpace()
        with open(path, "rb") as file:
            space.ParseFromString(file.read())
        for plane in space.planes:
            yield plane


def layers_of_plane(plane: Any, begins_ns: Sequence[int]) -> Calls:
    """Layers per call from the host's XPlane; `begins_ns` are the beginnings of the marked calls on our clock.

    The profile's own clock starts anywhere: the mark round each call ties the two.
    """
    names = {key: metadata.name for key, metadata in plane.event_metadata.items()}
    marks: Dict[int, Tuple[int, int]] = {}
    executed: List[Tuple[int, int, str, str]] = []
    for line in plane.lines:
        for event in line.events:
            begin, name = 1000 * line.timestamp_ns + event.offset_ps, names.get(event.metadata_id, "")
            if name.startswith(_MARK):
                marks[int(name[len(_MARK) :])] = (begin, begin + event.duration_ps)
                continue
            found = _EXECUTED.match(name)
            if found and found.group(2) not in _HANDING:
                executed.append((begin, event.duration_ps, found.group(1), found.group(2)))
    executed.sort()
    starts = [event[0] for event in executed]
    calls: Calls = []
    for call, begin_ns in enumerate(begins_ns):
        first, last = (bisect.bisect_left(starts, edge) for edge in marks.get(call, (0, 0)))
        calls.append(_layers(executed[first:last], marks[call][0], begin_ns) if last > first else None)
    return calls


def _layers(executed: Sequence[Tuple[int, int, str, str]], zero_ps: int, begin_ns: int) -> List[Layer]:
    return [
        {
            "name": name,
            "start_ns": begin_ns + (begin - zero_ps) // 1000,
            "duration_ns": duration // 1000,
            "operator": operator,
        }
        for begin, duration, name, operator in executed
    ]
