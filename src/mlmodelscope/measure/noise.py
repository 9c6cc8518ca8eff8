"""Two looks at the kernel's counters -> the noise of the window between them; a counter that is missing is None.

The window is the whole machine's except where a field says otherwise. Nothing here runs inside a timed region: look
before the first query and after the last.
"""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mlmodelscope.core.system import Noise

__all__ = ["NoiseWindow", "Snapshot", "noise_between", "parse_load", "parse_pressure", "parse_stat"]

_PRESSURES = ("cpu", "memory", "io")
_POLICIES = "sys/devices/system/cpu/cpufreq"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The counters at one moment. `ticks` are user, nice, system, idle, iowait, irq, softirq and steal since boot.

    The last four are of this process with all its threads: /proc/self/status would count the main thread's only.
    """

    time_ns: int
    ticks: tuple[int, ...] | None
    load_1m: float | None
    stalled_us: dict[str, int]
    frequencies_hz: tuple[int, ...]
    own_cpu_ns: int
    voluntary_switches: int
    involuntary_switches: int
    major_faults: int


class NoiseWindow:
    """A window over one measurement: `start()`, measure, `stop()`. A look is a few file reads. Not thread-safe."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._root = root
        self._clock = clock
        self._before: Snapshot | None = None

    def start(self) -> None:
        self._before = self._look()

    def stop(self) -> Noise:
        """The noise since `start()`, which must have been called; calling again looks at a longer window."""
        if self._before is None:
            raise RuntimeError("stop() before start()")
        return noise_between(self._before, self._look())

    def _look(self) -> Snapshot:
        stalled = {name: parse_pressure(_text(self._root / "proc/pressure" / name)) for name in _PRESSURES}
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Snapshot(
            time_ns=self._clock(),
            ticks=parse_stat(_text(self._root / "proc/stat")),
            load_1m=parse_load(_text(self._root / "proc/loadavg")),
            stalled_us={name: total for name, total in stalled.items() if total is not None},
            frequencies_hz=self._frequencies(),
            own_cpu_ns=time.process_time_ns(),
            voluntary_switches=usage.ru_nvcsw,
            involuntary_switches=usage.ru_nivcsw,
            major_faults=usage.ru_majflt,
        )

    def _frequencies(self) -> tuple[int, ...]:
        """What cpufreq says now, one number a policy. /proc/cpuinfo's "cpu MHz" is constant in a virtual machine."""
        folder = self._root / _POLICIES
        try:
            names = sorted(name for name in os.listdir(folder) if name.startswith("policy"))  # noqa: PTH208
        except OSError:
            return ()
        texts = (_text(folder / name / "scaling_cur_freq").strip() for name in names)
        return tuple(int(text) * 1000 for text in texts if text.isdecimal())


def parse_stat(text: str) -> tuple[int, ...] | None:
    """The first eight counts of /proc/stat's total; the guests' that follow are part of user and nice already."""
    match = re.match(r"cpu +((?:\d+ ?){8,})", text)
    return tuple(int(word) for word in match[1].split()[:8]) if match else None


def parse_load(text: str) -> float | None:
    match = re.match(r"\d+(?:\.\d+)?(?= )", text)
    return float(match[0]) if match else None


def parse_pressure(text: str) -> int | None:
    """Microseconds since boot in which some task waited for the resource."""
    match = re.search(r"^some .*\btotal=(\d+)$", text, re.MULTILINE)
    return int(match[1]) if match else None


def noise_between(before: Snapshot, after: Snapshot) -> Noise:
    duration_ns = max(0, after.time_ns - before.time_ns)
    busy, steal = _tick_shares(before.ticks, after.ticks)
    frequencies = before.frequencies_hz + after.frequencies_hz
    pressures = {name: _stalled_share(name, before, after, duration_ns) for name in _PRESSURES}
    return Noise(
        duration_ns=duration_ns,
        load_1m=after.load_1m,
        cpu_busy_share=busy,
        steal_share=steal,
        own_cpu_share=(after.own_cpu_ns - before.own_cpu_ns) / duration_ns if duration_ns else None,
        pressure_cpu_share=pressures["cpu"],
        pressure_memory_share=pressures["memory"],
        pressure_io_share=pressures["io"],
        voluntary_switches=after.voluntary_switches - before.voluntary_switches,
        involuntary_switches=after.involuntary_switches - before.involuntary_switches,
        major_faults=after.major_faults - before.major_faults,
        frequency_min_hz=min(frequencies, default=None),
        frequency_max_hz=max(frequencies, default=None),
    )


def _tick_shares(before: tuple[int, ...] | None, after: tuple[int, ...] | None) -> tuple[float | None, float | None]:
    """Shares of all processors' time spent working and stolen; None where the window is shorter than a tick."""
    if before is None or after is None:
        return None, None
    # idle and iowait may step back a little when a processor sleeps
    user, nice, system, idle, waiting, irq, softirq, stolen = (
        max(0, b - a) for a, b in zip(before, after, strict=True)
    )
    busy = user + nice + system + irq + softirq
    total = busy + idle + waiting + stolen
    return (busy / total, stolen / total) if total else (None, None)


def _stalled_share(name: str, before: Snapshot, after: Snapshot, duration_ns: int) -> float | None:
    if name not in before.stalled_us or name not in after.stalled_us or not duration_ns:
        return None
    # the kernel adds up every two seconds on some paths, so a short window can be charged with more than itself
    return min(1.0, max(0.0, (after.stalled_us[name] - before.stalled_us[name]) * 1000 / duration_ns))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
