"""Turns time stamps and layer profiles of traced queries into rows of spans, a column each, after the run."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from mlmodelscope.core.span import Clock, TraceLevel

__all__ = ["CLOCKS", "QUERY_PARTS", "SpanTable", "add_query"]

CLOCKS: tuple[Clock, ...] = get_args(Clock)

# what lies between two neighbouring time stamps of a traced query, and how deep it lies
QUERY_PARTS = (
    ("read", TraceLevel.APPLICATION),
    ("decode", TraceLevel.APPLICATION),
    ("transform", TraceLevel.APPLICATION),
    ("predict", TraceLevel.MODEL),
    ("postprocess", TraceLevel.APPLICATION),
)

Layer = Mapping[str, Any]


class SpanTable:
    """Spans as columns; parents before their children. Spans deeper than `level` are not taken."""

    def __init__(self, level: TraceLevel) -> None:
        self.level = level
        self.names, self.attributes, self.parents = array("i"), array("i"), array("i")
        self.levels, self.clocks = array("B"), array("B")
        self.starts, self.ends = array("q"), array("q")
        # where a query begins: a file that must be cut is cut there
        self.seams: list[int] = []
        self._strings: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def strings(self) -> list[str]:
        """Every name and every set of attributes (as JSON) once; `names` and `attributes` are places in this list."""
        return list(self._strings)

    def add(
        self,
        name: str,
        level: TraceLevel,
        clock: Clock,
        start_ns: int,
        end_ns: int,
        parent: int = -1,
        attributes: Mapping[str, Any] | None = None,
    ) -> int:
        """The place of the new span, or that of `parent` where the span lies too deep."""
        if level > self.level:
            return parent
        self.names.append(self._place(name))
        self.attributes.append(self._place(json.dumps(attributes or {}, separators=(",", ":"))))
        self.parents.append(parent)
        self.levels.append(level)
        self.clocks.append(CLOCKS.index(clock))
        self.starts.append(start_ns)
        self.ends.append(max(start_ns, end_ns))
        return len(self) - 1

    def _place(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))


def add_query(
    table: SpanTable,
    stamps: Sequence[int],
    clock: Clock,
    parent: int,
    attributes: Mapping[str, Any],
    layers: Sequence[Layer] = (),
) -> None:
    """One query from its six time stamps (before reading, and after each of QUERY_PARTS) and the layers it ran.

    Reading the samples is a span of its own before the query: it lies outside every timed region.
    """
    table.seams.append(len(table))
    (read, read_level), *parts = QUERY_PARTS
    table.add(read, read_level, clock, stamps[0], stamps[1], parent)
    query = table.add("query", TraceLevel.APPLICATION, clock, stamps[1], stamps[-1], parent, attributes)
    for place, (name, level) in enumerate(parts, 1):
        span = table.add(name, level, clock, stamps[place], stamps[place + 1], query)
        if name == "predict" and layers:
            _add_layers(table, layers, clock, span, (stamps[place], stamps[place + 1]))


def _add_layers(table: SpanTable, layers: Sequence[Layer], clock: Clock, predict: int, bounds: tuple[int, int]) -> None:
    """Layers inside `predict`; one that encloses others (a loop, a branch) is their parent.

    A framework's clock is coarser than ours, so a layer may seem to begin a microsecond before its `predict`, or to end
    after it: it is moved inside.
    """
    open_spans: list[tuple[int, int]] = []
    for layer in sorted(layers, key=lambda row: (row["start_ns"], -row["duration_ns"])):
        start = min(max(int(layer["start_ns"]), bounds[0]), bounds[1])
        end = min(max(int(layer["start_ns"]) + int(layer["duration_ns"]), start), bounds[1])
        while open_spans and not (start < open_spans[-1][1] and end <= open_spans[-1][1]):
            open_spans.pop()
        parent = open_spans[-1][0] if open_spans else predict
        facts = {name: value for name, value in layer.items() if name not in ("name", "start_ns", "duration_ns")}
        place = table.add(str(layer["name"]), TraceLevel.FRAMEWORK, clock, start, end, parent, facts)
        open_spans.append((place, end))
