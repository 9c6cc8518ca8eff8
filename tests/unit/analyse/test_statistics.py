"""Known values, laws and coverage of the statistics."""

from __future__ import annotations

import math
import re
from dataclasses import astuple
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist, mean, median, stdev

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mlmodelscope.analyse.statistics import (
    clopper_pearson,
    mcnemar_exact,
    mean_of,
    median_over_launches,
    minimum_queries,
    normal_quantile,
    paired_difference,
    percentile_over_launches,
    proportion,
    ratio_over_launches,
    t_quantile,
    trimmed_mean_over_launches,
    verdict,
)
from mlmodelscope.core.errors import StatisticError, UsageError
from mlmodelscope.core.estimate import Estimate, Interval

_values = st.floats(1e-3, 1e9)
_launches = st.lists(st.lists(_values, min_size=1, max_size=12), min_size=1, max_size=6)
_several = st.lists(st.lists(_values, min_size=1, max_size=12), min_size=2, max_size=6)
_pools = st.lists(st.lists(_values, min_size=30, max_size=40), min_size=1, max_size=4)
_OVER_LAUNCHES = [median_over_launches, trimmed_mean_over_launches]


def _interval(estimate: Estimate) -> Interval:
    assert estimate.interval is not None
    return estimate.interval


def _width(estimate: Estimate) -> float:
    return _interval(estimate).high - _interval(estimate).low


def _holds(interval: Interval, value: float) -> bool:
    return interval.low <= value <= interval.high


# quantiles: the values of the printed tables


@pytest.mark.parametrize(
    "p, degrees, expected",
    [
        (0.975, 1, 12.706204736),
        (0.975, 2, 4.302652730),
        (0.975, 3, 3.182446305),
        (0.975, 4, 2.776445105),
        (0.975, 5, 2.570581836),
        (0.975, 9, 2.262157163),
        (0.975, 30, 2.042272456),
        (0.975, 1000, 1.962339081),
        (0.95, 10, 1.812461123),
        (0.995, 7, 3.499483297),
        (0.9995, 1, 636.619248769),
        (0.75, 1, 1.0),
    ],
)
def test_t_quantiles_of_the_tables(p: float, degrees: float, expected: float):
    assert t_quantile(p, degrees) == pytest.approx(expected, abs=1e-6)
    assert t_quantile(1 - p, degrees) == pytest.approx(-expected, abs=1e-6)


@given(st.floats(0.001, 0.999))
def test_t_quantile_with_two_degrees_has_a_closed_form(p: float):
    expected = (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p)))
    assert t_quantile(p, 2) == pytest.approx(expected, rel=1e-8, abs=1e-9)


def test_t_becomes_normal():
    assert t_quantile(0.975, math.inf) == normal_quantile(0.975) == pytest.approx(1.959963985)
    assert t_quantile(0.975, 1e7) == pytest.approx(normal_quantile(0.975), abs=1e-6)
    assert t_quantile(0.5, 3) == 0


@given(st.floats(0.6, 0.999), st.floats(1, 200), st.floats(0.1, 50))
def test_t_quantile_falls_with_the_degrees_of_freedom(p: float, degrees: float, more: float):
    assert t_quantile(p, degrees + more) < t_quantile(p, degrees)


# launches


def test_median_over_launches_by_hand():
    estimate = median_over_launches([[1, 2, 9], [3, 4, 5, 6], [6]])
    assert estimate.value == pytest.approx((2 + 4.5 + 6) / 3)
    half = 4.302652730 * stdev([2, 4.5, 6]) / math.sqrt(3)
    # the lower end would be -0.9: a time has no interval below zero
    assert astuple(_interval(estimate)) == (0.0, pytest.approx(estimate.value + half), 0.95, "launches")
    assert (estimate.n, estimate.launches) == (8, 3)


def test_trimmed_mean_drops_a_fifth_at_either_end():
    one = [1000, 1, 2, 3, -500]
    assert trimmed_mean_over_launches([one]).value == 2
    assert trimmed_mean_over_launches([one, [7, 7]]).value == pytest.approx(4.5)
    assert trimmed_mean_over_launches([[1, 2, 3, 50]]).value == mean([1, 2, 3, 50])
    assert trimmed_mean_over_launches([list(range(15))]).value == 7


def test_mean_of_one_number_per_launch():
    estimate = mean_of([100.0, 102.0])
    assert estimate.value == 101
    assert _width(estimate) == pytest.approx(2 * 12.706204736)
    assert mean_of([10.0]) == Estimate(10.0, None, 1, 1)


