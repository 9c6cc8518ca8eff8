"""The performance part of a record, from time stamps whose numbers can be done by hand."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlmodelscope.analyse.statistics import minimum_queries
from mlmodelscope.analyse.summary import PARTS, PERCENTILES, latencies, summarise, summarise_offline
from mlmodelscope.core.errors import StatisticError
from mlmodelscope.core.estimate import Estimate
from mlmodelscope.testing.records import example_launch


def inference(durations, start=1_000):
    """Queries of these durations, one after the other, timed as inference alone."""
    ends = start + np.cumsum(durations)
    return np.stack([ends - durations, ends], axis=1).astype(np.int64)


def pipeline(rows):
    """Queries timed as a pipeline: a row of the four durations each."""
    return np.array([np.cumsum([0, *row]) for row in rows], dtype=np.int64)


def launches(count, **changes):
    return [example_launch(index, **changes) for index in range(count)]


def test_a_latency_is_the_last_time_stamp_less_the_first():
    assert latencies(inference([5, 7])) == [5.0, 7.0]
    assert latencies(pipeline([(1, 2, 3, 4), (5, 5, 5, 5)])) == [10.0, 20.0]


def test_numbers_over_two_launches():
    found = summarise([inference([10, 20, 90]), inference([30, 40, 50, 60])], launches(2), batch_size=1)
    median = found.latency_median_ns
    assert (median.value, median.n, median.launches) == ((20 + 45) / 2, 7, 2)
    # the t quantile for one degree of freedom is 12.7062; the deviation of two values is their distance over sqrt 2
    half = 12.706204736 * (25 / math.sqrt(2)) / math.sqrt(2)
    assert median.interval.high == pytest.approx(32.5 + half)
    assert median.interval.basis == "launches"
    assert found.latency_trimmed_mean_ns.value == (40 + 45) / 2
    assert found.latency_mean_ns.value == (40 + 45) / 2
    assert (found.latency_mean_ns.n, found.latency_mean_ns.launches) == (7, 2)
    assert (found.latency_min_ns, found.latency_max_ns) == (10.0, 90.0)
    assert found.clock == "monotonic"


@pytest.mark.parametrize("batch_size", [1, 8])
def test_throughput_is_samples_over_the_time_inside_the_timed_region(batch_size):
    # the second launch waits between its queries: that time is not in the timed region
    waiting = np.array([[0, 500], [10_000, 10_500]], dtype=np.int64)
    found = summarise([inference([250, 250]), waiting], launches(2), batch_size)
    assert found.throughput.value == batch_size * (2e9 / 500 + 2e9 / 1000) / 2
    assert (found.throughput.n, found.throughput.launches) == (4, 2)


def test_a_launch_without_any_measurable_time_has_no_throughput():
    with pytest.raises(StatisticError, match="no throughput"):
        summarise([inference([1]), inference([0, 0])], launches(2), 1)


def test_a_query_of_0_ns_among_others_is_a_measurement():
    assert summarise([inference([0, 0, 4])], launches(1), 1).throughput.value == 3e9 / 4


@pytest.mark.parametrize("name", PERCENTILES)
def test_a_percentile_is_refused_with_the_reason_until_the_sample_supports_it(name):
    needed = minimum_queries(PERCENTILES[name])
    few = summarise([inference(range(1, needed))], launches(1), 1)
    assert name not in few.percentiles_ns
    assert few.refused[name] == f"{needed - 1} samples cannot support {name}: it takes at least {needed}"
    enough = summarise([inference(range(1, needed + 1))], launches(1), 1)
    assert name not in enough.refused
    assert enough.percentiles_ns[name].value == math.ceil(round(PERCENTILES[name] * needed, 6))


def test_every_percentile_is_given_or_refused():
    found = summarise([inference(range(1, 201))], launches(1), 1)
    assert (list(found.percentiles_ns), list(found.refused)) == (["p90", "p95"], ["p99", "p99.9"])


def test_parts_of_a_pipeline_query():
    first, second = [(1, 20, 300, 4), (3, 40, 500, 4), (2, 30, 400, 4)], [(4, 30, 400, 4)]
    found = summarise([pipeline(first), pipeline(second)], launches(2), 1).parts_ns
    values = {name: estimate.value for name, estimate in found.items()}
    assert values == {"decode": 3.0, "transform": 30.0, "predict": 400.0, "postprocess": 4.0}
    assert {estimate.n for estimate in found.values()} == {4}


def test_inference_alone_has_no_parts():
    assert summarise([inference([1, 2])], launches(1), 1).parts_ns == {}


def test_costs_of_a_launch_are_means_over_launches():
    facts = [
        example_launch(0, load_ns=10, first_inference_ns=100, peak_memory_bytes=1_000),
        example_launch(1, load_ns=30, first_inference_ns=None, peak_memory_bytes=None),
    ]
    found = summarise([inference([1]), inference([1])], facts, 1)
    assert (found.load_ns.value, found.load_ns.launches) == (20.0, 2)
    assert found.first_inference_ns == Estimate(100.0, None, 1, 1)
    assert found.memory_bytes == Estimate(1_000.0, None, 1, 1)


def test_costs_that_no_launch_knows_are_none():
    found = summarise([inference([1])], launches(1, first_inference_ns=None, peak_memory_bytes=None), 1)
    assert (found.first_inference_ns, found.memory_bytes) == (None, None)


def estimates_in(value):
    if isinstance(value, Estimate):
        return [value]
    if isinstance(value, dict):
        return [found for item in value.values() for found in estimates_in(item)]
    return []


def test_one_launch_gives_no_interval_over_launches():
    found = summarise([pipeline([(1, 2, 3, 4)] * 100)], launches(1), 1)
    intervals = [estimate.interval for _, value in found for estimate in estimates_in(value)]
    assert {interval.basis for interval in intervals if interval is not None} == {"single_launch"}


durations = st.lists(st.lists(st.integers(1, 10**12), min_size=5, max_size=30), min_size=1, max_size=4)


@given(durations, st.integers(1, 64))
def test_every_number_is_finite_and_lies_between_the_extremes(tables, batch_size):
    found = summarise([inference(table) for table in tables], launches(len(tables)), batch_size)
    everything = [estimate for _, value in found for estimate in estimates_in(value)]
    numbers = [e.value for e in everything] + [
        v for e in everything if e.interval for v in dataclasses.astuple(e.interval)[:2]
    ]
    assert all(map(math.isfinite, numbers))
    for name in ("latency_median_ns", "latency_trimmed_mean_ns", "latency_mean_ns"):
        assert found.latency_min_ns <= getattr(found, name).value * (1 + 1e-12)
        assert getattr(found, name).value <= found.latency_max_ns * (1 + 1e-12)
    # the mean of the launches' rates lies between the slowest and the fastest query
    assert found.throughput.value <= batch_size * 1e9 / found.latency_min_ns * (1 + 1e-9)
    assert found.throughput.value >= batch_size * 1e9 / found.latency_max_ns * (1 - 1e-9)


def test_parts_are_named_as_the_loop_stamps_them():
    assert pipeline([(1, 1, 1, 1)]).shape[1] == len(PARTS) + 1


class TestOffline:
    def summary(self):
        stamps = [np.array([[0, 30, 80, 90, 100]]), np.array([[1000, 1060, 1160, 1180, 1200]])]
        work = [np.array([[5, 1], [7, 3], [9, 2]]), np.array([[5, 1], [7, 3], [9, 2]])]
        facts = [example_launch(i, queries=1, samples=3, duration_ns=100 * (i + 1)) for i in range(2)]
        return summarise_offline(stamps, work, facts)

    def test_the_final_number_is_samples_per_second_over_launches(self):
        found = self.summary()
        assert found.throughput.value == pytest.approx((3e9 / 100 + 3e9 / 200) / 2)
        assert (found.throughput.launches, found.throughput.interval.basis) == (2, "launches")
        assert found.latency_median_ns.value == 150

    def test_the_parts_of_the_query_add_up(self):
        parts = {name: estimate.value for name, estimate in self.summary().parts_ns.items()}
        assert parts.pop("decode (a sample)") == 7
        assert parts.pop("transform (a sample)") == 2
        assert parts == {"waiting for samples": 45, "predict": 75, "postprocess": 15, "batching": 15}

    def test_one_query_per_launch_has_no_percentiles(self):
        found = self.summary()
        assert (found.percentiles_ns, found.refused) == ({}, {})
