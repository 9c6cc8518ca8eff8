"""Turns spans into the time line that both export formats draw: one lane per clock, beginning at zero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlmodelscope.core.span import Clock, Span, Trace
from mlmodelscope.trace.table import CLOCKS

__all__ = ["Lane", "lanes", "walk"]


@dataclass(frozen=True, slots=True)
class Lane:
    """The spans of one clock. Times of different clocks are never drawn on one lane; `origin_ns` is its first time."""

    number: int
    name: str
    clock: Clock
    origin_ns: int
    spans: tuple[Span, ...]


def lanes(trace: Trace, title: str) -> list[Lane]:
    found: list[Lane] = []
    for clock in CLOCKS:
        spans = tuple(span for span in trace.spans if span.clock == clock)
        if spans:
            name = title if clock == "monotonic" else f"{title} ({clock} time)"
            found.append(Lane(len(found) + 1, name, clock, min(span.start_ns for span in spans), spans))
    return found


def walk(lane: Lane) -> Iterator[tuple[bool, Span]]:
    """Begin (True) and end of every span in the order of time, each inside its parent."""
    waiting: list[Span] = []
    for span in sorted(lane.spans, key=lambda item: (item.start_ns, -item.end_ns, item.span_id)):
        while waiting and waiting[-1].end_ns <= span.start_ns and not _encloses(waiting[-1], span):
            yield False, waiting.pop()
        waiting.append(span)
        yield True, span
    while waiting:
        yield False, waiting.pop()


def _encloses(outer: Span, inner: Span) -> bool:
    """Whether a span without length lies at the very end of its parent."""
    return inner.parent_id == outer.span_id
