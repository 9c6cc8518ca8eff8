"""Turns the time stamps of all launches into the performance part of a record; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mlmodelscope.analyse.statistics import (
    mean_of,
    median_over_launches,
    percentile_over_launches,
    trimmed_mean_over_launches,
)
from mlmodelscope.core.errors import StatisticError
from mlmodelscope.core.estimate import Estimate
from mlmodelscope.core.record import LaunchFacts, Performance

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Stamps = NDArray[np.int64]

__all__ = ["OFFLINE_PARTS", "PARTS", "PERCENTILES", "latencies", "parts_in_order", "summarise", "summarise_offline"]

# no p50: the median over launches is the headline, and a second number for "the middle" would only confuse
PERCENTILES = {"p90": 0.90, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
PARTS = ("decode", "transform", "predict", "postprocess")
# of the whole query, in the predicting thread; together they are its whole time
OFFLINE_PARTS = ("waiting for samples", "predict", "postprocess", "batching")
_ORDER = ("decode", "transform", "waiting for samples", "predict", "postprocess", "batching")


def parts_in_order(parts: Iterable[str]) -> list[str]:
    """Names of parts of a query, each once, in the order in which they happen; a store may have sorted them."""
    known = dict.fromkeys(parts)
    ordered = [name for name in _ORDER if name in known]
    return ordered + [name for name in known if name not in _ORDER]


def latencies(stamps: Stamps) -> list[float]:
    """Nanoseconds per query: the last time stamp of each row less the first."""
    return [float(value) for value in stamps[:, -1] - stamps[:, 0]]


def summarise(stamps: Sequence[Stamps], launches: Sequence[LaunchFacts], batch_size: int) -> Performance:
    """Numbers over launches. Throughput: samples over the time spent inside the timed region, per launch."""
    per_launch = [latencies(table) for table in stamps]
    percentiles: dict[str, Estimate] = {}
    refused: dict[str, str] = {}
    for name, share in PERCENTILES.items():
        try:
            percentiles[name] = percentile_over_launches(per_launch, share)
        except StatisticError as error:
            refused[name] = error.message
    first = [float(item.first_inference_ns) for item in launches if item.first_inference_ns is not None]
    memory = [float(item.peak_memory_bytes) for item in launches if item.peak_memory_bytes is not None]
    return Performance(
        clock=launches[0].clock,
        latency_median_ns=median_over_launches(per_launch),
        latency_trimmed_mean_ns=trimmed_mean_over_launches(per_launch),
        latency_mean_ns=_counted(mean_of([sum(values) / len(values) for values in per_launch]), per_launch),
        latency_min_ns=min(min(values) for values in per_launch),
        latency_max_ns=max(max(values) for values in per_launch),
        percentiles_ns=percentiles,
        refused=refused,
        parts_ns=_parts(stamps),
        throughput=_counted(mean_of([_throughput(values, batch_size) for values in per_launch]), per_launch),
        load_ns=mean_of([float(item.load_ns) for item in launches]),
        first_inference_ns=mean_of(first) if first else None,
        memory_bytes=mean_of(memory) if memory else None,
    )


def summarise_offline(stamps: Sequence[Stamps], work: Sequence[Stamps], launches: Sequence[LaunchFacts]) -> Performance:
    """Numbers over launches of one query each. `work`: decode and transform of each sample in its thread, in ns.

    The parts of the query are those of the predicting thread; decode and transform are medians of one sample, and run
    beside them.
    """
    ends = [table[:, [0, -1]] for table in stamps]
    parts = {
        f"{name} (a sample)": median_over_launches([[float(v) for v in table[:, i]] for table in work])
        for i, name in enumerate(PARTS[:2])
    }
    return summarise(ends, launches, launches[0].samples).model_copy(
        # one query per launch: a percentile of these would only repeat the slowest
        update={"parts_ns": parts | _spans(stamps, OFFLINE_PARTS), "percentiles_ns": {}, "refused": {}}
    )


def _throughput(values: Sequence[float], batch_size: int) -> float:
    if not any(values):
        raise StatisticError(
            "a launch whose every query took 0 ns has no throughput", hint="use a clock that can see a query"
        )
    return len(values) * batch_size * 1e9 / sum(values)


def _counted(estimate: Estimate, per_launch: Sequence[Sequence[float]]) -> Estimate:
    """The same estimate with the number of queries behind it instead of the number of launches."""
    return Estimate(estimate.value, estimate.interval, sum(len(values) for values in per_launch), estimate.launches)


def _parts(stamps: Sequence[Stamps]) -> dict[str, Estimate]:
    """The median of each part of a pipeline query; medians of parts need not add up to the median of the whole."""
    if stamps[0].shape[1] != len(PARTS) + 1:
        return {}
    return _spans(stamps, PARTS)


def _spans(stamps: Sequence[Stamps], names: Sequence[str]) -> dict[str, Estimate]:
    return {
        name: median_over_launches([[float(v) for v in table[:, i + 1] - table[:, i]] for table in stamps])
        for i, name in enumerate(names)
    }
