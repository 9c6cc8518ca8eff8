"""Turns the spans of a trace into where the time goes: parts of a query, shares of layers and operators; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from mlmodelscope.core.span import Clock, Span, Trace, TraceLevel

__all__ = ["LayerShare", "OperatorShare", "TraceSummary", "layer_shares", "operator_shares", "summarise_trace"]


@dataclass(frozen=True, slots=True)
class LayerShare:
    """One layer over all profiled queries. `time_ns` is the median over queries of the time in the layer itself, less
    that of layers inside it; `share` is of the sum over all layers. `nodes` are the model's own nodes behind it."""

    name: str
    place: int
    time_ns: float
    share: float
    operator: str
    nodes: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class OperatorShare:
    """All layers of one operator together."""

    operator: str
    layers: int
    time_ns: float
    share: float


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """Where a query's time goes. `parts_ns` are medians over the queries without layer profile; `predict_ns` and
    `profiled_predict_ns` are the median `predict` without and with it: the difference is what profiling costs."""

    clock: Clock
    queries: int
    parts_ns: dict[str, float]
    predict_ns: float | None
    profiled_predict_ns: float | None
    layers: tuple[LayerShare, ...]
    operators: tuple[OperatorShare, ...]


def summarise_trace(trace: Trace) -> TraceSummary:
    queries = [span for span in trace.spans if span.name == "query" and span.level is TraceLevel.APPLICATION]
    rounds = {span.span_id: span.attributes.get("deepest_level") for span in queries}
    plain = [span for span in trace.spans if rounds.get(_parent(span)) == "model"]
    profiled = [span for span in trace.spans if rounds.get(_parent(span)) == "framework" and span.name == "predict"]
    parts = _medians(plain, lambda span: span.name)
    layers = layer_shares(trace.spans)
    return TraceSummary(
        clock=queries[0].clock if queries else "monotonic",
        queries=sum(found == "model" for found in rounds.values()),
        parts_ns=parts,
        predict_ns=parts.get("predict"),
        profiled_predict_ns=median(_length(span) for span in profiled) if profiled else None,
        layers=tuple(layers),
        operators=tuple(operator_shares(layers)),
    )


def layer_shares(spans: Sequence[Span]) -> list[LayerShare]:
    """Every layer once, slowest first."""
    own_ns = _own_times(spans)
    layers: dict[str, list[Span]] = {}
    for span in spans:
        if span.level is TraceLevel.FRAMEWORK:
            layers.setdefault(span.name, []).append(span)
    queries = max(1, len({_query_of(span, spans) for group in layers.values() for span in group}))
    # a layer may run several times in a query (in a loop), or in some queries only
    times = {name: _median_per_query(group, own_ns, spans, queries) for name, group in layers.items()}
    total = sum(times.values())
    found = [
        LayerShare(
            name=name,
            place=place,
            time_ns=times[name],
            share=times[name] / total if total else 0.0,
            operator=str(group[0].attributes.get("operator", "")),
            nodes=tuple(group[0].attributes.get("nodes", ())),
            attributes=group[0].attributes,
        )
        for place, (name, group) in enumerate(layers.items())
    ]
    return sorted(found, key=lambda layer: (-layer.time_ns, layer.place))


def operator_shares(layers: Iterable[LayerShare]) -> list[OperatorShare]:
    """Layers of one operator together, slowest first."""
    groups: dict[str, list[LayerShare]] = {}
    for layer in layers:
        groups.setdefault(layer.operator or "unknown", []).append(layer)
    found = [
        OperatorShare(name, len(group), sum(item.time_ns for item in group), sum(item.share for item in group))
        for name, group in groups.items()
    ]
    return sorted(found, key=lambda item: (-item.time_ns, item.operator))


def _own_times(spans: Sequence[Span]) -> dict[int, int]:
    own = {span.span_id: _length(span) for span in spans}
    for span in spans:
        if span.parent_id is not None and span.level is TraceLevel.FRAMEWORK:
            own[span.parent_id] -= _length(span)
    return own


def _median_per_query(group: Sequence[Span], own_ns: dict[int, int], spans: Sequence[Span], queries: int) -> float:
    sums: dict[int, int] = {}
    for span in group:
        query = _query_of(span, spans)
        sums[query] = sums.get(query, 0) + own_ns[span.span_id]
    return median([*sums.values(), *([0] * (queries - len(sums)))])


def _query_of(span: Span, spans: Sequence[Span]) -> int:
    """The place of the span above all layers; `span_id` is the place in the list."""
    while span.level is TraceLevel.FRAMEWORK and span.parent_id is not None:
        span = spans[span.parent_id]
    return span.span_id


def _medians(spans: Sequence[Span], key: Callable[[Span], str]) -> dict[str, float]:
    groups: dict[str, list[int]] = {}
    for span in spans:
        groups.setdefault(key(span), []).append(_length(span))
    return {name: median(values) for name, values in groups.items()}


def _length(span: Span) -> int:
    return span.end_ns - span.start_ns


def _parent(span: Span) -> int:
    return -1 if span.parent_id is None else span.parent_id
