"""Turns throughput over batch sizes into the gain of each step and the optimal batch size; pure.

The rule (Li et al., XSP): the optimal batch size is the last one that a doubling still reached with more than 5 % of
added throughput. For sizes that do not double, a step from b to c must add more than 5 % per doubling, so more than
1.05 ** log2(c / b) - 1 in all. A size is compared with the best before it, not with its neighbour: a dip that the next
size makes good adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.estimate import Estimate

__all__ = ["LEAST_GAIN", "Sweep", "SweepPoint", "sweep_of"]

LEAST_GAIN = 0.05

Certainty = Literal["certain", "uncertain"]


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One batch size. `gain` is the throughput that the step from the size before it added: 0.4 for 40 %."""

    batch_size: int
    throughput: Estimate
    gain: float | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """Points by batch size. `optimal` is None without any.

    `certainty`: whether every decision of the rule holds for all values inside the intervals of throughput; without
    intervals over launches it does not. `is_open`: the largest size was the best, so a larger one may be better still.
    """

    points: tuple[SweepPoint, ...]
    optimal: int | None
    certainty: Certainty
    is_open: bool


def sweep_of(throughputs: Iterable[tuple[int, Estimate]]) -> Sweep:
    """Batch sizes with their throughput, in any order. UsageError: one size twice, or a size or a value not above 0."""
    ordered = sorted(throughputs, key=lambda item: item[0])
    _check(ordered)
    if not ordered:
        return Sweep((), None, "uncertain", is_open=False)
    best, certainty = ordered[0], _certainty(ordered)
    for candidate in ordered[1:]:
        if candidate[1].value > best[1].value * _least_factor(best[0], candidate[0]):
            best = candidate
    gains = [None, *(_gain(earlier, later) for earlier, later in pairwise(ordered))]
    points = tuple(SweepPoint(size, value, gain) for (size, value), gain in zip(ordered, gains, strict=True))
    return Sweep(points, best[0], certainty, is_open=best[0] == ordered[-1][0])


def _check(ordered: Sequence[tuple[int, Estimate]]) -> None:
    sizes = [size for size, _ in ordered]
    if len(set(sizes)) < len(sizes):
        raise UsageError("a sweep has every batch size once", hint="leave out the second", batch_sizes=sizes)
    if any(size < 1 or value.value <= 0 for size, value in ordered):
        raise UsageError("batch sizes and throughputs are above 0", batch_sizes=sizes)


def _least_factor(smaller: int, larger: int) -> float:
    return math.pow(1 + LEAST_GAIN, math.log2(larger / smaller))


def _gain(earlier: tuple[int, Estimate], later: tuple[int, Estimate]) -> float:
    return later[1].value / earlier[1].value - 1


def _certainty(ordered: Sequence[tuple[int, Estimate]]) -> Certainty:
    """Runs the rule over the bounds: a step is certain if its worst and its best quotient decide alike."""
    best = ordered[0]
    for candidate in ordered[1:]:
        least = _least_factor(best[0], candidate[0])
        bounds = _quotient_bounds(best[1], candidate[1])
        if bounds is None or bounds[0] <= least < bounds[1]:
            return "uncertain"
        if bounds[0] > least:
            best = candidate
    return "certain"


def _quotient_bounds(bottom: Estimate, top: Estimate) -> tuple[float, float] | None:
    if bottom.interval is None or top.interval is None or bottom.interval.low <= 0:
        return None
    if {bottom.interval.basis, top.interval.basis} != {"launches"}:
        return None
    return top.interval.low / bottom.interval.high, top.interval.high / bottom.interval.low
