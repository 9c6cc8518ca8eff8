"""Turns XLA's trace of some calls into layers per call: the operations of the compiled program, on our clock."""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import glob
import importlib
import os
import re
import shutil
import time
from typing import Any, Dict, List, Optional, Sequence, Tuple

from mlmodelscope.predictors.port import PredictorFault, element_type

__all__ = ["Profile", "layers_of", "read_program"]

Layer = Dict[str, Any]

_TYPES = {
    "pred": "bool", "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
}  # fmt: skip
_LINE = re.compile(r"^\s*(?:ROOT )?%(?P<name>[\w.\-]+) = (?P<result>\(.*?\)|\S+) (?P<operator>[\w\-]+)\((?P<given>.*)$")
_TENSOR = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]")
_ORIGIN = re.compile(r'op_name="([^"]+)"')
_NAME = re.compile(r"%([\w.\-]+)")


class Profile(object):
    """One trace. `start`, then the calls of what `around` gives back, then `finish`."""

    def __init__(self, jax: Any, folder: str) -> None:
        self._profiler = importlib.import_module("jax.profiler")
        if not hasattr(self._profiler, "ProfileData"):
            raise PredictorFault("predictor_failed", f"jax {jax.__version__} cannot read its own traces: 0.6 can")
        self._folder = os.path.join(folder, "jax-trace")
        self._calls: List[Tuple[int, int]] = []
        self._programs: List[str] = []
        self._shift_ns = 0

    def start(self) -> None:
        options = self._profiler.ProfileOptions()
        # the events of Python functions would only slow the calls down
        options.python_tracer_level = 0
        self._profiler.start_trace(self._folder, profiler_options=options)
        # the trace is in wall-clock time
        self._shift_ns = time.monotonic_ns() - time.time_ns()

    def around(self, compiled: Any) -> Any:
        """The compiled function, with a note of when each call of it began and ended."""
        text = str(compiled.as_text())

        def run(*values: Any) -> Any:
            begin = time.monotonic_ns()
            results = compiled(*values)
            for result in results:
                result.block_until_ready()
            self._calls.append((begin, time.monotonic_ns()))
            self._programs.append(text)
            return results

        return run

    def finish(self, programs: Sequence[str]) -> List[Optional[List[Layer]]]:
        try:
            self._profiler.stop_trace()
            files = glob.glob(os.path.join(self._folder, "**", "*.xplane.pb"), recursive=True)
            if not files:
                return [None for _ in self._calls]
            events = _read_events(self._profiler.ProfileData.from_file(files[0]), self._shift_ns)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        # programs of several shapes have operations of the same names
        known = {text: read_program(text) for text in programs}
        return layers_of(events, self._calls, [known[text] for text in self._programs])


def _read_events(data: Any, shift_ns: int) -> List[Tuple[int, int, str]]:
    """Start, duration and operation of everything that the trace says of compiled programs."""
    zero, found = 0, []
    for plane in data.planes:
        if plane.name == "Task Environment":
            zero = int(dict(plane.stats).get("profile_start_time", 0))
        for line in plane.lines:
            for event in line.events:
                operation = dict(event.stats).get("hlo_op")
                if operation:
                    found.append((int(event.start_ns), int(event.duration_ns), str(operation)))
    return sorted((start + zero + shift_ns, duration, name) for start, duration, name in found)


def layers_of(
    events: Sequence[Tuple[int, int, str]], calls: Sequence[Tuple[int, int]], known: Sequence[Dict[str, Layer]]
) -> List[Optional[List[Layer]]]:
    """The events that lie in each call, with what the call's own program says of them; None for a call without any."""
    answer: List[Optional[List[Layer]]] = []
    place = 0
    for (begin, end), program in zip(calls, known):
        layers: List[Layer] = []
        while place < len(events) and events[place][0] <= end:
            start, duration, name = events[place]
            place += 1
            if start >= begin:
                # the two clocks are read one after the other: the last event may seem to end a little late
                layer = {"name": name, "start_ns": start, "duration_ns": min(duration, end - start)}
                layers.append(dict(program.get(name, {}), **layer))
        answer.append(layers or None)
    return answer


def read_program(text: str) -> Dict[str, Layer]:
    """By operation of a compiled program: operator, the model's own operations behind it, types and shapes."""
    results: Dict[str, List[Dict[str, Any]]] = {}
    found: Dict[str, Layer] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        name, given = match.group("name"), match.group("given")
        results[name] = _tensors(match.group("result"))
        operands = _NAME.findall(given.partition(")")[0])
        origin = _ORIGIN.search(given)
        found[name] = {
            "operator": match.group("operator"),
            "provider": "XLA CPU",
            "nodes": [origin.group(1)] if origin else [],
            "inputs": [tensor for operand in operands for tensor in results.get(operand, [])],
            "outputs": results[name],
        }
    return found


def _tensors(described: str) -> List[Dict[str, Any]]:
    return [
        {
            "element_type": _TYPES.get(kind, element_type(kind)),
            "shape": [int(size) for size in sizes.split(",") if size],
        }
        for kind, sizes in _TENSOR.findall(described)
    ]
