"""Turns records and rows of history into text for people; pure."""

from __future__ import annotations

from collections.abc import Sequence

from mlmodelscope.analyse.summary import parts_in_order
from mlmodelscope.core.record import Accuracy, Failure, Performance, Record, TraceFacts
from mlmodelscope.core.store import HistoryRow
from mlmodelscope.show.units import (
    format_bytes,
    format_duration,
    format_estimate,
    format_share,
    format_throughput,
    table,
)

__all__ = [
    "format_count",
    "format_dataset",
    "format_environment",
    "format_execution",
    "format_framework",
    "format_history",
    "format_record",
    "format_scenario",
    "format_summary",
    "format_system",
]


def format_summary(records: Sequence[Record]) -> str:
    """One line per record: what was run, how right, how fast."""
    header = ("id", "model", "framework", "top-1", "latency (median)", "throughput", "memory")
    rows = []
    for record in records:
        performance, accuracy = record.performance, record.accuracy
        rows.append(
            (
                record.id,
                f"{record.model.name} {record.model.version}",
                format_framework(record),
                format_estimate(accuracy.top1, "share") if accuracy else "-",
                format_estimate(performance.latency_median_ns, "duration") if performance else _failed(record),
                format_throughput(performance.throughput.value) if performance else "-",
                format_bytes(performance.memory_bytes.value) if performance and performance.memory_bytes else "-",
            )
        )
    return table(header, rows)


def format_history(rows: Sequence[HistoryRow]) -> str:
    header = ("id", "when (UTC)", "model", "framework", "data set", "scenario", "top-1", "latency", "throughput")
    cells = [
        (
            row.id,
            row.created_at[:16].replace("T", " "),
            f"{row.model} {row.model_version}",
            f"{row.framework} {row.framework_version}" if row.framework else "-",
            row.dataset or "-" if row.samples is None else f"{row.dataset or '-'} ({row.samples})",
            f"{row.scenario} {row.timed} b{row.batch_size}",
            format_share(row.top1) if row.top1 is not None else "-",
            format_duration(row.latency_median_ns) if row.latency_median_ns is not None else row.failure_code or "-",
            format_throughput(row.throughput) if row.throughput is not None else "-",
        )
        for row in rows
    ]
    return table(header, cells)


def format_record(record: Record) -> str:
    """Everything a person asks first: what ran, on what, how right, how fast, and what to distrust."""
    blocks = [
        _pairs(
            [
                ("record", f"{record.id} ({record.status})"),
                ("when", f"{record.created_at[:19].replace('T', ' ')} UTC"),
                ("model", f"{record.model.name} {record.model.version}  manifest {record.model.manifest.digest[:12]}"),
                ("weights", record.model.weights_digest or "unknown"),
                ("data set", format_dataset(record)),
                ("framework", format_framework(record)),
                ("runs in", format_environment(record)),
                ("execution", format_execution(record)),
                ("scenario", format_scenario(record)),
                ("system", format_system(record)),
            ]
        )
    ]
    if record.failure is not None:
        blocks.append(_failure(record.failure))
    if record.accuracy is not None:
        blocks.append(_accuracy(record.accuracy))
    if record.performance is not None:
        blocks.append(_performance(record.performance))
    if record.trace is not None:
        blocks.append(_trace(record.id, record.trace))
    blocks += [f"warning: {text}" for text in record.warnings]
    return "\n\n".join(blocks)


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in pairs)


def format_count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _failed(record: Record) -> str:
    return f"failed: {record.failure.code}" if record.failure else "-"


def format_framework(record: Record) -> str:
    software = record.software
    if software is None:
        return record.request.framework or "-"
    where = " (sandboxed)" if software.environment.is_sandboxed else ""
    return f"{software.framework} {software.framework_version}{where}"


def format_dataset(record: Record) -> str:
    dataset = record.dataset
    if dataset is None:
        return "-"
    name = f"{dataset.name} {dataset.version}".strip()
    return f"{name} ({format_count(dataset.sample_count, 'sample')})"


