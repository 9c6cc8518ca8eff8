"""Turns numbers into short text with a unit; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mlmodelscope.core.estimate import Estimate

__all__ = ["format_bytes", "format_duration", "format_estimate", "format_share", "format_throughput", "table"]

# the size of a unit, how many of it make the next one, and its name
_DURATIONS = ((1, 1000, "ns"), (1e3, 1000, "us"), (1e6, 1000, "ms"), (1e9, math.inf, "s"))
_BYTES = ((1, 1024, "B"), (1024, 1024, "KiB"), (1024**2, 1024, "MiB"), (1024**3, math.inf, "GiB"))


def _significant(value: float) -> str:
    """Three significant digits or so after rounding, never in powers of ten."""
    digits = 2 if abs(round(value, 2)) < 10 else 1 if abs(round(value, 1)) < 100 else 0
    if 0 < abs(round(value, 4)) < 0.1:
        digits = 4
    return f"{value:z.{digits}f}"


def _scaled(values: Sequence[float], scales: Sequence[tuple[float, float, str]]) -> tuple[list[str], str]:
    """All values in the unit that suits the first as it will be read: 999.6 us are 1.00 ms."""
    size, _, unit = next(scale for scale in scales if round(abs(values[0]) / scale[0]) < scale[1])
    return [f"{v:z.0f}" if size == 1 and v == int(v) else _significant(v / size) for v in values], unit


def format_duration(nanoseconds: float) -> str:
    (text,), unit = _scaled([nanoseconds], _DURATIONS)
    return f"{text} {unit}"


def format_bytes(size: float) -> str:
    (text,), unit = _scaled([size], _BYTES)
    return f"{text} {unit}"


def format_throughput(per_second: float) -> str:
    return f"{_significant(per_second)} samples/s"


def format_share(share: float) -> str:
    return f"{100 * share:z.1f} %"


def format_estimate(estimate: Estimate | None, kind: str) -> str:
    """A value with its interval: `10.8 ms [10.6, 11.1]`. `kind`: duration, bytes, share or throughput."""
    if estimate is None:
        return "-"
    interval = estimate.interval
    values = [estimate.value, *((interval.low, interval.high) if interval else ())]
    if kind == "share":
        texts, unit = [f"{100 * value:z.1f}" for value in values], "%"
    elif kind == "throughput":
        texts, unit = [_significant(value) for value in values], "samples/s"
    else:
        texts, unit = _scaled(values, _DURATIONS if kind == "duration" else _BYTES)
    text = f"{texts[0]} {unit}"
    if interval is None:
        return text
    note = " within one launch" if interval.basis == "single_launch" else ""
    return f"{text} [{texts[1]}, {texts[2]}]{note}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns as wide as their widest cell; those in `right` are aligned to the right."""
    lines = [list(header), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        .rstrip()
        for line in lines
    )  # fmt: skip
