"""Readings of a clock and durations of equal work, as facts."""

from itertools import count

from mlmodelscope.measure.probe import clock_facts, probe_clock, probe_noise, probe_steadiness, steadiness


def test_the_smallest_step_and_the_cost_of_a_reading():
    facts = clock_facts([0, 0, 40, 40, 60, 160], "tsc")
    assert (facts.step_ns, facts.reading_ns, facts.source) == (20, 32, "tsc")


def test_a_clock_that_is_counted(tmp_path):
    facts = probe_clock(tmp_path, count(step=7).__next__)
    assert (facts.step_ns, facts.reading_ns, facts.source) == (7, 7, None)


def test_spread_between_the_tenth_and_the_ninetieth():
    found = steadiness([*range(100, 111), 5000])
    assert found.pieces == 12
    assert (found.median_ns, found.spread_share) == (105, 9 / 105)
    assert steadiness([0, 0, 0]).spread_share == 0


def test_equal_work_under_a_counted_clock_has_no_spread():
    found = probe_steadiness(count(step=2_000_000).__next__)
    assert (found.median_ns, found.spread_share) == (2_000_000, 0)


def test_noise_of_a_window_that_was_slept_through(tmp_path):
    slept = []
    noise = probe_noise(2.5, tmp_path, slept.append)
    assert slept == [2.5]
    assert noise.cpu_busy_share is None