def format_environment(record: Record) -> str:
    """Where the framework lived, and on which Python."""
    software = record.software
    if software is None:
        return "-"
    place = software.environment
    address = record.request.options.get("address")
    if address is not None:
        return f"a program at {address}, driven from {software.implementation} {software.python}"
    name = {"local": "local", "venv": f"venv {(place.digest or '-')[:12]}", "container": f"container {place.image}"}
    sandbox = ", in the sandbox" if place.is_sandboxed else ""
    digest = f" ({place.digest[:19]})" if place.kind == "container" and place.digest else ""
    return f"{name[place.kind]}{digest}, {software.implementation} {software.python}{sandbox}"


def format_execution(record: Record) -> str:
    used = record.execution
    if used is None:
        return "-"
    optimization = f"optimization {used.optimization}" if used.optimization else ""
    parts = (
        format_count(used.threads, "thread"),
        f"batch {used.batch_size}",
        used.provider,
        used.precision,
        optimization,
    )
    return ", ".join(part for part in parts if part)


def format_scenario(record: Record) -> str:
    scenario = record.scenario
    launches = format_count(scenario.launches, "launch", "launches")
    return f"{scenario.type}, timed {scenario.timed}, {launches}, seed {record.seed}"


def format_system(record: Record) -> str:
    system = record.system
    if system is None:
        return "-"
    return (
        f"{system.cpu_model or system.architecture}, {format_count(system.usable_cpus, 'usable processor')}, "
        f"{format_bytes(system.memory_bytes)}, Linux {system.kernel}"
    )


def _failure(failure: Failure) -> str:
    lines = [f"FAILED in stage {failure.stage}: {failure.message} ({failure.code})"]
    if failure.hint:
        lines.append(f"hint: {failure.hint}")
    if failure.log_tail.strip():
        lines.append("the worker's last words:")
        lines += [f"  {line}" for line in failure.log_tail.strip().splitlines()[-12:]]
    return "\n".join(lines)


def _trace(record_id: str, trace: TraceFacts) -> str:
    cut = ", truncated" if trace.is_truncated else ""
    level = trace.level.name.lower()
    return f"trace  level {level}, {trace.spans} spans{cut}: mlmodelscope trace show {record_id}"


def _accuracy(accuracy: Accuracy) -> str:
    pairs = [(name, estimate) for name, estimate in (("top-1", accuracy.top1), ("top-5", accuracy.top5)) if estimate]
    if not pairs:
        return f"accuracy  - ({format_count(accuracy.samples, 'sample')}, {accuracy.labelled} with a label)"
    return _pairs([(name, f"{format_estimate(e, 'share')}  n={e.n}") for name, e in pairs])


def _performance(performance: Performance) -> str:
    queries = format_count(performance.latency_median_ns.n, "query", "queries")
    launches = format_count(performance.latency_median_ns.launches, "launch", "launches")
    parts = performance.parts_ns
    pairs = [
        ("median", format_estimate(performance.latency_median_ns, "duration")),
        ("trimmed mean", format_estimate(performance.latency_trimmed_mean_ns, "duration")),
        *((name, format_estimate(estimate, "duration")) for name, estimate in performance.percentiles_ns.items()),
        *((name, f"refused: {reason}") for name, reason in performance.refused.items()),
        *((f"  {name}", format_estimate(parts[name], "duration")) for name in parts_in_order(parts)),
        ("load", format_estimate(performance.load_ns, "duration")),
        ("first inference", format_estimate(performance.first_inference_ns, "duration")),
        ("throughput", format_estimate(performance.throughput, "throughput")),
        ("memory peak", format_estimate(performance.memory_bytes, "bytes")),
    ]
    clock = "" if performance.clock == "monotonic" else f", {performance.clock} time"
    return f"latency over {queries} in {launches}{clock}\n" + _pairs(pairs)
