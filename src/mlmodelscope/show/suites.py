"""Turns the rows of a suite into one table and what went wrong; pure."""

from __future__ import annotations

from collections.abc import Sequence

from mlmodelscope.core.record import Record
from mlmodelscope.core.request import EvaluationRequest
from mlmodelscope.show.units import format_estimate, table
from mlmodelscope.suite.progress import SuiteRow

__all__ = ["format_suite"]


def format_suite(name: str, rows: Sequence[SuiteRow]) -> str:
    header = ("model", "framework", "data set", "scenario", "threads", "top-1", "latency (median)", "throughput", "id")
    failed = [row for row in rows if row.is_failed]
    earlier = sum(row.is_earlier for row in rows)
    done = f"{len(rows) - len(failed)} of {len(rows)} done, {len(failed)} failed"
    lines = [table(header, [_cells(row) for row in rows]), f"{name}: {done}, {earlier} of them by an earlier run"]
    lines += [f"failed: {_case(row.request)}: {_reason(row)}" for row in failed]
    return "\n".join(lines)


def _cells(row: SuiteRow) -> tuple[str, ...]:
    record, request = row.record, row.request
    performance = record.performance if record else None
    accuracy = record.accuracy if record else None
    return (
        f"{record.model.name} {record.model.version}" if record else request.models[0],
        _framework(record, request),
        record.dataset.name if record and record.dataset else request.dataset or "inputs",
        _scenario(request),
        str(record.execution.threads if record and record.execution else request.threads or "-"),
        format_estimate(accuracy.top1, "share") if accuracy else "-",
        format_estimate(performance.latency_median_ns, "duration") if performance else _short(row),
        format_estimate(performance.throughput, "throughput") if performance else "-",
        f"{record.id}{' (earlier)' if row.is_earlier else ''}" if record else "-",
    )


def _framework(record: Record | None, request: EvaluationRequest) -> str:
    if record is None or record.software is None:
        return request.framework or "-"
    return f"{record.software.framework} {record.software.framework_version}"


def _scenario(request: EvaluationRequest) -> str:
    scenario = request.scenario
    return f"{scenario.type} {scenario.timed} b{scenario.batch_size}"


def _case(request: EvaluationRequest) -> str:
    parts = (request.models[0], request.framework, request.dataset, _scenario(request))
    threads = (f"{request.threads} threads",) if request.threads else ()
    return ", ".join(part for part in (*parts, *threads) if part)


def _short(row: SuiteRow) -> str:
    if row.error is not None:
        return f"refused: {row.error['code']}"
    failure = row.record.failure if row.record else None
    return f"failed: {failure.code}" if failure else "-"


def _reason(row: SuiteRow) -> str:
    if row.error is not None:
        return f"{row.error['message']} ({row.error['code']})"
    failure = row.record.failure if row.record else None
    return f"{failure.message} ({failure.code})" if failure else "unknown"
