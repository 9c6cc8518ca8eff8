import json

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.span import Span, Trace, TraceLevel
from mlmodelscope.trace.chrome import format_chrome
from mlmodelscope.trace.perfetto import format_perfetto
from mlmodelscope.trace.timeline import lanes, walk

ANCHOR_NS = 5_000_000
STARTED_AT = "2026-01-02T03:04:05.000006+00:00"


def span(place, parent, name, start, end, level=TraceLevel.APPLICATION, clock="monotonic", **attributes):
    return Span(
        trace_id="ab",
        span_id=place,
        parent_id=parent,
        name=name,
        level=level,
        clock=clock,
        start_ns=start,
        end_ns=end,
        attributes=attributes,
    )


def trace_of(*spans):
    return Trace("ab", TraceLevel.FRAMEWORK, STARTED_AT, ANCHOR_NS, tuple(spans), left_out=3)


TRACE = trace_of(
    span(0, None, "launch", 4_000_000, 9_000_000),
    span(1, 0, "query", 6_000_000, 8_000_500, query=7),
    span(2, 1, "predict", 6_000_000, 8_000_500, TraceLevel.MODEL),
    span(3, 2, "conv «1»", 6_000_100, 7_000_000, TraceLevel.FRAMEWORK, nodes=["a", "b"], output_bytes=12),
    span(4, 2, "nothing", 8_000_500, 8_000_500, TraceLevel.FRAMEWORK),
    span(5, 0, "query", 40, 90, clock="simulated"),
)


class TestChrome:
    def content(self):
        return json.loads(format_chrome(TRACE, "model on framework"))

    def test_every_span_is_an_event_in_microseconds_from_the_first(self):
        events = [event for event in self.content()["traceEvents"] if event["ph"] == "X"]
        assert [event["name"] for event in events] == ["launch", "query", "predict", "conv «1»", "nothing", "query"]
        conv = events[3]
        assert (conv["ts"], conv["dur"], conv["cat"]) == (2000.1, 999.9, "framework")
        assert conv["args"] == {"nodes": ["a", "b"], "output_bytes": 12, "level": 3, "clock": "monotonic"}

    def test_clocks_never_share_a_lane(self):
        events = self.content()["traceEvents"]
        assert {event["pid"] for event in events if event["args"].get("clock") == "simulated"} == {2}
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        assert names == {1: "model on framework", 2: "model on framework (simulated time)"}

    def test_the_anchor_and_what_was_left_out_are_told(self):
        about = self.content()["otherData"]
        assert (about["started_at"], about["anchor_ns"], about["left_out"]) == (STARTED_AT, ANCHOR_NS, 3)
        assert about["origin_ns"] == {"monotonic": 4_000_000, "simulated": 40}


def fields(data):
    """A protobuf message as (field number, int or bytes), in order."""
    found, place = [], 0

    def varint():
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(data):
        key = varint()
        assert key & 7 in (0, 2)
        value = varint()
        if key & 7 == 2:
            assert place + value <= len(data)
            value, place = data[place : place + value], place + value
        found.append((key >> 3, value))
    return found


def packets(content):
    assert {number for number, _ in fields(content)} == {1}
    return [dict(fields(packet)) for _, packet in fields(content)]


class TestPerfetto:
    def test_the_wall_clock_is_tied_to_the_monotonic_clock(self):
        clocks = fields(packets(format_perfetto(TRACE, "m"))[0][6])
        readings = [dict(fields(value)) for number, value in clocks if number == 1]
        assert readings == [{1: 3, 2: ANCHOR_NS}, {1: 1, 2: 1_767_323_045_000_006_000}]
        assert dict(clocks)[2] == 3

    def test_processes_and_threads_have_names(self):
        tracks = [dict(fields(packet[60])) for packet in packets(format_perfetto(TRACE, "m")) if 60 in packet]
        processes = [dict(fields(track[3]))[6] for track in tracks if 3 in track]
        threads = [dict(fields(track[4]))[5] for track in tracks if 4 in track]
        assert processes == [b"m", b"m (simulated time)"]
        assert threads == [b"monotonic clock", b"simulated clock"]

    def test_begins_and_ends_pair_up_in_the_order_of_time(self):
        open_names, last, seen = {1: [], 2: []}, {1: 0, 2: 0}, []
        for packet in packets(format_perfetto(TRACE, "m")):
            if 11 not in packet:
                continue
            event, time = dict(fields(packet[11])), packet[8]
            track = event[11]
            assert time >= last[track]
            last[track] = time
            if event[9] == 1:
                open_names[track].append((event[23], time))
            else:
                name, began = open_names[track].pop()
                seen.append((name.decode(), time - began))
        assert open_names == {1: [], 2: []}
        lengths = [(span.name, span.end_ns - span.start_ns) for span in TRACE.spans]
        assert sorted(seen) == sorted(lengths)

    def test_simulated_time_begins_with_the_measured_spans(self):
        times = [packet[8] for packet in packets(format_perfetto(TRACE, "m")) if 11 in packet]
        assert times[-2:] == [4_000_000, 4_000_050]

    @pytest.mark.parametrize("trace", [trace_of(), trace_of(span(0, None, "q", 7, 9, clock="simulated"))])
    def test_a_trace_without_measured_spans_can_be_written(self, trace):
        assert len([packet for packet in packets(format_perfetto(trace, "m")) if 11 in packet]) == 2 * len(trace.spans)
        json.loads(format_chrome(trace, "m"))


@st.composite
def nested(draw):
    """Spans that lie inside their parents, as our own tables are."""
    spans = [span(0, None, "root", 0, 1000)]
    for place in range(1, draw(st.integers(1, 15))):
        parent = spans[draw(st.integers(0, place - 1))]
        siblings = [item for item in spans if item.parent_id == parent.span_id]
        free = max([parent.start_ns, *(item.end_ns for item in siblings)])
        start = draw(st.integers(free, parent.end_ns))
        spans.append(span(place, parent.span_id, str(place), start, draw(st.integers(start, parent.end_ns))))
    return trace_of(*spans)


@given(nested())
def test_the_walk_closes_every_span_inside_its_parent(trace):
    (lane,) = lanes(trace, "m")
    waiting, closed = [], []
    for is_begin, item in walk(lane):
        if is_begin:
            waiting.append(item.span_id)
        else:
            assert waiting.pop() == item.span_id
            closed.append(item.span_id)
    assert not waiting
    assert sorted(closed) == list(range(len(trace.spans)))
