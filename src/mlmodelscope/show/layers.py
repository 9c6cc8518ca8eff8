"""Turns the summary of a trace into text for people: where a query's time goes, and the slowest layers; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlmodelscope.analyse.layers import LayerShare, OperatorShare, TraceSummary
from mlmodelscope.core.record import Record, TraceFacts
from mlmodelscope.show.units import format_duration, format_share, table

__all__ = ["format_layers", "format_trace"]

_WIDEST = 48


def format_trace(record: Record, facts: TraceFacts, summary: TraceSummary, most: int) -> str:
    """`most` is how many layers are listed."""
    queries = f"{facts.queries} {'query' if facts.queries == 1 else 'queries'}"
    level = facts.level.name.lower()
    about = (record.model.name, f"level {level}", f"{facts.spans} spans", queries, f"{summary.clock} clock")
    lines = [f"trace of {record.id}: {', '.join(about)}"]
    if facts.is_truncated:
        lines.append("truncated: some spans were left out, because the file or the profile reached its limit")
    blocks = ["\n".join(lines), _parts(summary)]
    if summary.layers:
        blocks.append(format_layers(summary.layers, most))
        blocks.append(_operators(summary.operators))
    return "\n\n".join(block for block in blocks if block)


def format_layers(layers: Sequence[LayerShare], most: int) -> str:
    """The slowest layers, with the model's own nodes behind each."""
    header = ("layer", "operator", "nodes of the model", "output", "time", "share")
    rows = [
        (
            _short(layer.name),
            layer.operator or "-",
            _short(" + ".join(layer.nodes)) or "-",
            _shapes(layer.attributes.get("outputs")),
            format_duration(layer.time_ns),
            format_share(layer.share),
        )
        for layer in layers[:most]
    ]
    head = f"slowest {len(rows)} of {len(layers)} layers" if len(rows) < len(layers) else f"{len(layers)} layers"
    return f"{head}\n" + table(header, rows, right=(4, 5))


def _parts(summary: TraceSummary) -> str:
    if not summary.parts_ns:
        return ""
    total = sum(summary.parts_ns.values())
    rows = [
        (name, format_duration(value), format_share(value / total) if total else "-")
        for name, value in summary.parts_ns.items()
    ]
    text = "median query\n" + table(("part", "time", "share"), rows, right=(1, 2))
    if summary.predict_ns and summary.profiled_predict_ns:
        change = 100 * (summary.profiled_predict_ns / summary.predict_ns - 1)
        profiled = format_duration(summary.profiled_predict_ns)
        text += f"\nwith the layer profile predict takes {profiled} ({change:+.1f} %)"
    return text


def _operators(operators: Sequence[OperatorShare]) -> str:
    rows = [
        (item.operator, str(item.layers), format_duration(item.time_ns), format_share(item.share)) for item in operators
    ]
    return "by operator\n" + table(("operator", "layers", "time", "share"), rows, right=(1, 2, 3))


def _shapes(tensors: Any) -> str:
    if not tensors:
        return "-"
    return _short(", ".join("x".join(str(size) for size in tensor["shape"]) or "scalar" for tensor in tensors))


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..."