def test_one_launch_is_labelled_and_rests_on_order_statistics():
    # the binomial table: P(Binomial(10, 1/2) <= 1) = 11/1024 < 2.5 % < P(... <= 2), hence the 2nd and the 9th
    estimate = median_over_launches([[10, 9, 8, 7, 6, 5, 4, 3, 2, 1]])
    assert estimate == Estimate(5.5, Interval(2, 9, 0.95, "single_launch"), 10, 1)
    assert _interval(trimmed_mean_over_launches([range(10)])).basis == "single_launch"


def test_too_few_samples_in_one_launch_give_no_interval():
    assert median_over_launches([[1, 2, 3, 4, 5]]).interval is None
    assert _interval(median_over_launches([[1, 2, 3, 4, 5, 6]])) == Interval(1, 6, 0.95, "single_launch")
    assert trimmed_mean_over_launches([[1]]).interval is None


@pytest.mark.parametrize("statistic", _OVER_LAUNCHES)
@given(launches=_launches, random=st.randoms(use_true_random=False))
def test_order_changes_nothing(statistic, launches, random):
    shuffled = [random.sample(launch, len(launch)) for launch in launches]
    random.shuffle(shuffled)
    assert statistic(shuffled) == statistic(launches)


@pytest.mark.parametrize("statistic", _OVER_LAUNCHES)
@given(launches=_launches, power=st.integers(-20, 20))
def test_a_change_of_unit_scales_value_and_interval(statistic, launches, power):
    factor = 2.0**power
    before = statistic(launches)
    after = statistic([[value * factor for value in launch] for launch in launches])
    assert after.value == before.value * factor
    if before.interval is not None:
        assert _interval(after).low == pytest.approx(before.interval.low * factor)
        assert _interval(after).high == pytest.approx(before.interval.high * factor)


@pytest.mark.parametrize("statistic", _OVER_LAUNCHES)
@given(launches=_launches)
def test_the_interval_holds_the_value_and_the_value_is_among_the_samples(statistic, launches):
    estimate = statistic(launches)
    slack = 1e-9 * max(map(max, launches))
    assert min(map(min, launches)) - slack <= estimate.value <= max(map(max, launches)) + slack
    if estimate.interval is not None:
        assert _holds(estimate.interval, estimate.value)
    assert estimate.n == sum(map(len, launches))
    assert estimate.launches == len(launches)


@pytest.mark.parametrize("statistic", _OVER_LAUNCHES)
@given(launches=_several, times=st.integers(2, 4))
def test_more_launches_of_the_same_spread_do_not_widen(statistic, launches, times):
    estimate = statistic(launches)
    rounding = 1e-12 * estimate.value
    assert _width(statistic(launches * times)) <= _width(estimate) * (1 + 1e-9) + rounding


@pytest.mark.parametrize("statistic", [*_OVER_LAUNCHES, lambda launches: percentile_over_launches(launches, 0.5)])
@pytest.mark.parametrize("launches", [[], [[]], [[1.0], []], [[1.0, math.nan]], [[math.inf]]])
def test_nothing_and_numbers_that_are_none_are_refused(statistic, launches):
    with pytest.raises(StatisticError):
        statistic(launches)


def test_arrays_of_integer_nanoseconds_are_welcome():
    launches = np.arange(12, dtype=np.int64).reshape(2, 6)
    assert median_over_launches(launches).value == 5.5
    assert launches[0].tolist() == [0, 1, 2, 3, 4, 5]


