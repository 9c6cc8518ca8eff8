"""Spans: what happened, at which level, by which clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal

from pydantic import Field

from mlmodelscope.core.value import Frozen

__all__ = ["Clock", "Span", "Trace", "TraceLevel"]

Clock = Literal["monotonic", "simulated"]


class TraceLevel(IntEnum):
    """The papers' levels; a span's level says how deep in the stack it lies."""

    NONE = 0
    APPLICATION = 1
    MODEL = 2
    FRAMEWORK = 3
    ML_LIBRARY = 4
    SYSTEM_LIBRARY = 5
    HARDWARE = 6
    FULL = 7


class Span(Frozen):
    """One interval of work. Times are nanoseconds of `clock`; simulated time is never compared with measured time."""

    trace_id: str
    span_id: int
    parent_id: int | None
    name: str
    level: TraceLevel
    clock: Clock
    start_ns: int
    end_ns: int
    attributes: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trace:
    """The spans of one launch, parents before their children; `span_id` is the place in `spans`.

    `started_at` (UTC, ISO 8601) is the wall-clock time of `anchor_ns` of the monotonic clock: the anchor of the run.
    `level` is the deepest level that was recorded, `left_out` the number of spans that the limit of the file cost.
    """

    trace_id: str
    level: TraceLevel
    started_at: str
    anchor_ns: int
    spans: tuple[Span, ...]
    left_out: int = 0
