"""Spans: what happened, at which level, by which clock."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Literal

from pydantic import Field

from mlmodelscope.core.value import Frozen

__all__ = ["Clock", "Span", "TraceLevel"]

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
