"""Turns the records of a sweep over batch sizes into a table and a sentence; pure."""

from __future__ import annotations

from collections.abc import Sequence

from mlmodelscope.analyse.sweep import LEAST_GAIN, Sweep
from mlmodelscope.core.record import Record
from mlmodelscope.show.units import format_bytes, format_estimate, table

__all__ = ["format_sweep"]


def format_sweep(records: Sequence[Record], sweep: Sweep) -> str:
    """The records of one model, a line per batch size; those that failed say why."""
    gains = {point.batch_size: point.gain for point in sweep.points}
    header = ("batch", "throughput", "gain", "latency (median)", "memory", "id")
    rows = []
    for record in sorted(records, key=lambda one: one.scenario.batch_size):
        size, performance = record.scenario.batch_size, record.performance
        gain = gains.get(size)
        failed = f"failed: {record.failure.code}" if record.failure else "-"
        rows.append(
            (
                f"{size} *" if size == sweep.optimal else str(size),
                format_estimate(performance.throughput, "throughput") if performance else failed,
                "-" if gain is None else f"{100 * gain:+z.1f} %",
                format_estimate(performance.latency_median_ns, "duration") if performance else "-",
                format_bytes(performance.memory_bytes.value) if performance and performance.memory_bytes else "-",
                record.id,
            )
        )
    first = records[0]
    title = f"{first.model.name} {first.model.version}: throughput over batch size ({first.scenario.type})"
    return "\n".join([title, table(header, rows), _sentence(sweep)])


def _sentence(sweep: Sweep) -> str:
    if sweep.optimal is None:
        return "optimal batch size: none, nothing was measured"
    text = f"optimal batch size: {sweep.optimal}"
    if sweep.is_open:
        text += ", the largest tried: a larger one may be better still"
    else:
        text += f"; no larger one adds {100 * LEAST_GAIN:g} % per doubling"
    if sweep.certainty == "uncertain":
        text += " (not certain: the intervals leave room for another)"
    return text
