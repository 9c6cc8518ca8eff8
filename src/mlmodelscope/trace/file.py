"""Turns a table of spans into a compressed file of columns within a limit of size, and such a file into a trace."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

from mlmodelscope.core.errors import StoreError
from mlmodelscope.core.span import Span, Trace, TraceLevel
from mlmodelscope.trace.table import CLOCKS, SpanTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Columns = dict[str, NDArray[Any]]

__all__ = ["LIMIT_BYTES", "TRACE_FORMAT", "decode_trace", "encode_trace"]

TRACE_FORMAT = 1
LIMIT_BYTES = 64 * 1024 * 1024
# columns of a full file unpack to a few times its size; more than this is a bomb, not a trace
_MOST_UNPACKED_BYTES = 32 * LIMIT_BYTES
_COLUMNS = ("name", "attributes", "parent", "level", "clock", "start", "duration")


def encode_trace(
    table: SpanTable, trace_id: str, started_at: str, anchor_ns: int, limit_bytes: int = LIMIT_BYTES
) -> tuple[bytes, int]:
    """The file, and how many spans are in it: all, or as many whole queries from the start as the limit allows."""
    header = {
        "format": TRACE_FORMAT,
        "trace_id": trace_id,
        "level": int(table.level),
        "started_at": started_at,
        "anchor_ns": anchor_ns,
    }
    keep = len(table)
    while True:
        content = _pack({**header, "left_out": len(table) - keep}, table, keep)
        if len(content) <= limit_bytes or keep == 0:
            return content, keep
        # a little less than in proportion, so that the next try fits
        keep = _whole_queries(table, min(keep - 1, int(keep * limit_bytes / len(content) * 0.95)))


def _whole_queries(table: SpanTable, keep: int) -> int:
    return max((seam for seam in table.seams if seam <= keep), default=keep)


def _pack(header: dict[str, Any], table: SpanTable, keep: int) -> bytes:
    import numpy as np

    names, attributes, strings = _used_strings(table, keep)
    starts = np.array(table.starts[:keep], dtype=np.int64)
    columns: dict[str, Any] = {
        "header": _text(json.dumps(header)),
        "strings": _text(json.dumps(strings)),
        "name": names,
        "attributes": attributes,
        "parent": np.array(table.parents[:keep], dtype=np.int32),
        "level": np.array(table.levels[:keep], dtype=np.uint8),
        "clock": np.array(table.clocks[:keep], dtype=np.uint8),
        # neighbours are close in time: differences compress far better than times
        "start": np.diff(starts, prepend=np.int64(0)),
        "duration": np.array(table.ends[:keep], dtype=np.int64) - starts,
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **columns)
    return buffer.getvalue()


def _used_strings(table: SpanTable, keep: int) -> tuple[NDArray[Any], NDArray[Any], list[str]]:
    import numpy as np

    both = np.concatenate([np.array(column[:keep], dtype=np.int32) for column in (table.names, table.attributes)])
    used, places = np.unique(both, return_inverse=True)
    strings = table.strings
    places = places.reshape(-1).astype(np.int32)
    return places[:keep], places[keep:], [strings[place] for place in used]


def _text(text: str) -> NDArray[Any]:
    import numpy as np

    return np.frombuffer(text.encode(), dtype=np.uint8)


def decode_trace(content: bytes) -> Trace:
    """The trace in a file. Raises StoreError when the file is none, is damaged, or of a newer format."""
    try:
        columns = _unpack(content)
        header = json.loads(bytes(columns["header"]))
        if header["format"] > TRACE_FORMAT:
            raise StoreError(
                f"the trace has format {header['format']}, this version reads {TRACE_FORMAT}",
                hint="use a newer version of mlmodelscope",
            )
        return _trace(header, json.loads(bytes(columns["strings"])), columns)
    except (ValueError, KeyError, IndexError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise StoreError(f"the trace cannot be read: {error}") from error


def _unpack(content: bytes) -> Columns:
    import numpy as np

    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
    if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
        # the library would unpack it as a whole, whatever size the table of contents gives
        raise ValueError("it is packed neither by deflate nor not at all")
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > _MOST_UNPACKED_BYTES:
        raise ValueError(f"it unpacks to {unpacked} bytes")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return {name: file[name] for name in ("header", "strings", *_COLUMNS)}


def _trace(header: dict[str, Any], strings: list[str], columns: Columns) -> Trace:
    import numpy as np

    starts = np.cumsum(columns["start"])
    ends = starts + columns["duration"]
    rows = zip(
        *(columns[name].tolist() for name in ("name", "attributes", "parent", "level", "clock")),
        starts.tolist(),
        ends.tolist(),
        strict=True,
    )
    attributes: dict[int, dict[str, Any]] = {}
    spans = []
    for place, (name, facts, parent, level, clock, start, end) in enumerate(rows):
        if facts not in attributes:
            attributes[facts] = json.loads(strings[facts])
        if not -1 <= parent < place:
            raise ValueError(f"span {place} comes before its parent")
        spans.append(
            Span(
                trace_id=header["trace_id"],
                span_id=place,
                parent_id=None if parent < 0 else parent,
                name=strings[name],
                level=TraceLevel(level),
                clock=CLOCKS[clock],
                start_ns=start,
                end_ns=end,
                attributes=attributes[facts],
            )
        )
    return Trace(
        trace_id=header["trace_id"],
        level=TraceLevel(header["level"]),
        started_at=header["started_at"],
        anchor_ns=header["anchor_ns"],
        spans=tuple(spans),
        left_out=header["left_out"],
    )
