"""Turns the raw numbers of worker launches into estimates, each with an interval that says how far to trust it.

The unit of repetition is the launch: identical launches differ by more than the spread inside one, so an interval over
pooled samples would be far too narrow. With a single launch the interval describes that launch alone; it is labelled
`single_launch` and never supports a verdict. Proportions (accuracy) repeat over samples and are labelled `samples`.
Every function is pure. `docs/concepts/statistics.md` explains the numbers to those who read them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from mlmodelscope.core.errors import StatisticError, UsageError
from mlmodelscope.core.estimate import Basis, Estimate, Interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _Values = Sequence[float] | NDArray[np.number]
    _Sorted = NDArray[np.float64]

__all__ = [
    "PairedDifference",
    "Verdict",
    "clopper_pearson",
    "mcnemar_exact",
    "mean_of",
    "median_over_launches",
    "minimum_queries",
    "normal_quantile",
    "paired_difference",
    "percentile_over_launches",
    "proportion",
    "ratio_over_launches",
    "t_quantile",
    "trimmed_mean_over_launches",
    "verdict",
]

Verdict = Literal["agrees", "differs", "cannot tell"]

_CONFIDENCE = 0.95
_TRIM = Fraction(1, 5)
# LoadGen's early stopping: with n samples, so few beyond the percentile would be luck at most this often.
_ALLOWED_OVERSHOOTS = 1
_EARLY_STOPPING_RISK = 0.01


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Accuracy of b minus accuracy of a on the same samples, and the samples that only one of them got right."""

    difference: Estimate
    only_a: int
    only_b: int
    p_value: float


def mean_of(values: _Values) -> Estimate:
    """The mean of one number per launch (a throughput, say) with Student's t interval over the launches."""
    (checked,) = _sorted_launches([values])
    return _over_launches(checked.tolist(), n=len(checked))


def median_over_launches(launches: Sequence[_Values]) -> Estimate:
    """The mean of the launches' medians with Student's t interval over launches.

    One launch: its median, between the order statistics that hold it with at least 95 % confidence.
    """
    ordered = _sorted_launches(launches)
    n = sum(map(len, ordered))
    if len(ordered) > 1:
        return _over_launches([_median(launch) for launch in ordered], n)
    return Estimate(_median(ordered[0]), _order_interval(ordered[0], Fraction(1, 2)), n, 1)


def trimmed_mean_over_launches(launches: Sequence[_Values]) -> Estimate:
    """The mean of the launches' 20 % trimmed means (a fifth dropped at either end, rounded down), with the t interval.

    One launch: Tukey and McLaughlin's interval, a t interval from the winsorised deviation.
    """
    ordered = _sorted_launches(launches)
    n = sum(map(len, ordered))
    if len(ordered) > 1:
        return _over_launches([_trimmed_mean(launch) for launch in ordered], n)
    return Estimate(_trimmed_mean(ordered[0]), _trimmed_interval(ordered[0]), n, 1)


def percentile_over_launches(launches: Sequence[_Values], p: float) -> Estimate:
    """The nearest-rank percentile of all samples: the smallest that a share `p` of them (0.99 for p99) does not exceed.

    No interpolation: the value is one that was measured. The interval comes from leaving out one launch at a time (the
    jackknife, t with launches - 1 degrees of freedom); with one launch, from order statistics.
    Raises StatisticError if there are fewer samples than `minimum_queries(p)`.
    """
    import numpy as np

    ordered = _sorted_launches(launches)
    pooled, count = np.sort(np.concatenate(ordered)), len(ordered)
    if len(pooled) < (needed := minimum_queries(p)):
        raise StatisticError(
            f"{len(pooled)} samples cannot support p{float(_share(p) * 100):g}: it takes at least {needed}",
            hint=f"run at least {needed} queries, or ask for a percentile nearer to the median",
            percentile=p,
            samples=len(pooled),
            needed=needed,
        )
    share = _share(p)
    value = _nearest_rank(pooled, share)
    if count == 1:
        return Estimate(value, _order_interval(pooled, share), len(pooled), 1)
    left = [np.sort(np.concatenate([*ordered[:i], *ordered[i + 1 :]])) for i in range(count)]
    without = np.array([_nearest_rank(rest, share) for rest in left])
    error = math.sqrt((count - 1) / count * float(np.sum((without - without.mean()) ** 2)))
    return Estimate(value, _cut(_t_interval(value, error, count - 1), pooled[0]), len(pooled), count)


