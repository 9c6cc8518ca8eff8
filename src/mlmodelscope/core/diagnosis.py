"""What is known about a machine as a place to measure on: its facts, its noise, and what works there."""

from __future__ import annotations

from typing import Literal

from mlmodelscope.core.system import Noise, SystemFacts
from mlmodelscope.core.value import Frozen

__all__ = ["Check", "ClockFacts", "Diagnosis", "Steadiness", "Verdict"]

Verdict = Literal["good", "note", "warning", "bad"]


class Check(Frozen):
    """One thing that was looked at. `note`: worth knowing; `warning`: results suffer; `bad`: something cannot work."""

    name: str
    verdict: Verdict
    message: str
    hint: str | None = None


class ClockFacts(Frozen):
    """The monotonic clock as it was seen: the smallest step between two readings, and what a reading costs."""

    step_ns: int
    reading_ns: float
    source: str | None = None


class Steadiness(Frozen):
    """How equal pieces of the same work, alone on one processor, took: the median, and the spread between the tenth
    and the ninetieth of a hundred as a share of it.
    """

    pieces: int
    median_ns: int
    spread_share: float


class Diagnosis(Frozen):
    """The answer of `mlmodelscope doctor`. `noise` is of a window in which we did little ourselves."""

    version: str
    python: str
    home: str
    system: SystemFacts
    noise: Noise
    clock: ClockFacts
    steadiness: Steadiness
    checks: tuple[Check, ...]

    @property
    def is_usable(self) -> bool:
        return all(check.verdict != "bad" for check in self.checks)
