"""Turns a trace into Perfetto's own format (.pftrace): nanoseconds kept, wall-clock time known.

The file is a protobuf message `Trace` of packets. We write it ourselves: a handful of fields, against a package that
would bring the protobuf runtime along. Field numbers are those of perfetto's `protos/perfetto/trace`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from mlmodelscope.core.span import Span, Trace
from mlmodelscope.trace.timeline import Lane, lanes, walk

__all__ = ["format_perfetto"]

_REALTIME, _MONOTONIC = 1, 3
_SLICE_BEGIN, _SLICE_END = 1, 2
_SEQUENCE = 1
# tracks are named by numbers: threads by those of their lanes, processes from here on
_FIRST_PROCESS = 1 << 32


def format_perfetto(trace: Trace, title: str) -> bytes:
    """`title` names the process. Simulated time begins where the measured spans begin, on a process of its own."""
    found = lanes(trace, title)
    packets = [_clocks(trace), *(packet for lane in found for packet in _descriptors(lane))]
    origin = found[0].origin_ns if found and found[0].clock == "monotonic" else trace.anchor_ns
    for lane in found:
        shift = 0 if lane.clock == "monotonic" else origin - lane.origin_ns
        packets += [_event(lane, is_begin, span, shift) for is_begin, span in walk(lane)]
    return b"".join(_message(1, packet) for packet in packets)


def _clocks(trace: Trace) -> bytes:
    """The anchor: what both clocks showed at one moment."""
    since = datetime.fromisoformat(trace.started_at) - datetime(1970, 1, 1, tzinfo=UTC)
    wall_ns = (since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds) * 1000
    readings = ((_MONOTONIC, trace.anchor_ns), (_REALTIME, wall_ns))
    clocks = b"".join(_message(1, _number(1, clock) + _number(2, time)) for clock, time in readings)
    return _packet(_message(6, clocks + _number(2, _MONOTONIC)))


def _descriptors(lane: Lane) -> list[bytes]:
    """The process, then its one thread, which holds the spans."""
    owner = _FIRST_PROCESS + lane.number
    process = _number(1, lane.number) + _text(6, lane.name)
    thread = _number(1, lane.number) + _number(2, lane.number) + _text(5, f"{lane.clock} clock")
    return [
        _packet(_message(60, _number(1, owner) + _message(3, process))),
        _packet(_message(60, _number(1, lane.number) + _number(5, owner) + _message(4, thread))),
    ]


def _event(lane: Lane, is_begin: bool, span: Span, shift: int) -> bytes:
    event = _number(9, _SLICE_BEGIN if is_begin else _SLICE_END) + _number(11, lane.number)
    if is_begin:
        event += _text(22, span.level.name.lower()) + _text(23, span.name)
        facts = {**span.attributes, "level": int(span.level), "clock": span.clock}
        event += b"".join(_annotation(name, value) for name, value in facts.items())
    time = (span.start_ns if is_begin else span.end_ns) + shift
    return _packet(_number(8, time) + _number(58, _MONOTONIC) + _message(11, event))


def _annotation(name: str, value: Any) -> bytes:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    shown = value if isinstance(value, str) else json.dumps(value)
    return _message(4, _text(10, name) + (_number(3, value) if is_count else _text(6, shown)))


def _packet(fields: bytes) -> bytes:
    return fields + _number(10, _SEQUENCE)


def _message(field: int, content: bytes) -> bytes:
    return _tag(field, 2) + _varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode(errors="replace"))


def _number(field: int, value: int) -> bytes:
    return _tag(field, 0) + _varint(value)


def _tag(field: int, wire: int) -> bytes:
    return _varint(field << 3 | wire)


def _varint(value: int) -> bytes:
    return bytes(_varint_bytes(value))


def _varint_bytes(value: int) -> Iterator[int]:
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value