@lru_cache(maxsize=256)
def minimum_queries(p: float) -> int:
    """The fewest samples that support percentile `p` (0.99 for p99): LoadGen's minimum with one overshoot allowed.

    The smallest n with P(Binomial(n, 1-p) <= 1) <= 1 %: p50 11, p90 64, p99 662. A percentile below the median needs as
    many as its mirror image above.
    """
    tail = float(min(_share(p), 1 - _share(p)))
    low, high = _ALLOWED_OVERSHOOTS, _ALLOWED_OVERSHOOTS + 1
    while _chance_of_few(high, tail) > _EARLY_STOPPING_RISK:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _chance_of_few(middle, tail) > _EARLY_STOPPING_RISK else (low, middle)
    return high


def ratio_over_launches(a: Sequence[_Values], b: Sequence[_Values]) -> Estimate:
    """How many times larger b is than a: the ratio of the geometric means of their launches' medians.

    The interval is Welch's t interval of the difference of the logarithms. `launches` is the smaller of the two counts.
    One launch on each side: the quotient of the intervals within them, worst ends together. One against several: none.
    """
    ordered = [_sorted_launches(side) for side in (a, b)]
    medians = [[_median(launch) for launch in side] for side in ordered]
    if min(map(min, medians)) <= 0:
        raise StatisticError("a ratio needs positive values", hint="check the measurements: a latency is above zero")
    logs = [[math.log(median) for median in side] for side in medians]
    difference = _mean(logs[1]) - _mean(logs[0])
    counts = [len(side) for side in ordered]
    interval = None
    if min(counts) > 1:
        interval = _welch_interval(difference, logs)
    elif max(counts) == 1:
        within = [_order_interval(side[0], Fraction(1, 2)) for side in ordered]
        interval = _quotient(within[1], within[0])
    n = sum(len(launch) for side in ordered for launch in side)
    return Estimate(math.exp(difference), interval, n, min(counts))


def verdict(estimate: Estimate, margin: float = 0.05) -> Verdict:
    """Whether a ratio is 1 within the margin: its whole interval inside 1 ± margin agrees, all of it outside differs.

    An interval that is not over launches, or none at all, cannot tell.
    """
    if not 0 < margin < 1:
        raise UsageError(f"a margin of {margin} is not between 0 and 1", hint="write 0.05 for 5 %", margin=margin)
    interval = estimate.interval
    if interval is None or interval.basis != "launches":
        return "cannot tell"
    if 1 - margin <= interval.low and interval.high <= 1 + margin:
        return "agrees"
    return "differs" if interval.high < 1 - margin or interval.low > 1 + margin else "cannot tell"


