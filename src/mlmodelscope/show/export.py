"""Pages of history -> CSV or Parquet, a page at a time: what is exported need not fit into memory."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import astuple, fields
from typing import IO, Any

from mlmodelscope.core.errors import EnvironmentMissingError
from mlmodelscope.core.store import HistoryPage, HistoryRow
from mlmodelscope.show.report.columns import csv_cell

__all__ = ["COLUMNS", "write_csv", "write_parquet"]

COLUMNS = tuple(field.name for field in fields(HistoryRow))

# the types of a file do not hang on what is in it: an empty history has the columns of a full one
_WHOLE = frozenset(("batch_size", "memory_bytes", "samples", "threads"))
_REAL = frozenset(("latency_median_ns", "throughput", "top1"))


def write_csv(pages: Iterable[HistoryPage], file: IO[bytes]) -> int:
    """A header and one line per record; returns the number of records. An unknown value is empty."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    try:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        count = 0
        for page in pages:
            writer.writerows([csv_cell(value) for value in astuple(row)] for row in page.rows)
            count += len(page.rows)
        return count
    finally:
        # the file belongs to the caller
        text.detach()


def write_parquet(pages: Iterable[HistoryPage], file: IO[bytes]) -> int:
    """A Parquet file with one row group per page; returns the number of records.

    EnvironmentMissingError without pyarrow.
    """
    arrow, parquet = _import_arrow()
    schema = arrow.schema([arrow.field(name, _type(arrow, name), nullable=True) for name in COLUMNS])
    count = 0
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in _tables(arrow, schema, pages):
            writer.write_table(table)
            count += table.num_rows
    return count


def _import_arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise EnvironmentMissingError(
            "Parquet files are written by pyarrow, which is not installed",
            hint="pip install 'mlmodelscope[report]', or export to a .csv file",
            package="pyarrow",
        ) from None
    return pyarrow, parquet


def _tables(arrow: Any, schema: Any, pages: Iterable[HistoryPage]) -> Iterator[Any]:
    for page in pages:
        columns = [[getattr(row, name) for row in page.rows] for name in COLUMNS]
        yield arrow.table([arrow.array(values, type=schema.field(i).type) for i, values in enumerate(columns)], schema)


def _type(arrow: Any, name: str) -> Any:
    return arrow.int64() if name in _WHOLE else arrow.float64() if name in _REAL else arrow.string()
