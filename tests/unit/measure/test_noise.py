from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.measure.noise import (
    NoiseWindow,
    Snapshot,
    noise_between,
    parse_load,
    parse_pressure,
    parse_stat,
)

SECOND = 10**9
BEFORE = Snapshot(
    time_ns=5 * SECOND,
    ticks=(100, 0, 50, 1000, 10, 0, 5, 20),
    load_1m=0.5,
    stalled_us={"cpu": 1000, "memory": 0, "io": 70},
    frequencies_hz=(2_000_000_000, 2_400_000_000),
    own_cpu_ns=SECOND,
    voluntary_switches=10,
    involuntary_switches=3,
    major_faults=1,
)
AFTER = replace(
    BEFORE,
    time_ns=7 * SECOND,
    ticks=(220, 10, 100, 1100, 20, 5, 10, 120),
    load_1m=1.25,
    stalled_us={"cpu": 501_000, "memory": 0, "io": 70},
    frequencies_hz=(2_200_000_000, 3_000_000_000),
    own_cpu_ns=4 * SECOND,
    voluntary_switches=15,
    involuntary_switches=43,
    major_faults=1,
)


def test_the_noise_of_a_window_is_the_difference_of_its_ends():
    noise = noise_between(BEFORE, AFTER)
    assert noise.duration_ns == 2 * SECOND
    # 190 ticks of work, 100 idle, 10 waiting, 100 stolen
    assert (noise.cpu_busy_share, noise.steal_share) == (190 / 400, 100 / 400)
    assert (noise.own_cpu_share, noise.load_1m) == (1.5, 1.25)
    assert (noise.pressure_cpu_share, noise.pressure_memory_share, noise.pressure_io_share) == (0.25, 0.0, 0.0)
    assert (noise.voluntary_switches, noise.involuntary_switches, noise.major_faults) == (5, 40, 0)
    assert (noise.frequency_min_hz, noise.frequency_max_hz) == (2_000_000_000, 3_000_000_000)


def test_what_one_end_lacks_is_unknown():
    noise = noise_between(replace(BEFORE, ticks=None, stalled_us={"cpu": 0}, frequencies_hz=()), AFTER)
    assert (noise.cpu_busy_share, noise.steal_share) == (None, None)
    assert noise.pressure_cpu_share is not None
    assert (noise.pressure_memory_share, noise.pressure_io_share) == (None, None)
    assert noise_between(BEFORE, replace(AFTER, frequencies_hz=())).frequency_max_hz == 2_400_000_000


def test_an_empty_window_has_no_shares():
    noise = noise_between(BEFORE, BEFORE)
    assert (noise.duration_ns, noise.own_cpu_share, noise.cpu_busy_share, noise.pressure_cpu_share) == (
        0,
        None,
        None,
        None,
    )


def test_idle_time_may_step_back():
    after = replace(AFTER, ticks=(200, 0, 50, 990, 10, 0, 5, 20))
    assert noise_between(BEFORE, after).cpu_busy_share == 1.0


ticks = st.tuples(*[st.integers(0, 10**9)] * 8)


@given(ticks, ticks, st.integers(0, 10**12), st.integers(0, 10**9))
def test_shares_stay_between_nothing_and_all(before, after, duration_ns, stalled_us):
    first = replace(BEFORE, ticks=before, stalled_us={"cpu": 0})
    last = replace(AFTER, time_ns=first.time_ns + duration_ns, ticks=after, stalled_us={"cpu": stalled_us})
    noise = noise_between(first, last)
    shares = (noise.cpu_busy_share, noise.steal_share, noise.pressure_cpu_share)
    assert all(share is None or 0 <= share <= 1 for share in shares)
    assert (noise.cpu_busy_share or 0) + (noise.steal_share or 0) <= 1 + 1e-12


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("cpu  14313 0 5306 181202 665 0 79 397 7 8\ncpu0 1 2 3\n", (14313, 0, 5306, 181202, 665, 0, 79, 397)),
        ("cpu  1 2 3\n", None),
        ("intr 5\n", None),
        ("", None),
    ],
)
def test_processor_counts(text, counts):
    assert parse_stat(text) == counts


@pytest.mark.parametrize(
    ("text", "load"), [("0.02 0.14 0.12 1/96 9471\n", 0.02), ("12.50 1 1", 12.5), ("", None), ("x", None)]
)
def test_load(text, load):
    assert parse_load(text) == load


@pytest.mark.parametrize(
    ("text", "total"),
    [
        (
            "some avg10=0.75 avg60=0.63 avg300=0.66 total=10855784\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=3\n",
            10855784,
        ),
        ("full avg10=0.00 avg60=0.00 avg300=0.00 total=3\n", None),
        ("", None),
    ],
)
def test_pressure(text, total):
    assert parse_pressure(text) == total


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_a_window_over_files(tmp_path):
    times = iter([SECOND, 3 * SECOND])
    window = NoiseWindow(tmp_path, lambda: next(times))
    write(tmp_path, "proc/stat", "cpu  0 0 0 0 0 0 0 0 0 0\n")
    write(tmp_path, "proc/loadavg", "9.00 1 1 1/1 1\n")
    write(tmp_path, "proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    write(tmp_path, "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq", "1800000\n")
    window.start()
    write(tmp_path, "proc/stat", "cpu  75 0 0 25 0 0 0 0 0 0\n")
    write(tmp_path, "proc/loadavg", "2.00 1 1 1/1 1\n")
    write(tmp_path, "proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n")
    noise = window.stop()
    assert (noise.duration_ns, noise.load_1m, noise.cpu_busy_share) == (2 * SECOND, 2.0, 0.75)
    assert (noise.pressure_io_share, noise.pressure_cpu_share) == (0.5, None)
    assert noise.frequency_max_hz == 1_800_000_000


def test_a_machine_without_the_files_knows_only_its_own_process(tmp_path):
    window = NoiseWindow(tmp_path)
    window.start()
    known = {name for name, value in window.stop().model_dump().items() if value is not None}
    assert known == {"duration_ns", "own_cpu_share", "voluntary_switches", "involuntary_switches", "major_faults"}


def test_stopping_what_was_not_started_is_a_bug():
    with pytest.raises(RuntimeError, match="before start"):
        NoiseWindow().stop()
