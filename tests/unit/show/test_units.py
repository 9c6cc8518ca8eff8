"""Numbers as text: borders of units, zero, negative values, intervals and tables."""

import math
import re

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.estimate import Estimate, Interval
from mlmodelscope.show.units import (
    format_bytes,
    format_duration,
    format_estimate,
    format_share,
    format_throughput,
    table,
)

UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 ns"),
        (0.5, "0.50 ns"),
        (12, "12 ns"),
        (12.5, "12.5 ns"),
        (999, "999 ns"),
        (999.4, "999 ns"),
        (999.6, "1.00 us"),
        (1_000, "1.00 us"),
        (9_994, "9.99 us"),
        (9_996, "10.0 us"),
        (99_940, "99.9 us"),
        (99_960, "100 us"),
        (999_400, "999 us"),
        (999_600, "1.00 ms"),
        (999_900, "1.00 ms"),
        (1e6, "1.00 ms"),
        (10_840_000, "10.8 ms"),
        (999_600_000, "1.00 s"),
        (3_600e9, "3600 s"),
        (-0.00001, "0.00 ns"),
        (-10_840_000, "-10.8 ms"),
        (-999_600, "-1.00 ms"),
    ],
)
def test_a_duration(nanoseconds, text):
    assert format_duration(nanoseconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1023 * 1024, "1023 KiB"),
        (1_048_100, "1.00 MiB"),
        (2**20, "1.00 MiB"),
        (16 * 2**30, "16.0 GiB"),
        (2**40, "1024 GiB"),
    ],
)
def test_a_size(size, text):
    assert format_bytes(size) == text


def test_a_share_and_a_throughput():
    assert [format_share(share) for share in (0, 0.7495, 1, -0.0001)] == ["0.0 %", "75.0 %", "100.0 %", "0.0 %"]
    assert [format_throughput(rate) for rate in (0.004, 92.34, 1234.5)] == [
        "0.0040 samples/s",
        "92.3 samples/s",
        "1234 samples/s",
    ]


@given(st.floats(1e-2, 1e15) | st.floats(-1e15, -1e-2))
def test_the_text_is_the_number_to_half_a_percent_or_half_a_hundredth(value):
    for text in (format_duration(value), format_bytes(value)):
        number, unit = text.split(" ")
        size = UNITS[unit]
        assert math.isclose(float(number) * size, value, rel_tol=0.0051, abs_tol=0.0051 * size)
        limit = 1024 if unit.endswith("B") else 1000
        assert abs(float(number)) < limit or unit in ("s", "GiB")
        assert "e" not in number


def estimate(value, low=None, high=None, basis="launches"):
    interval = None if low is None or high is None else Interval(low, high, 0.95, basis)
    return Estimate(value, interval, 10, 5)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "duration", "-"),
        (estimate(10_840_000), "duration", "10.8 ms"),
        (estimate(10_840_000, 10_600_000, 11_100_000), "duration", "10.8 ms [10.6, 11.1]"),
        (estimate(999_600, 900_000, 1_100_000), "duration", "1.00 ms [0.90, 1.10]"),
        (estimate(0, 0, 0), "duration", "0 ns [0, 0]"),
        (estimate(2_000, -500, 4_500), "duration", "2.00 us [-0.50, 4.50]"),
        (estimate(5e6, 4e6, 6e6, "single_launch"), "duration", "5.00 ms [4.00, 6.00] within one launch"),
        (estimate(0.75, 0.7, 0.8, "samples"), "share", "75.0 % [70.0, 80.0]"),
        (estimate(92.34, 90.0, 95.0), "throughput", "92.3 samples/s [90.0, 95.0]"),
        (estimate(150_000_000, 149_000_000, 151_000_000), "bytes", "143 MiB [142, 144]"),
    ],
)
def test_an_estimate(value, kind, text):
    assert format_estimate(value, kind) == text


@given(st.floats(0, 1e12), st.floats(0, 1e12), st.sampled_from(["duration", "bytes", "share", "throughput"]))
def test_the_interval_of_a_single_launch_always_says_so(low, width, kind):
    text = format_estimate(estimate(low, low, low + width, "single_launch"), kind)
    assert re.search(r"\] within one launch$", text)


def test_columns_are_as_wide_as_their_widest_cell():
    text = table(("a", "name"), [("1", "x"), ("1234567", "a very wide cell indeed")])
    assert text.splitlines() == ["a        name", "1        x", "1234567  a very wide cell indeed"]


def test_numbers_can_be_aligned_to_the_right():
    assert table(("name", "n"), [("a", "5"), ("b", "123")], right=(1,)).splitlines() == [
        "name    n",
        "a       5",
        "b     123",
    ]


def test_a_table_without_rows_is_its_header():
    assert table(("a", "b"), []) == "a  b"


def test_a_row_of_another_length_is_a_mistake_of_ours():
    with pytest.raises((IndexError, ValueError)):
        table(("a", "b"), [("1",)])
