"""Turns what PyTorch's profiler recorded of some calls into layers per call.

A layer is an operator that no other operator called: `aten::linear`, not the `aten::addmm` inside it. So layers never
overlap. The profiler also records marks, which say which module or node an operator belongs to. Its times are of the
wall clock; every call notes how far that is from the monotonic clock.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

__all__ = ["Event", "Profile", "layers_of_calls"]

Layer = Dict[str, Any]
Call = Tuple[int, int, int]

_MARK = "mlmodelscope:"
_MEMORY = "[memory]"
# the profiler speaks C++
_TYPES = {
    "float": ("float32", 4), "double": ("float64", 8), "c10::Half": ("float16", 2), "c10::BFloat16": ("bfloat16", 2),
    "int": ("int32", 4), "long int": ("int64", 8), "long": ("int64", 8), "short int": ("int16", 2),
    "signed char": ("int8", 1), "unsigned char": ("uint8", 1), "bool": ("bool", 1), "c10::quint8": ("uint8", 1),
    "c10::qint8": ("int8", 1), "c10::complex<float>": ("complex64", 8), "c10::complex<double>": ("complex128", 16),
}  # fmt: skip
# a profile beyond this would take minutes and gigabytes to read; calls behind it count as incomplete
_MOST_CALLS = 10000


class Event(NamedTuple):
    """What the profiler recorded: an operator, a mark, or memory taken (`nbytes` > 0) or given back."""

    name: str
    start_ns: int
    duration_ns: int
    shapes: Sequence[Sequence[int]] = ()
    types: Sequence[str] = ()
    nbytes: int = 0


class Profile(object):
    """Begins when it is made; `run` stands for the model's own call until `finish`."""

    def __init__(self, torch: Any, model: Any) -> None:
        self._calls: List[Call] = []
        self._operators = model.operators()
        profiler = torch.profiler
        self._call, self._end_watching = model.watched(lambda name: profiler.record_function(_MARK + name))
        self._recording = profiler.profile(
            activities=[profiler.ProfilerActivity.CPU], record_shapes=True, profile_memory=True
        )
        self._recording.__enter__()

    def run(self, *tensors: Any) -> Any:
        wall, begin = time.time_ns(), time.monotonic_ns()
        result = self._call(*tensors)
        self._calls.append((begin, time.monotonic_ns(), begin - wall))
        return result

    def finish(self) -> List[Optional[List[Layer]]]:
        self._recording.__exit__(None, None, None)
        self._end_watching()
        found = self._recording.profiler.kineto_results.events() if self._calls else []
        # other threads do parts of an operator's work, and record them a second time
        own = found[0].start_thread_id() if found else 0
        events = [
            Event(e.name(), e.start_ns(), e.duration_ns(), e.shapes(), e.dtypes(), e.nbytes())
            for e in found
            if e.start_thread_id() == own
        ]
        return layers_of_calls(events, self._calls, self._operators)


def layers_of_calls(
    events: Sequence[Event], calls: Sequence[Call], operators: Sequence[Tuple[str, str]]
) -> List[Optional[List[Layer]]]:
    """`calls` are begin, end (monotonic) and what turns the profiler's time into monotonic time. `operators` name the
    layers of a model without marks, if each call did exactly these, in this order."""
    waiting = sorted(events, key=lambda event: (event.start_ns, -event.duration_ns))
    place = 0
    profiles: List[Optional[List[Layer]]] = []
    for number, (begin, end, shift) in enumerate(calls):
        while place < len(waiting) and waiting[place].start_ns + shift < begin:
            place += 1
        first = place
        while place < len(waiting) and waiting[place].start_ns + shift <= end:
            place += 1
        layers = _layers(waiting[first:place], shift, end)
        if [layer["operator"] for layer in layers] == [operator for _, operator in operators]:
            for layer, (name, _) in zip(layers, operators):
                layer.update(name=name, nodes=[name])
        _tell_apart(layers)
        profiles.append(layers if layers and number < _MOST_CALLS else None)
    return profiles


def _layers(events: Sequence[Event], shift: int, call_end: int) -> List[Layer]:
    layers: List[Layer] = []
    marks: List[Tuple[str, int]] = []
    busy_until = 0
    for event in events:
        end = event.start_ns + event.duration_ns
        marks = [mark for mark in marks if mark[1] > event.start_ns]
        if event.name == _MEMORY:
            if layers and event.start_ns <= busy_until:
                layers[-1]["output_bytes"] += event.nbytes
        elif event.name.startswith(_MARK):
            marks.append((event.name[len(_MARK) :], end))
        # what has no name space is the name of a scripted function, whose operators follow
        elif event.start_ns >= busy_until and "::" in event.name:
            layers.append(_layer(event, shift, call_end, marks[-1][0] if marks else None))
            busy_until = end
    for layer in layers:
        # what a layer gave back was not its own: nothing can be said about its output then
        if layer["output_bytes"] <= 0:
            del layer["output_bytes"]
    return layers


def _layer(event: Event, shift: int, call_end: int, owner: Optional[str]) -> Layer:
    tensors = [(_TYPES[kind], list(shape)) for shape, kind in zip(event.shapes, event.types) if kind in _TYPES]
    start = event.start_ns + shift
    short = event.name.rpartition("::")[2]
    return {
        "name": short if owner is None else owner,
        "start_ns": start,
        # the two clocks are read one after the other: a layer may seem to end just behind its call
        "duration_ns": max(0, min(event.duration_ns, call_end - start)),
        "operator": event.name,
        "nodes": [] if owner is None else [owner],
        "inputs": [{"element_type": kind, "shape": shape} for (kind, _), shape in tensors],
        "input_bytes": sum(size * _product(shape) for (_, size), shape in tensors),
        "output_bytes": 0,
    }


def _product(sizes: Sequence[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _tell_apart(layers: Sequence[Layer]) -> None:
    """Several operators of one module get its name and their own; what is still the same gets a number."""
    _rename(layers, lambda layer, _: "{}/{}".format(layer["name"], layer["operator"].rpartition("::")[2]))
    _rename(layers, lambda layer, number: "{}_{}".format(layer["name"], number) if number else layer["name"])


def _rename(layers: Sequence[Layer], rename: Callable[[Layer, int], str]) -> None:
    counts: Dict[str, int] = {}
    for layer in layers:
        counts[layer["name"]] = counts.get(layer["name"], 0) + 1
    seen: Dict[str, int] = {}
    for layer in layers:
        name = layer["name"]
        if counts[name] > 1:
            layer["name"] = rename(layer, seen.get(name, 0))
            seen[name] = seen.get(name, 0) + 1
