"""Turns an old record and its repetition into a verdict on accuracy and on speed; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlmodelscope.analyse.comparison import SIGNIFICANCE, Comparison, Evidence, compare
from mlmodelscope.analyse.statistics import verdict

__all__ = ["MARGIN", "Reproduction", "judge"]

MARGIN = 0.05
SpeedVerdict = Literal["agrees", "differs", "cannot tell"]
AccuracyVerdict = Literal["same answers", "agrees", "differs", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Reproduction:
    """`speed`: agrees if the interval of the ratio lies within 5 %, differs if outside, else cannot tell.

    `accuracy`: the same answers for every sample. Where some flipped: differs if the exact McNemar test says so at 5 %,
    agrees if the interval of the paired difference lies within 5 points, else cannot tell.
    """

    comparison: Comparison
    speed: SpeedVerdict
    accuracy: AccuracyVerdict


def judge(original: Evidence, repeated: Evidence) -> Reproduction:
    comparison = compare(original, repeated)
    ratio = comparison.latency_ratio
    return Reproduction(
        comparison=comparison,
        speed=verdict(ratio, MARGIN) if ratio is not None else "cannot tell",
        accuracy=_accuracy(comparison),
    )


def _accuracy(comparison: Comparison) -> AccuracyVerdict:
    if comparison.common_samples == 0:
        return "cannot tell"
    if comparison.flipped == 0:
        return "same answers"
    if comparison.top1 is None or comparison.top1.p_value < SIGNIFICANCE:
        return "differs"
    interval = comparison.top1.difference.interval
    is_close = interval is not None and interval.low >= -MARGIN and interval.high <= MARGIN
    return "agrees" if is_close else "cannot tell"
