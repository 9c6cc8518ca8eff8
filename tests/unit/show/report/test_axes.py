"""Axes: every value has its place, and the numbers below are round."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.show.report.axes import batch_axis, duration_axis, rate_axis, share_axis

VALUES = st.lists(st.floats(1, 1e13), min_size=1, max_size=20)


@given(VALUES, st.booleans(), st.booleans())
def test_places_keep_the_order_and_stay_inside(values, from_zero, may_be_log):
    axis = duration_axis(values, from_zero=from_zero, may_be_log=may_be_log)
    assert axis.low <= min(values) * 1.002
    assert axis.high >= max(values) * 0.998
    places = [axis.at(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(0 <= place <= 100 for place in places)
    assert 2 <= len(axis.ticks) <= 8
    assert [value for value, _ in axis.ticks] == sorted({value for value, _ in axis.ticks})


@pytest.mark.parametrize(
    ("values", "texts", "unit"),
    [
        ([10.2e6, 11.9e6], ["10.0", "10.5", "11.0", "11.5", "12.0"], "ms"),
        ([200e6, 1.9e9], ["0.0", "0.5", "1.0", "1.5", "2.0"], "s"),
        ([5e3], ["4.7", "4.8", "4.9", "5.0", "5.1", "5.2", "5.3"], "us"),
        ([1.0, 6.0], ["1", "2", "3", "4", "5", "6"], "ns"),
    ],
)
def test_ticks_are_round(values, texts, unit):
    axis = duration_axis(values)
    assert axis.unit == unit
    assert [text for _, text in axis.ticks] == texts
    assert axis.at(axis.ticks[0][0]) == 0
    assert axis.at(axis.ticks[-1][0]) == 100


def test_values_far_apart_get_a_logarithmic_axis_where_that_is_allowed():
    assert duration_axis([1e6, 1e9], may_be_log=True).is_log
    assert not duration_axis([1e6, 1e9]).is_log
    assert not duration_axis([1e6, 1e9], from_zero=True, may_be_log=True).is_log
    assert not duration_axis([1e6, 5e6], may_be_log=True).is_log


def test_equal_steps_on_a_logarithmic_axis_are_equal_ratios():
    axis = duration_axis([1e6, 100e6], may_be_log=True)
    assert axis.at(10e6) - axis.at(1e6) == pytest.approx(axis.at(100e6) - axis.at(10e6))


def test_shares_stay_between_none_and_all():
    axis = share_axis([0.97, 1.0])
    assert axis.low >= 0
    assert axis.high == 1.0
    assert axis.high - axis.low >= 0.05
    assert share_axis([0.0, 0.001]).low == 0


def test_every_doubling_of_the_batch_takes_the_same_width():
    axis = batch_axis([1, 2, 4, 8])
    places = [axis.at(value) for value, _ in axis.ticks]
    widths = [b - a for a, b in pairwise(places)]
    assert widths == pytest.approx([widths[0]] * 3)


def test_rates_begin_at_zero():
    assert rate_axis([90.0, 100.0]).at(0) == 0
    assert rate_axis([90.0, 100.0]).high >= 100
