"""Ranges of values -> axes: where a value lies in per cent of the width, and which round numbers are written below."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Axis", "batch_axis", "duration_axis", "rate_axis", "share_axis"]

_DURATIONS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
# beyond this ratio of the ends, equal steps would hide the small values
_LOG_RATIO = 12.0
_MOST_TICKS = 6


@dataclass(frozen=True, slots=True)
class Axis:
    """`at` gives per cent from the low end, never outside 0 to 100."""

    low: float
    high: float
    is_log: bool
    ticks: tuple[tuple[float, str], ...]
    unit: str

    def at(self, value: float) -> float:
        if self.is_log:
            place = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            place = (value - self.low) / (self.high - self.low)
        return 100 * min(1.0, max(0.0, place))


def duration_axis(values_ns: Iterable[float], *, from_zero: bool = False, may_be_log: bool = False) -> Axis:
    low, high = _ends(values_ns)
    size, unit = next((scale for scale in _DURATIONS if high >= scale[0]), _DURATIONS[-1])
    if may_be_log and not from_zero and low > 0 and high / low > _LOG_RATIO:
        return _log(low, high, size, unit)
    return _linear(0.0 if from_zero else low, high, size, unit)


def rate_axis(values: Iterable[float]) -> Axis:
    return _linear(0.0, _ends(values)[1], 1.0, "samples/s")


def share_axis(values: Iterable[float]) -> Axis:
    """Per cent. A narrow range is widened to a tenth, so that a hair's breadth never looks like a gulf."""
    low, high = _ends(values)
    middle = (low + high) / 2
    low, high = max(0.0, min(low, middle - 0.05)), min(1.0, max(high, middle + 0.05))
    axis = _linear(low, high, 0.01, "%")
    return Axis(max(0.0, axis.low), min(1.0, axis.high), False, axis.ticks, axis.unit)


def batch_axis(sizes: Iterable[int]) -> Axis:
    """Every doubling takes the same width."""
    known = sorted(set(sizes))
    low, high = known[0], known[-1]
    return Axis(low * 0.85, high / 0.85, True, tuple((float(size), str(size)) for size in known), "per query")


def _ends(values: Iterable[float]) -> tuple[float, float]:
    known = list(values)
    return min(known), max(known)


def _linear(low: float, high: float, size: float, unit: str) -> Axis:
    low, high = low / size, high / size
    if high <= low:
        margin = abs(low) * 0.05 or 1.0
        low, high = (low, low + margin) if low == 0 else (low - margin, low + margin)
    step = _step((high - low) / (_MOST_TICKS - 1))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = [(number * step, f"{number * step:,.{decimals}f}") for number in range(first, last + 1)]
    return Axis(first * step * size, last * step * size, False, _scaled(ticks, size), unit)


def _log(low: float, high: float, size: float, unit: str) -> Axis:
    low, high = low / size, high / size
    numbers = [
        factor * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for factor in (1, 2, 5)
    ]
    below = max((number for number in numbers if number <= low * 1.001), default=low)
    above = min((number for number in numbers if number >= high * 0.999), default=high)
    inside = [number for number in numbers if below <= number <= above]
    while len(inside) > _MOST_TICKS + 1:
        inside = inside[::2]
    return Axis(below * size, above * size, True, _scaled([(number, f"{number:g}") for number in inside], size), unit)


def _step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, ... times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999)


def _scaled(ticks: Iterable[tuple[float, str]], size: float) -> tuple[tuple[float, str], ...]:
    return tuple((value * size, text) for value, text in ticks)
