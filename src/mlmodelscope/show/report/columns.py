"""Records -> rows of plain values under column names that stay, and these as CSV text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mlmodelscope.analyse.comparison import Comparison
from mlmodelscope.core.estimate import Estimate
from mlmodelscope.core.record import Record
from mlmodelscope.show.report.data import Entry, ReportData

__all__ = ["columns", "csv_cell", "format_csv", "write_rows"]

Value = str | int | float | bool | None

_PERCENTILES = ("p90", "p95", "p99", "p99.9")
_PARTS = ("decode", "transform", "predict", "postprocess")


def format_csv(data: ReportData) -> str:
    """A header and one row per record. Columns are added at the end and never renamed; an unknown value is empty."""
    comparisons = {comparison.right: comparison for comparison in data.comparisons}
    rows = [columns(entry, comparisons.get(entry.record.id)) for entry in data.entries]
    stream = io.StringIO(newline="")
    write_rows(csv.writer(stream, lineterminator="\n"), rows)
    return stream.getvalue()


def write_rows(writer: Any, rows: Sequence[Mapping[str, Value]]) -> None:
    writer.writerow(list(rows[0]))
    writer.writerows([csv_cell(value) for value in row.values()] for row in rows)


def csv_cell(value: Value) -> Value:
    """Text that a spreadsheet would run as a formula gets an apostrophe before it: names come from strangers."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def columns(entry: Entry, comparison: Comparison | None) -> dict[str, Value]:
    record = entry.record
    return {
        **_identity(record),
        **_machine(record),
        **_performance(record),
        **_accuracy(record),
        **_comparison(comparison),
        "failure_stage": record.failure.stage if record.failure else None,
        "failure_code": record.failure.code if record.failure else None,
        "failure_message": record.failure.message if record.failure else None,
        "warnings": "; ".join((*record.warnings, *entry.gaps)) or None,
        "origin": record.origin,
        "is_trusted": record.is_trusted,
        "latencies_sha256": _artifact(record, "latencies"),
        "predictions_sha256": _artifact(record, "predictions"),
    }


def _identity(record: Record) -> dict[str, Value]:
    dataset = record.dataset
    return {
        "id": record.id,
        "created_at": record.created_at,
        "status": record.status,
        "model": record.model.name,
        "model_version": record.model.version,
        "task": record.model.task,
        "manifest_digest": record.model.manifest.digest,
        "weights_digest": record.model.weights_digest,
        "dataset": dataset.name if dataset else None,
        "dataset_version": dataset.version if dataset else None,
        "split": dataset.split if dataset else None,
        "samples": dataset.sample_count if dataset else None,
        "sample_ids_digest": dataset.sample_ids_digest if dataset else None,
        "scenario": record.scenario.type,
        "timed": record.scenario.timed,
        "batch_size": record.scenario.batch_size,
        "launches": record.scenario.launches,
        "seed": record.seed,
    }


def _machine(record: Record) -> dict[str, Value]:
    software, system, execution = record.software, record.system, record.execution
    return {
        "framework": software.framework if software else None,
        "framework_version": software.framework_version if software else None,
        "python": software.python if software else None,
        "mlmodelscope": software.mlmodelscope if software else None,
        "environment": software.environment.kind if software else None,
        "threads": execution.threads if execution else None,
        "provider": execution.provider if execution else None,
        "optimization": execution.optimization if execution else None,
        "precision": execution.precision if execution else None,
        "device": execution.device if execution else None,
        "architecture": system.architecture if system else None,
        "cpu_model": system.cpu_model if system else None,
        "usable_cpus": system.usable_cpus if system else None,
        "system_memory_bytes": system.memory_bytes if system else None,
        "kernel": system.kernel if system else None,
    }


def _performance(record: Record) -> dict[str, Value]:
    found = record.performance
    percentiles: Mapping[str, Estimate] = found.percentiles_ns if found else {}
    parts: Mapping[str, Estimate] = found.parts_ns if found else {}
    return {
        "clock": found.clock if found else None,
        "queries": found.latency_median_ns.n if found else None,
        **_estimate("latency_median_ns", found.latency_median_ns if found else None),
        **_estimate("latency_trimmed_mean_ns", found.latency_trimmed_mean_ns if found else None),
        **_estimate("latency_mean_ns", found.latency_mean_ns if found else None),
        "latency_min_ns": found.latency_min_ns if found else None,
        "latency_max_ns": found.latency_max_ns if found else None,
        **_all(("latency_" + name.replace(".", "_") + "_ns", percentiles.get(name)) for name in _PERCENTILES),
        **_all((f"{name}_ns", parts.get(name)) for name in _PARTS),
        **_estimate("throughput", found.throughput if found else None),
        **_estimate("load_ns", found.load_ns if found else None),
        **_estimate("first_inference_ns", found.first_inference_ns if found else None),
        **_estimate("peak_memory_bytes", found.memory_bytes if found else None),
    }


def _accuracy(record: Record) -> dict[str, Value]:
    found = record.accuracy
    return {
        "labelled": found.labelled if found else None,
        **_estimate("top1", found.top1 if found else None),
        **_estimate("top5", found.top5 if found else None),
    }


def _comparison(found: Comparison | None) -> dict[str, Value]:
    return {
        "compared_with": found.left if found else None,
        "comparison": found.kind if found else None,
        "factors": " ".join(found.groups) if found else None,
        **_estimate("latency_ratio", found.latency_ratio if found else None),
        **_estimate("top1_difference", found.top1.difference if found and found.top1 else None),
        "mcnemar_p": found.top1.p_value if found and found.top1 else None,
        "is_side_by_side": found.is_side_by_side if found else None,
        "flipped": found.flipped if found else None,
        "common_samples": found.common_samples if found else None,
    }


def _estimate(name: str, estimate: Estimate | None) -> dict[str, Value]:
    interval = estimate.interval if estimate else None
    return {
        name: estimate.value if estimate else None,
        f"{name}_low": interval.low if interval else None,
        f"{name}_high": interval.high if interval else None,
    }


def _all(pairs: Iterable[tuple[str, Estimate | None]]) -> dict[str, Value]:
    return {key: value for name, estimate in pairs for key, value in _estimate(name, estimate).items()}


def _artifact(record: Record, stem: str) -> str | None:
    return next((item.sha256 for item in record.artifacts if item.name.partition(".")[0] == stem), None)
