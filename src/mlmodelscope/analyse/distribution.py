"""Turns raw latencies into shapes to draw (histograms, boxes, cumulative shares), and records into sweeps over batch
sizes; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlmodelscope.analyse.comparison import differences
from mlmodelscope.analyse.sweep import Sweep, sweep_of
from mlmodelscope.core.errors import StatisticError, UsageError
from mlmodelscope.core.factors import FactorGroup
from mlmodelscope.core.record import Record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _Values = Sequence[float] | NDArray[np.number]

__all__ = ["BatchSweep", "Box", "Histogram", "batch_sweeps", "box", "cumulative", "histogram"]

_FEWEST_BINS, _MOST_BINS = 12, 48
# one query in two hundred may lie beyond what is drawn: a single hiccup would squeeze everything else into one bar
_DRAWN_SHARE = 0.995
# what may differ between the records of a sweep; a batch of one is another scenario only by name
_SWEPT = frozenset(((FactorGroup.EXECUTION, "batch_size"), (FactorGroup.SCENARIO, "scenario")))


@dataclass(frozen=True, slots=True)
class Histogram:
    """`counts[i]` values lie between `edges[i]` and `edges[i + 1]`; `beyond` lie above the last edge."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    beyond: int


@dataclass(frozen=True, slots=True)
class Box:
    """Five values that were measured: the nearest ranks of 5, 25, 50, 75 and 95 %."""

    low: float
    first_quartile: float
    median: float
    third_quartile: float
    high: float


@dataclass(frozen=True, slots=True)
class BatchSweep:
    """Records that differ in nothing but the batch size, smallest first, and what their throughputs say."""

    records: tuple[Record, ...]
    sweep: Sweep


def histogram(values: _Values) -> Histogram:
    """Bins of one width (Freedman and Diaconis's) from the smallest value to the one that 99.5 % do not exceed."""
    import numpy as np

    ordered = _ordered(values)
    low, high = float(ordered[0]), float(_rank(ordered, _DRAWN_SHARE))
    if high <= low:
        # one value only; the bin must have a width that a float of this size can show
        half = max(abs(low) * 1e-3, 0.5)
        inside = int(np.sum(ordered <= low))
        return Histogram((low - half, low + half), (inside,), len(ordered) - inside)
    spread = float(_rank(ordered, 0.75) - _rank(ordered, 0.25))
    width = 2 * spread / len(ordered) ** (1 / 3)
    wanted = (high - low) / width if width > 0 else _MOST_BINS
    bins = int(min(_MOST_BINS, max(_FEWEST_BINS, math.ceil(min(wanted, _MOST_BINS)))))
    drawn = ordered[ordered <= high]
    counts, edges = np.histogram(drawn, bins=bins, range=(low, high))
    return Histogram(tuple(map(float, edges)), tuple(map(int, counts)), len(ordered) - len(drawn))


def box(values: _Values) -> Box:
    ordered = _ordered(values)
    return Box(*(float(_rank(ordered, share)) for share in (0.05, 0.25, 0.5, 0.75, 0.95)))


def cumulative(values: _Values, points: int = 120) -> tuple[tuple[float, float], ...]:
    """Pairs (value, share of all values that do not exceed it), from the smallest to the largest; at most `points`."""
    import numpy as np

    if points < 2:
        raise UsageError(f"{points} points make no line", hint="ask for two or more", points=points)
    ordered = _ordered(values)
    ranks = np.unique(np.linspace(0, len(ordered) - 1, min(points, len(ordered))).round().astype(int))
    return tuple((float(ordered[rank]), float(rank + 1) / len(ordered)) for rank in ranks)


def batch_sweeps(records: Iterable[Record]) -> tuple[BatchSweep, ...]:
    """The records with a throughput, in groups that may be laid over batch sizes; groups of a single size are none.

    Of two records with one batch size the newer one counts.
    """
    groups: list[dict[int, Record]] = []
    for record in sorted(records, key=lambda one: one.id):
        if record.performance is None:
            continue
        home = next((group for group in groups if _differ_in_batch(next(iter(group.values())), record)), None)
        if home is None:
            home = {}
            groups.append(home)
        home[record.scenario.batch_size] = record
    return tuple(_sweep(group) for group in groups if len(group) > 1)


def _sweep(group: Mapping[int, Record]) -> BatchSweep:
    ordered = dict(sorted(group.items()))
    throughputs = [(size, one.performance.throughput) for size, one in ordered.items() if one.performance]
    return BatchSweep(tuple(ordered.values()), sweep_of(throughputs))


def _differ_in_batch(left: Record, right: Record) -> bool:
    return all((item.group, item.fact) in _SWEPT for item in differences(left, right))


def _ordered(values: _Values) -> NDArray[np.float64]:
    import numpy as np

    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if not len(ordered):
        raise StatisticError("there are no samples to draw", hint="every launch needs at least one measured query")
    if not np.isfinite(ordered).all():
        raise StatisticError("a sample is not a finite number", hint="check the measurements")
    return ordered


def _rank(ordered: NDArray[np.float64], share: float) -> np.float64:
    """The nearest rank; the share is of so few decimals that a float's last bit must not move the rank."""
    value: np.float64 = ordered[max(1, math.ceil(round(share * len(ordered), 9))) - 1]
    return value
