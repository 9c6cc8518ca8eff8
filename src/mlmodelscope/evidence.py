"""Stored records -> the raw data behind them: latencies per launch, predictions, the spans of a trace."""

from __future__ import annotations

import gzip
import io

from pydantic import TypeAdapter

from mlmodelscope.analyse.comparison import Evidence
from mlmodelscope.analyse.summary import latencies
from mlmodelscope.core.answer import Prediction
from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.record import Record
from mlmodelscope.core.span import Trace
from mlmodelscope.core.store import Store
from mlmodelscope.trace.file import decode_trace

__all__ = ["LATENCIES", "PREDICTIONS", "TRACE", "read_evidence", "read_trace"]

# the names of the artifacts that an evaluation stores
LATENCIES = "latencies.npz"
PREDICTIONS = "predictions.jsonl.gz"
TRACE = "trace.npz"


def read_evidence(store: Store, record: Record) -> Evidence:
    """A record with its raw data: latencies in nanoseconds per launch, and predictions."""
    return Evidence(record, _read_latencies(store, record), _read_predictions(store, record))


def read_trace(store: Store, record: Record) -> Trace:
    """The spans of a record that has a trace."""
    artifact = record.artifact(TRACE)
    if artifact is None:
        raise UsageError(
            f"record {record.id} has no trace", hint="evaluate with --trace-level model or framework", record=record.id
        )
    return decode_trace(store.read_artifact(artifact))


def _read_latencies(store: Store, record: Record) -> list[list[float]]:
    import numpy as np

    artifact = record.artifact(LATENCIES)
    if artifact is None:
        return []
    with np.load(io.BytesIO(store.read_artifact(artifact))) as tables:
        count = sum(name.startswith("launch_") for name in tables.files)
        return [latencies(tables[f"launch_{i}"]) for i in range(count)]


def _read_predictions(store: Store, record: Record) -> list[Prediction]:
    artifact = record.artifact(PREDICTIONS)
    return _parse_predictions(gzip.decompress(store.read_artifact(artifact))) if artifact else []


def _parse_predictions(text: bytes) -> list[Prediction]:
    # all lines at once: half the time of one after the other
    return TypeAdapter(list[Prediction]).validate_json(b"[%s]" % b",".join(text.splitlines()))