def proportion(successes: int, n: int) -> Estimate:
    """The share of successes with Wilson's interval over samples."""
    _check_counts(successes, n)
    z = normal_quantile((1 + _CONFIDENCE) / 2)
    value = successes / n
    centre = (value + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(value * (1 - value) / n + z * z / (4 * n * n))
    # at 0 and at n the formula ends on the value itself, but for rounding
    low, high = min(value, max(0.0, centre - half)), max(value, min(1.0, centre + half))
    return Estimate(value, Interval(low, high, _CONFIDENCE, "samples"), n, 1)


def clopper_pearson(successes: int, n: int) -> Interval:
    """The exact binomial interval: never too narrow, usually wider than needed."""
    _check_counts(successes, n)
    risk = (1 - _CONFIDENCE) / 2
    low = 0.0 if successes == 0 else _beta_quantile(risk, successes, n - successes + 1)
    high = 1.0 if successes == n else _beta_quantile(1 - risk, successes + 1, n - successes)
    return Interval(low, high, _CONFIDENCE, "samples")


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """The two-sided p-value of a split at least this uneven, if each disagreement were a fair coin."""
    _check_counts(min(only_a, only_b), only_a + only_b, least=0)
    return min(1.0, 2 * _binomial_cdf(min(only_a, only_b), only_a + only_b, 0.5))


def paired_difference(correct_a: Sequence[bool], correct_b: Sequence[bool]) -> PairedDifference:
    """Accuracy of b minus accuracy of a over the same samples in the same order, with the exact McNemar p-value.

    The interval is Agresti and Min's: Wald's for paired proportions after half a sample is added to each of four cells.
    """
    n = len(correct_a)
    if n != len(correct_b):
        raise UsageError(
            f"{n} and {len(correct_b)} answers are not pairs", hint="compare the samples that both have answered"
        )
    _check_counts(0, n)
    only_a = sum(bool(a) and not b for a, b in zip(correct_a, correct_b, strict=True))
    only_b = sum(bool(b) and not a for a, b in zip(correct_a, correct_b, strict=True))
    value, more = (only_b - only_a) / n, n + 2
    centre = (only_b - only_a) / more
    error = math.sqrt(only_a + only_b + 1 - (only_b - only_a) ** 2 / more) / more
    half = normal_quantile((1 + _CONFIDENCE) / 2) * error
    interval = Interval(max(-1.0, centre - half), min(1.0, centre + half), _CONFIDENCE, "samples")
    return PairedDifference(Estimate(value, interval, n, 1), only_a, only_b, mcnemar_exact(only_a, only_b))


def normal_quantile(p: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(float(_share(p)))


@lru_cache(maxsize=1024)
def t_quantile(p: float, degrees: float) -> float:
    """Student's t: the value that a share `p` lies below. `degrees` of freedom above 0, whole or not."""
    _share(p)
    if not degrees > 0:
        raise UsageError(f"{degrees} degrees of freedom are not above 0", degrees=degrees)
    if math.isinf(degrees):
        return normal_quantile(p)
    # t² / (degrees + t²) has the beta distribution with 1/2 and degrees/2
    share = _beta_quantile(abs(2 * p - 1), 0.5, degrees / 2)
    return math.copysign(math.sqrt(degrees * share / (1 - share)), p - 0.5)


def _over_launches(values: Sequence[float], n: int) -> Estimate:
    value, count = _mean(values), len(values)
    if count == 1:
        return Estimate(value, None, n, 1)
    interval = _t_interval(value, math.sqrt(_variance(values) / count), count - 1)
    return Estimate(value, _cut(interval, min(values)), n, count)


def _t_interval(value: float, error: float, degrees: float, basis: Basis = "launches") -> Interval:
    half = t_quantile((1 + _CONFIDENCE) / 2, degrees) * error
    return Interval(value - half, value + half, _CONFIDENCE, basis)


def _cut(interval: Interval, smallest: float) -> Interval:
    """What is never negative (a time, a size, a rate) has no interval below zero either."""
    if smallest < 0 or interval.low >= 0:
        return interval
    return Interval(0.0, interval.high, interval.confidence, interval.basis)


def _welch_interval(difference: float, logs: Sequence[Sequence[float]]) -> Interval:
    """The interval of the ratio whose logarithm is `difference`."""
    squares = [_variance(side) / len(side) for side in logs]
    total = sum(squares)
    if total == 0:
        return Interval(math.exp(difference), math.exp(difference), _CONFIDENCE, "launches")
    # shares, not squares of squares, which underflow for launches that hardly differ
    degrees = 1 / sum((square / total) ** 2 / (len(side) - 1) for square, side in zip(squares, logs, strict=True))
    inside = _t_interval(difference, math.sqrt(total), degrees)
    return Interval(math.exp(inside.low), math.exp(inside.high), _CONFIDENCE, "launches")


def _quotient(top: Interval | None, bottom: Interval | None) -> Interval | None:
    if top is None or bottom is None or bottom.low <= 0:
        return None
    return Interval(top.low / bottom.high, top.high / bottom.low, _CONFIDENCE, "single_launch")


def _order_interval(ordered: _Sorted, share: Fraction) -> Interval | None:
    """Between two samples that hold the percentile with at least the confidence; None if there are too few samples."""
    n, p, risk = len(ordered), float(share), (1 - _CONFIDENCE) / 2
    below = _count_at(n, p, risk)
    above = n - _count_at(n, 1 - p, risk) + 1
    if below < 1 or above > n:
        return None
    return Interval(float(ordered[below - 1]), float(ordered[above - 1]), _CONFIDENCE, "single_launch")


def _count_at(n: int, p: float, risk: float) -> int:
    """The largest rank r with P(Binomial(n, p) < r) <= risk; 0 if there is none."""
    low, high = 0, n + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _binomial_cdf(middle - 1, n, p) <= risk else (low, middle)
    return low


def _trimmed_interval(ordered: _Sorted) -> Interval | None:
    import numpy as np

    n, cut = len(ordered), int(_TRIM * len(ordered))
    kept = n - 2 * cut
    if kept < 2:
        return None
    winsorised = np.clip(ordered, ordered[cut], ordered[n - cut - 1])
    error = math.sqrt(_variance(winsorised.tolist())) / (float(1 - 2 * _TRIM) * math.sqrt(n))
    return _cut(_t_interval(_trimmed_mean(ordered), error, kept - 1, "single_launch"), ordered[0])


def _trimmed_mean(ordered: _Sorted) -> float:
    cut = int(_TRIM * len(ordered))
    return _mean(ordered[cut : len(ordered) - cut].tolist())


def _median(ordered: _Sorted) -> float:
    middle = len(ordered) // 2
    return float(ordered[middle]) if len(ordered) % 2 else float(ordered[middle - 1] + ordered[middle]) / 2


def _nearest_rank(ordered: _Sorted, share: Fraction) -> float:
    return float(ordered[math.ceil(share * len(ordered)) - 1])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _sorted_launches(launches: Sequence[_Values]) -> list[_Sorted]:
    import numpy as np

    ordered = [np.sort(np.asarray(launch, dtype=np.float64)) for launch in launches]
    if not ordered or not all(map(len, ordered)):
        raise StatisticError("there are no samples to summarise", hint="every launch needs at least one measured query")
    if not all(np.isfinite(launch).all() for launch in ordered):
        raise StatisticError("a sample is not a finite number", hint="leave out failed queries before summarising")
    return ordered


def _share(p: float) -> Fraction:
    """Exactly the decimal fraction that was written: 0.07 of 100 is the 7th sample, not the 8th."""
    if not 0 < p < 1:
        raise UsageError(f"a share of {p} is not between 0 and 1", hint="write 0.99 for p99", share=p)
    return Fraction(repr(float(p)))


def _check_counts(successes: int, n: int, least: int = 1) -> None:
    if n < least or not 0 <= successes <= n:
        raise StatisticError(f"{successes} of {n} is not a share of samples", hint="count at least one sample")


def _chance_of_few(n: int, tail: float) -> float:
    """P(Binomial(n, tail) <= allowed overshoots), without the loss of digits that large n brings elsewhere."""
    few = range(_ALLOWED_OVERSHOOTS + 1)
    return sum(math.comb(n, count) * tail**count * math.exp((n - count) * math.log1p(-tail)) for count in few)


def _binomial_cdf(count: int, n: int, p: float) -> float:
    if count < 0 or count >= n:
        return float(count >= n)
    return _beta_cdf(1 - p, n - count, count + 1)


def _beta_quantile(p: float, a: float, b: float) -> float:
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _beta_cdf(middle, a, b) < p else (low, middle)
    return low


def _beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    # the fraction converges fast below the mean only; above it, the mirror image does
    if x <= (a + 1) / (a + b + 2):
        return math.exp(logarithm) / (a * _beta_fraction(x, a, b))
    return 1 - math.exp(logarithm) / (b * _beta_fraction(1 - x, b, a))


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    tiny = 1e-300
    value, top, bottom = 1.0, 1.0, 0.0
    for step in range(1, 100_000):
        m, is_odd = divmod(step, 2)
        if is_odd:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        bottom = 1 / ((1 + term * bottom) or tiny)
        top = (1 + term / top) or tiny
        value *= top * bottom
        if abs(top * bottom - 1) < 1e-15:
            break
    return value
