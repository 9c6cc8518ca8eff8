"""A record <-> what the database keeps of it: the facts to search by, the numbers to list, the whole document."""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

from pydantic import ValidationError

from mlmodelscope.core.errors import StoreError
from mlmodelscope.core.record import RECORD_FORMAT, Record
from mlmodelscope.core.value import canonical_json

__all__ = ["artifact_rows", "pack", "record_row", "setup_row", "unpack"]

# Level 6 saves 6 % over level 1 and costs 0.1 ms more per record.
_LEVEL = 6


def setup_row(record: Record) -> dict[str, Any]:
    """The row of `setups`. Its id is made from the other columns, equal wherever the facts are equal."""
    software, system, failure = record.software, record.system, record.failure
    facts: dict[str, Any] = {
        "status": record.status,
        "model": record.model.name,
        "model_version": record.model.version,
        "framework": software.framework if software else _framework_asked_for(record),
        "framework_version": software.framework_version if software else None,
        "dataset": record.dataset.name if record.dataset else None,
        "scenario": record.scenario.type,
        "timed": record.scenario.timed,
        "architecture": system.architecture if system else None,
        "cpu_model": system.cpu_model if system else None,
        "failure_code": failure.code if failure else None,
    }
    digest = hashlib.sha256(canonical_json(facts).encode()).digest()
    # 63 bits: what a signed integer of every database holds; 5e-8 is the chance of one clash among a million setups
    return {"id": int.from_bytes(digest[:8], "big") >> 1} | facts


def record_row(record: Record, setup: int) -> dict[str, Any]:
    """The row of `records`, which belongs to the setup of that id."""
    performance, accuracy = record.performance, record.accuracy
    execution = record.execution
    return {
        "id": record.id,
        "setup": setup,
        "created_at": record.created_at,
        "samples": record.dataset.sample_count if record.dataset else len(record.request.inputs) or None,
        "batch_size": execution.batch_size if execution else record.scenario.batch_size,
        "threads": execution.threads if execution else record.request.threads,
        "system_memory_bytes": record.system.memory_bytes if record.system else None,
        "latency_median_ns": performance.latency_median_ns.value if performance else None,
        "throughput": performance.throughput.value if performance else None,
        "top1": accuracy.top1.value if accuracy and accuracy.top1 else None,
        "memory_bytes": round(performance.memory_bytes.value) if performance else None,
    }


def artifact_rows(record: Record) -> list[dict[str, Any]]:
    return [
        {"record": record.id, "name": item.name, "sha256": item.sha256, "size_bytes": item.size_bytes}
        for item in record.artifacts
    ]


def pack(record: Record) -> bytes:
    return zlib.compress(canonical_json(record).encode(), _LEVEL)


def unpack(record_id: str, format_number: int, body: bytes) -> Record:
    if format_number > RECORD_FORMAT:
        raise StoreError(
            f"record {record_id} has format {format_number}; this version of mlmodelscope reads up to {RECORD_FORMAT}",
            hint="upgrade mlmodelscope",
            id=record_id,
            format=format_number,
            readable=RECORD_FORMAT,
        )
    try:
        return Record.model_validate_json(zlib.decompress(body))
    except (zlib.error, ValidationError) as error:
        raise StoreError(
            f"record {record_id} cannot be read: {str(error).splitlines()[0]}",
            hint="the database is damaged or was changed by another program; restore it from a backup",
            id=record_id,
        ) from error


def _framework_asked_for(record: Record) -> str | None:
    """An evaluation that failed early has no software yet, but people look for it under the framework they named."""
    asked = record.request.framework
    return asked.partition("@")[0].strip() or None if asked else None
