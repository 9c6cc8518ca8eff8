"""Turns a trace into Chrome's trace event JSON, which chrome://tracing and the Perfetto UI open."""

from __future__ import annotations

import json
from typing import Any

from mlmodelscope.core.span import Span, Trace
from mlmodelscope.trace.timeline import Lane, lanes

__all__ = ["format_chrome"]


def format_chrome(trace: Trace, title: str) -> bytes:
    """A complete event per span; times in microseconds since the first span. `title` names the process."""
    events: list[dict[str, Any]] = []
    for lane in lanes(trace, title):
        events.append(_metadata(lane, "process_name", lane.name))
        events.append(_metadata(lane, "thread_name", f"{lane.clock} clock"))
        events += [_event(lane, span) for span in lane.spans]
    about = {
        "trace_id": trace.trace_id,
        "level": trace.level.name.lower(),
        "started_at": trace.started_at,
        "anchor_ns": trace.anchor_ns,
        "origin_ns": {lane.clock: lane.origin_ns for lane in lanes(trace, title)},
        "left_out": trace.left_out,
    }
    content = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}
    return json.dumps(content, separators=(",", ":")).encode()


def _metadata(lane: Lane, what: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": lane.number, "tid": lane.number, "name": what, "args": {"name": name}}


def _event(lane: Lane, span: Span) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": lane.number,
        "tid": lane.number,
        "name": span.name,
        "cat": span.level.name.lower(),
        "ts": (span.start_ns - lane.origin_ns) / 1000,
        "dur": (span.end_ns - span.start_ns) / 1000,
        "args": {**span.attributes, "level": int(span.level), "clock": span.clock},
    }
