"""The optimal batch size: the 5 % rule, sizes that do not double, dips, and how certain it is."""

import math

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.analyse.sweep import LEAST_GAIN, sweep_of
from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.estimate import Estimate, Interval


def estimate(value: float, spread: float = 0.001, basis: str = "launches") -> Estimate:
    return Estimate(value, Interval(value * (1 - spread), value * (1 + spread), 0.95, basis), n=10, launches=5)


def sweep(*pairs: tuple[int, float], **options):
    return sweep_of((size, estimate(value, **options)) for size, value in pairs)


class TestRule:
    def test_the_last_size_that_a_doubling_reached_with_more_than_five_per_cent(self):
        found = sweep((1, 100), (2, 150), (4, 170), (8, 175), (16, 176))
        assert (found.optimal, found.is_open, found.certainty) == (4, False, "certain")

    def test_exactly_five_per_cent_is_not_more(self):
        assert sweep((1, 100), (2, 105)).optimal == 1
        assert sweep((1, 100), (2, 105.01)).optimal == 2

    def test_the_largest_size_may_not_be_the_end(self):
        found = sweep((1, 100), (2, 150), (4, 200))
        assert (found.optimal, found.is_open) == (4, True)

    def test_a_step_that_is_no_doubling_must_add_as_much_per_doubling(self):
        # from 1 to 8 are three doublings: 1.05 ** 3 = 1.1576
        assert sweep((1, 100), (8, 115)).optimal == 1
        assert sweep((1, 100), (8, 116)).optimal == 8
        # from 4 to 6 is 0.585 of one: 1.05 ** 0.585 = 1.029
        assert sweep((4, 100), (6, 102)).optimal == 4
        assert sweep((4, 100), (6, 104)).optimal == 6

    def test_making_good_a_dip_is_no_gain(self):
        assert sweep((1, 100), (2, 150), (4, 120), (8, 155)).optimal == 2

    def test_a_plateau_that_ends_is_passed(self):
        assert sweep((1, 100), (2, 101), (4, 200)).optimal == 4

    def test_slower_batches_leave_the_first(self):
        found = sweep((1, 100), (2, 90), (4, 80))
        assert (found.optimal, found.is_open) == (1, False)

    def test_the_order_of_the_sizes_is_of_no_account(self):
        assert sweep((8, 175), (1, 100), (4, 170), (2, 150)) == sweep((1, 100), (2, 150), (4, 170), (8, 175))

    def test_gains_are_those_of_each_step(self):
        found = sweep((1, 100), (4, 121), (5, 110))
        assert [point.gain for point in found.points] == [None, pytest.approx(0.21), pytest.approx(-11 / 121)]

    def test_one_size_is_its_own_optimum_and_open(self):
        found = sweep((4, 100))
        assert (found.optimal, found.is_open) == (4, True)

    def test_nothing_measured(self):
        found = sweep_of([])
        assert (found.points, found.optimal, found.certainty) == ((), None, "uncertain")


class TestCertainty:
    def test_an_interval_that_straddles_the_rule_is_not_certain(self):
        assert sweep((1, 100), (2, 106), spread=0.02).certainty == "uncertain"
        assert sweep((1, 100), (2, 150), spread=0.02).certainty == "certain"

    def test_one_launch_is_never_certain(self):
        assert sweep((1, 100), (2, 200), basis="single_launch").certainty == "uncertain"
        points = [(1, Estimate(100, None, 1, 1)), (2, Estimate(200, None, 1, 1))]
        assert sweep_of(points).certainty == "uncertain"


class TestBadInput:
    def test_one_size_twice(self):
        with pytest.raises(UsageError, match="once"):
            sweep((1, 100), (1, 120))

    def test_no_throughput(self):
        with pytest.raises(UsageError, match="above 0"):
            sweep_of([(1, Estimate(0, None, 1, 1))])


@given(st.dictionaries(st.integers(1, 4096), st.floats(0.01, 1e6), min_size=1, max_size=8))
def test_no_larger_size_beats_the_optimum_by_the_rule(values):
    found = sweep(*values.items())
    assert found.optimal in values
    for size, value in values.items():
        if size > found.optimal:
            least = (1 + LEAST_GAIN) ** math.log2(size / found.optimal)
            assert value <= values[found.optimal] * least * (1 + 1e-9)