def _simulated(seed: int, launches: int, samples: int) -> np.ndarray:
    """Runs of launches that differ by as much as their samples do; the true median of every run is 0."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(2000, launches, 1)) + rng.normal(size=(2000, launches, samples))


@pytest.mark.parametrize("launches", [3, 6])
@pytest.mark.parametrize("statistic", _OVER_LAUNCHES)
def test_the_interval_over_launches_covers_as_often_as_it_says(statistic, launches):
    covered = mean(_holds(_interval(statistic(run)), 0.0) for run in _simulated(11, launches, 9))
    assert covered == pytest.approx(0.95, abs=0.02)


def test_pooling_launches_as_if_they_were_one_would_cover_far_too_seldom():
    covered = mean(_holds(_interval(median_over_launches([run.ravel()])), 0.0) for run in _simulated(12, 5, 40)[:500])
    assert covered < 0.75


# percentiles


def test_minimum_queries_are_those_of_loadgen():
    assert (minimum_queries(0.90), minimum_queries(0.99)) == (64, 662)
    assert (minimum_queries(0.50), minimum_queries(0.95), minimum_queries(0.999)) == (11, 130, 6636)


def test_the_documentation_gives_the_same_minima():
    page = (Path(__file__).parents[3] / "docs" / "concepts" / "statistics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| p([0-9.]+) \| (\d+) \|$", page, re.MULTILINE)
    assert [per_cent for per_cent, _ in rows] == ["50", "90", "95", "99", "99.9"]
    assert all(minimum_queries(float(Fraction(per_cent) / 100)) == int(needed) for per_cent, needed in rows)


@given(st.integers(1, 999))
def test_minimum_queries_is_the_smallest_and_the_same_for_the_mirror_image(per_mille: int):
    p = per_mille / 1000
    tail = Fraction(min(per_mille, 1000 - per_mille), 1000)
    n = minimum_queries(p)

    def chance(count: int) -> Fraction:
        return (1 - tail) ** count + count * tail * (1 - tail) ** (count - 1)

    assert chance(n) <= Fraction(1, 100) < chance(n - 1)


@pytest.mark.parametrize("p, samples", [(0.9, 63), (0.99, 661), (0.5, 10), (0.999, 6635)])
def test_a_percentile_that_the_samples_cannot_support_is_refused(p: float, samples: int):
    with pytest.raises(StatisticError) as caught:
        percentile_over_launches([list(range(samples))], p)
    assert caught.value.code == "unsupported_percentile"
    assert caught.value.fields == {"percentile": p, "samples": samples, "needed": samples + 1}
    assert percentile_over_launches([list(range(samples + 1))], p).n == samples + 1


def test_the_refusal_names_the_percentile_as_people_do():
    with pytest.raises(StatisticError, match=r"70 samples cannot support p99\.9: it takes at least 6636"):
        percentile_over_launches([[1.0] * 70], 0.999)


@pytest.mark.parametrize("per_cent", range(1, 100))
def test_percentiles_are_nearest_ranks_of_the_pool(per_cent: int):
    pool = list(range(1, 1001))
    launches = [pool[::2], pool[1::2]]
    assert percentile_over_launches(launches, per_cent / 100).value == 10 * per_cent


def test_jackknife_interval_by_hand():
    launches = [[1.0] * 11, [2.0] * 11, [4.0] * 13]
    # without one launch the medians (rank 12 of 24, 12 of 24, 11 of 22) are 4, 4 and 1
    estimate = percentile_over_launches(launches, 0.5)
    without = [4.0, 4.0, 1.0]
    error = math.sqrt(2 / 3 * sum((value - mean(without)) ** 2 for value in without))
    assert estimate.value == 2.0
    assert _interval(estimate).high == pytest.approx(2.0 + 4.302652730 * error)
    assert _interval(estimate).basis == "launches"


@pytest.mark.parametrize("p", [0.1, 0.5, 0.75])
@given(launches=st.lists(st.lists(_values, min_size=64, max_size=70), min_size=1, max_size=3), factor=st.integers(1, 9))
@settings(max_examples=25)
def test_percentile_laws(p: float, launches: list[list[float]], factor: int):
    estimate = percentile_over_launches(launches, p)
    assert any(estimate.value in launch for launch in launches)
    assert _holds(_interval(estimate), estimate.value)
    assert _interval(estimate).basis == ("launches" if len(launches) > 1 else "single_launch")
    turned = percentile_over_launches([launch[::-1] for launch in launches[::-1]], p)
    assert turned.value == estimate.value
    assert _interval(turned).low == pytest.approx(_interval(estimate).low)
    scaled = percentile_over_launches([[value * factor for value in launch] for launch in launches], p)
    assert scaled.value == estimate.value * factor


@pytest.mark.parametrize("p", [0, 1, 99, -0.5, math.nan])
def test_a_share_outside_0_to_1_is_refused(p: float):
    for call in (minimum_queries, normal_quantile, lambda share: t_quantile(share, 3)):
        with pytest.raises(UsageError):
            call(p)


def test_degrees_of_freedom_are_above_zero():
    with pytest.raises(UsageError):
        t_quantile(0.9, 0)


def test_order_statistics_cover_at_least_as_often_as_they_say():
    rng = np.random.default_rng(13)
    truth = NormalDist().inv_cdf(0.9)
    covered = mean(_holds(_interval(percentile_over_launches([rng.normal(size=80)], 0.9)), truth) for _ in range(1500))
    assert 0.94 < covered < 0.99


# ratios


def test_ratio_by_hand():
    estimate = ratio_over_launches([[1.0], [math.e]], [[math.e**2], [math.e**3]])
    # logarithms 0, 1 and 2, 3: difference 2, error sqrt(1/2), Welch's degrees of freedom 2
    assert estimate.value == pytest.approx(math.e**2)
    half = 4.302652730 * math.sqrt(0.5)
    assert _interval(estimate).low == pytest.approx(math.exp(2 - half))
    assert _interval(estimate).high == pytest.approx(math.exp(2 + half))
    assert (estimate.n, estimate.launches) == (4, 2)


def test_welch_needs_no_equal_spread():
    a, b = [1.0, 1.1, 0.9, 1.05], [2.0, 2.9]
    log_a, log_b = ([math.log(value) for value in side] for side in (a, b))
    squares = [stdev(log_a) ** 2 / 4, stdev(log_b) ** 2 / 2]
    degrees = sum(squares) ** 2 / (squares[0] ** 2 / 3 + squares[1] ** 2 / 1)
    half = t_quantile(0.975, degrees) * math.sqrt(sum(squares))
    estimate = ratio_over_launches([[value] for value in a], [[value] for value in b])
    assert math.log(_interval(estimate).high / estimate.value) == pytest.approx(half)


@given(_several, _several, st.floats(0.01, 100))
def test_ratio_laws(a: list[list[float]], b: list[list[float]], factor: float):
    forward, backward = ratio_over_launches(a, b), ratio_over_launches(b, a)
    assert forward.value * backward.value == pytest.approx(1)
    assert _holds(_interval(forward), forward.value)
    scaled = ratio_over_launches(a, [[value * factor for value in launch] for launch in b])
    assert scaled.value == pytest.approx(forward.value * factor)
    same = ratio_over_launches(a, a)
    assert same.value == 1
    assert verdict(same) in ("agrees", "cannot tell")


def test_ratio_of_single_launches_is_labelled_and_of_unequal_ones_has_no_interval():
    one, other = [[10.0, 11, 12, 13, 14, 15]], [[20.0, 22, 24, 26, 28, 30]]
    estimate = ratio_over_launches(one, other)
    assert estimate.value == pytest.approx(2)
    assert _interval(estimate) == Interval(20 / 15, 3.0, 0.95, "single_launch")
    assert verdict(estimate) == "cannot tell"
    assert ratio_over_launches(one, other * 3).interval is None
    assert ratio_over_launches([[1.0]], [[2.0]]).interval is None


def test_ratio_of_launches_without_spread():
    estimate = ratio_over_launches([[2.0], [2.0]], [[3.0], [3.0]])
    assert _interval(estimate).low == _interval(estimate).high == estimate.value == pytest.approx(1.5)


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_ratio_needs_positive_values(bad: float):
    with pytest.raises(StatisticError):
        ratio_over_launches([[1.0], [1.0]], [[bad], [1.0]])


@pytest.mark.parametrize(
    "low, high, basis, expected",
    [
        (0.96, 1.04, "launches", "agrees"),
        (1.0, 1.0, "launches", "agrees"),
        (0.97, 1.06, "launches", "cannot tell"),
        (0.90, 0.96, "launches", "cannot tell"),
        (0.5, 2.0, "launches", "cannot tell"),
        (1.06, 1.20, "launches", "differs"),
        (0.80, 0.94, "launches", "differs"),
        (0.99, 1.01, "single_launch", "cannot tell"),
        (2.0, 3.0, "single_launch", "cannot tell"),
    ],
)
def test_verdict(low: float, high: float, basis, expected: str):
    assert verdict(Estimate(math.sqrt(low * high), Interval(low, high, 0.95, basis), 10, 5)) == expected


def test_verdict_without_interval_and_with_another_margin():
    assert verdict(Estimate(1.0, None, 1, 1)) == "cannot tell"
    wide = Estimate(1.0, Interval(0.9, 1.1, 0.95, "launches"), 10, 5)
    assert (verdict(wide), verdict(wide, margin=0.2)) == ("cannot tell", "agrees")
    for margin in (0, 1, -0.1, math.nan):
        with pytest.raises(UsageError):
            verdict(wide, margin)


# proportions


def test_wilson_of_known_cases():
    # 81 of 263: Newcombe 1998, table I
    interval = _interval(proportion(81, 263))
    assert (interval.low, interval.high) == (pytest.approx(0.2553, abs=5e-5), pytest.approx(0.3662, abs=5e-5))
    assert interval.basis == "samples"
    assert _interval(proportion(0, 20)).high == pytest.approx(0.1611, abs=5e-5)


def test_clopper_pearson_of_known_cases():
    interval = clopper_pearson(81, 263)
    assert (interval.low, interval.high) == (pytest.approx(0.2527, abs=5e-5), pytest.approx(0.3676, abs=5e-5))
    # none of n: 1 - (2.5 %) ** (1/n), in closed form
    assert astuple(clopper_pearson(0, 20)) == (0.0, pytest.approx(1 - 0.025 ** (1 / 20)), 0.95, "samples")
    assert astuple(clopper_pearson(20, 20)) == (pytest.approx(0.025 ** (1 / 20)), 1.0, 0.95, "samples")


_counts = st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(_counts)
def test_intervals_of_proportions_stay_within_0_and_1_hold_the_value_and_mirror(counts: tuple[int, int]):
    successes, n = counts
    estimate, mirror = proportion(successes, n), proportion(n - successes, n)
    for interval in (_interval(estimate), clopper_pearson(successes, n)):
        assert 0 <= interval.low <= estimate.value <= interval.high <= 1
    assert _interval(mirror).low == pytest.approx(1 - _interval(estimate).high, abs=1e-12)


@pytest.mark.parametrize("successes, n", [(0, 0), (1, 0), (-1, 5), (6, 5)])
def test_impossible_counts_are_refused(successes: int, n: int):
    for call in (proportion, clopper_pearson):
        with pytest.raises(StatisticError):
            call(successes, n)


@pytest.mark.parametrize(
    "only_a, only_b, expected",
    [(0, 0, 1.0), (1, 0, 1.0), (3, 3, 1.0), (0, 5, 2 / 32), (5, 0, 2 / 32), (1, 8, 20 / 512), (2, 10, 158 / 4096)],
)
def test_mcnemar_by_hand(only_a: int, only_b: int, expected: float):
    assert mcnemar_exact(only_a, only_b) == pytest.approx(expected)


@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemar_is_the_exact_binomial_sum(only_a: int, only_b: int):
    n = only_a + only_b
    exact = Fraction(2 * sum(math.comb(n, count) for count in range(min(only_a, only_b) + 1)), 2**n)
    assert mcnemar_exact(only_a, only_b) == pytest.approx(min(1.0, float(exact)), rel=1e-9)


def test_mcnemar_refuses_negative_counts():
    with pytest.raises(StatisticError):
        mcnemar_exact(-1, 3)


def test_paired_difference_by_hand():
    a = [True, True, False, False, True]
    b = [True, False, True, True, True]
    paired = paired_difference(a, b)
    assert (paired.only_a, paired.only_b, paired.p_value) == (1, 2, pytest.approx(1.0))
    assert paired.difference.value == pytest.approx(0.2)
    half = 1.959963985 * math.sqrt(3 + 1 - 1 / 7) / 7
    interval = _interval(paired.difference)
    assert (interval.low, interval.high) == (pytest.approx(1 / 7 - half), pytest.approx(1 / 7 + half))
    assert interval.basis == "samples"


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_paired_difference_laws(answers: list[tuple[bool, bool]]):
    a, b = [one for one, _ in answers], [other for _, other in answers]
    forward, backward = paired_difference(a, b), paired_difference(b, a)
    assert forward.difference.value == pytest.approx(mean(b) - mean(a))
    assert forward.difference.value == -backward.difference.value
    assert forward.p_value == backward.p_value
    assert (
        -1 <= _interval(forward.difference).low <= forward.difference.value <= _interval(forward.difference).high <= 1
    )


def test_paired_difference_refuses_what_is_not_paired():
    with pytest.raises(UsageError):
        paired_difference([True], [True, False])
    with pytest.raises(StatisticError):
        paired_difference([], [])


@given(_pools)
@settings(max_examples=25)
def test_the_even_median_is_the_middle_of_two_and_the_nearest_rank_is_a_sample(launches: list[list[float]]):
    (pool,) = [[value for launch in launches for value in launch]]
    assert median_over_launches([pool]).value == pytest.approx(median(pool))
    assert percentile_over_launches(launches, 0.5).value == sorted(pool)[math.ceil(len(pool) / 2) - 1]
