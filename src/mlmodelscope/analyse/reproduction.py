"""Turns an old record and its repetition into a verdict on accuracy and on speed; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mlmodelscope.analyse.comparison import Comparison, Evidence, compare
from mlmodelscope.analyse.statistics import verdict

__all__ = ["MARGIN", "Reproduction", "judge"]

MARGIN = 0.05
SpeedVerdict = Literal["agrees", "differs", "cannot tell"]
AccuracyVerdict = Literal["same answers", "agrees", "differs", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Reproduction:
    """`speed`: agrees if the interval of the ratio lies within 5 %, differs if outside, else cannot tell.

    `accuracy`: the same answers for every sample; or some flipped, judged by the exact McNemar test at 5 %.
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
    if comparison.top1 is None:
        return "differs"
    return "differs" if comparison.top1.p_value < MARGIN else "agrees"
