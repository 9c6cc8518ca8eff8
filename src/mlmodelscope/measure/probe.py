"""A moment of this machine's time -> how fine its clock is, how steady it works, and how noisy it is.

What is measured here describes the machine and belongs to no evaluation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from mlmodelscope.core.diagnosis import ClockFacts, Steadiness
from mlmodelscope.core.system import Noise
from mlmodelscope.measure.noise import NoiseWindow

__all__ = ["clock_facts", "probe_clock", "probe_noise", "probe_steadiness", "steadiness"]

_READINGS = 20_000
_PIECES = 200
_PIECE_NS = 1_000_000
_SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"


def probe_clock(root: Path = Path("/"), clock: Callable[[], int] = time.monotonic_ns) -> ClockFacts:
    readings = [clock() for _ in range(_READINGS)]
    try:
        source = (root / _SOURCE).read_text(errors="replace").strip() or None
    except OSError:
        source = None
    return clock_facts(readings, source)


def clock_facts(readings: list[int], source: str | None = None) -> ClockFacts:
    """The facts that readings one right after the other show; they must not all be the same."""
    steps = [later - earlier for earlier, later in pairwise(readings)]
    return ClockFacts(
        step_ns=min((step for step in steps if step > 0), default=readings[-1] - readings[0]),
        reading_ns=(readings[-1] - readings[0]) / len(steps),
        source=source,
    )


def probe_steadiness(clock: Callable[[], int] = time.monotonic_ns) -> Steadiness:
    """The same sum a few hundred times, a millisecond or so each."""
    size = 1000
    while _took(size, clock) < _PIECE_NS and size < 10_000_000:
        size *= 2
    return steadiness([_took(size, clock) for _ in range(_PIECES)])


def steadiness(durations_ns: list[int]) -> Steadiness:
    ordered = sorted(durations_ns)
    last = len(ordered) - 1
    median = ordered[last // 2]
    spread = ordered[round(last * 0.9)] - ordered[round(last * 0.1)]
    return Steadiness(pieces=len(ordered), median_ns=median, spread_share=spread / median if median else 0.0)


def probe_noise(seconds: float = 1.0, root: Path = Path("/"), sleep: Callable[[float], None] = time.sleep) -> Noise:
    """What others do while we sleep."""
    window = NoiseWindow(root)
    window.start()
    sleep(seconds)
    return window.stop()


def _took(size: int, clock: Callable[[], int]) -> int:
    begin = clock()
    sum(range(size))
    return clock() - begin
