"""Shapes of latencies: nothing is lost, everything is a value that was measured; and which records make a sweep."""

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.analyse.distribution import batch_sweeps, box, cumulative, histogram
from mlmodelscope.core.errors import StatisticError, UsageError
from mlmodelscope.core.request import Batched, EvaluationRequest, SingleStream
from mlmodelscope.testing.records import (
    example_estimate,
    example_model,
    example_performance,
    example_record,
    failed_record,
)

LATENCIES = st.lists(st.floats(1, 1e12), min_size=1, max_size=300)


@given(LATENCIES)
def test_every_value_is_in_a_bar_or_beyond(values):
    shape = histogram(values)
    assert sum(shape.counts) + shape.beyond == len(values)
    assert len(shape.edges) == len(shape.counts) + 1
    assert all(a < b for a, b in zip(shape.edges, shape.edges[1:], strict=False))
    assert shape.edges[0] <= min(values)
    assert shape.beyond <= len(values) * 0.005


def test_one_slow_query_does_not_squeeze_the_others():
    shape = histogram([10.0 + i / 1000 for i in range(999)] + [10_000.0])
    assert 1 <= shape.beyond <= 5
    assert shape.edges[-1] < 12


def test_bars_have_one_width_and_the_right_counts():
    shape = histogram([0.0] * 10 + [100.0] * 30)
    assert (shape.counts[0], shape.counts[-1]) == (10, 30)
    assert sum(shape.counts[1:-1]) == 0
    widths = {round(b - a, 9) for a, b in zip(shape.edges, shape.edges[1:], strict=False)}
    assert len(widths) == 1


def test_equal_values_are_one_bar():
    shape = histogram([5e6] * 7)
    assert shape.counts == (7,)
    assert shape.edges[0] < 5e6 < shape.edges[1]


@given(LATENCIES)
def test_a_box_is_ordered_and_measured(values):
    found = box(values)
    five = (found.low, found.first_quartile, found.median, found.third_quartile, found.high)
    assert list(five) == sorted(five)
    assert set(five) <= set(values)


def test_a_box_takes_nearest_ranks():
    found = box([float(value) for value in range(1, 101)])
    assert (found.low, found.first_quartile, found.median, found.third_quartile, found.high) == (5, 25, 50, 75, 95)


@given(LATENCIES, st.integers(2, 40))
def test_cumulative_shares_rise_to_one(values, points):
    found = cumulative(values, points)
    assert len(found) <= points
    assert found[0][0] == min(values)
    assert found[-1] == (max(values), 1.0)
    assert [x for x, _ in found] == sorted(x for x, _ in found)
    assert all(a < b for a, b in zip([s for _, s in found], [s for _, s in found][1:], strict=False))


def test_a_cumulative_share_counts_what_does_not_exceed():
    assert cumulative([30.0, 10.0, 20.0, 40.0]) == ((10.0, 0.25), (20.0, 0.5), (30.0, 0.75), (40.0, 1.0))


@pytest.mark.parametrize("shape", [histogram, box, cumulative])
@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [1.0, float("inf")]])
def test_nothing_is_drawn_of_what_is_no_measurement(shape, values):
    with pytest.raises(StatisticError):
        shape(values)


def test_one_point_is_no_line():
    with pytest.raises(UsageError):
        cumulative([1.0, 2.0], points=1)


def at_batch(size, throughput, **changes):
    scenario = Batched(batch_size=size, launches=2) if size > 1 else SingleStream(launches=2)
    request = EvaluationRequest(models=("TinyNet",), dataset="TinySet", threads=2, scenario=scenario)
    performance = example_performance(throughput=example_estimate(throughput))
    return example_record(**({"scenario": scenario, "request": request, "performance": performance} | changes))


def test_records_that_differ_in_batch_size_alone_are_a_sweep():
    records = [at_batch(size, rate) for size, rate in ((4, 190.0), (1, 100.0), (8, 192.0), (2, 150.0))]
    (found,) = batch_sweeps(records)
    assert [record.scenario.batch_size for record in found.records] == [1, 2, 4, 8]
    assert found.sweep.optimal == 4
    assert [point.throughput.value for point in found.sweep.points] == [100.0, 150.0, 190.0, 192.0]


def test_another_model_is_another_sweep():
    other = {"model": example_model(name="Other", weights_digest="f" * 64)}
    records = [at_batch(1, 10.0), at_batch(1, 5.0, **other), at_batch(2, 20.0), at_batch(2, 5.1, **other)]
    sweeps = batch_sweeps(records)
    assert [[r.model.name for r in one.records] for one in sweeps] == [["TinyNet"] * 2, ["Other"] * 2]
    assert [one.sweep.optimal for one in sweeps] == [2, 1]


def test_the_newer_of_two_records_of_one_size_counts():
    old, new, larger = at_batch(1, 10.0), at_batch(1, 30.0), at_batch(2, 31.0)
    (found,) = batch_sweeps([new, larger, old])
    assert found.records == (new, larger)
    assert found.sweep.optimal == 1


def test_one_size_or_no_throughput_is_no_sweep():
    assert batch_sweeps([at_batch(2, 10.0), at_batch(2, 11.0), failed_record()]) == ()
