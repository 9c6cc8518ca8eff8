import io
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.errors import StoreError
from mlmodelscope.core.span import TraceLevel
from mlmodelscope.trace.file import decode_trace, encode_trace
from mlmodelscope.trace.table import SpanTable, add_query

HEAD = ("00ff", "2026-01-02T03:04:05+00:00", 77)
LEVELS = st.sampled_from([TraceLevel.APPLICATION, TraceLevel.MODEL, TraceLevel.FRAMEWORK])
ATTRIBUTES = st.dictionaries(st.text(max_size=5), st.integers() | st.text() | st.lists(st.integers()), max_size=3)
SPANS = st.lists(
    st.tuples(
        st.text(),
        LEVELS,
        st.sampled_from(["monotonic", "simulated"]),
        st.integers(0, 2**62),
        st.integers(0, 2**40),
        st.integers(-1, 30),
        ATTRIBUTES,
    ),
    max_size=20,
)


def queries(count):
    table = SpanTable(TraceLevel.FRAMEWORK)
    root = table.add("launch", TraceLevel.APPLICATION, "monotonic", 0, 10**9)
    generator = np.random.default_rng(0)
    for number in range(count):
        stamps = np.cumsum(generator.integers(1, 10**6, 6)).tolist()
        add_query(table, stamps, "monotonic", root, {"query": number, "samples": [f"{generator.integers(10**9)}.jpg"]})
    return table


@given(SPANS)
def test_what_is_written_is_read_again(rows):
    table = SpanTable(TraceLevel.FRAMEWORK)
    for name, level, clock, start, length, parent, attributes in rows:
        table.add(name, level, clock, start, start + length, min(parent, len(table) - 1), attributes)
    content, kept = encode_trace(table, *HEAD)
    trace = decode_trace(content)
    assert kept == len(rows) == len(trace.spans)
    assert (trace.trace_id, trace.started_at, trace.anchor_ns, trace.left_out) == (*HEAD, 0)
    assert trace.level is TraceLevel.FRAMEWORK
    for place, (span, row) in enumerate(zip(trace.spans, rows, strict=True)):
        name, level, clock, start, length, parent, attributes = row
        assert (span.span_id, span.trace_id) == (place, "00ff")
        assert (span.name, span.level, span.clock) == (name, level, clock)
        assert (span.start_ns, span.end_ns) == (start, start + length)
        assert span.parent_id == (None if min(parent, place - 1) < 0 else min(parent, place - 1))
        assert span.attributes == attributes


def test_a_trace_is_small():
    content, kept = encode_trace(queries(1000), *HEAD)
    assert len(content) < 40 * kept


@pytest.mark.parametrize("limit", [3000, 20_000, 60_000])
def test_a_trace_beyond_the_limit_is_cut_between_queries_and_says_so(limit):
    table = queries(2000)
    content, kept = encode_trace(table, *HEAD, limit_bytes=limit)
    trace = decode_trace(content)
    assert len(content) <= limit
    assert 0 < kept < len(table)
    assert trace.left_out == len(table) - kept
    assert len(trace.spans) == kept
    assert kept in table.seams
    assert trace.spans[-1].name == "postprocess"


def test_a_limit_below_everything_leaves_an_empty_trace():
    table = queries(3)
    content, kept = encode_trace(table, *HEAD, limit_bytes=1)
    assert kept == 0
    assert decode_trace(content).left_out == len(table)


def repacked(**changes):
    content, _ = encode_trace(queries(2), *HEAD)
    with np.load(io.BytesIO(content)) as file:
        columns = {name: file[name] for name in file.files}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{name: value for name, value in (columns | changes).items() if value is not None})
    return buffer.getvalue()


def text(value):
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no trace",
        encode_trace(queries(5), *HEAD)[0][:-40],
        repacked(header=None),
        repacked(header=text({"format": 1})),
        repacked(strings=text(["one"])),
        repacked(level=np.zeros(1, np.uint8)),
        repacked(level=np.full(13, 99, np.uint8)),
        repacked(parent=np.arange(13, dtype=np.int32)),
    ],
)
def test_a_damaged_file_is_an_error_of_the_store(content):
    with pytest.raises(StoreError, match="cannot be read"):
        decode_trace(content)


def test_a_newer_format_is_named():
    with pytest.raises(StoreError, match="format 2") as caught:
        decode_trace(repacked(header=text({"format": 2})))
    assert "newer version" in caught.value.hint


def test_a_bomb_is_not_unpacked(monkeypatch):
    content, _ = encode_trace(queries(100), *HEAD)
    monkeypatch.setattr("mlmodelscope.trace.file._MOST_UNPACKED_BYTES", 10_000)
    with pytest.raises(StoreError, match="unpacks to"):
        decode_trace(content)


def test_a_packing_that_says_nothing_of_its_size_is_refused():
    content, _ = encode_trace(queries(1), *HEAD)
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_BZIP2) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(StoreError, match="packed neither"):
        decode_trace(packed.getvalue())
