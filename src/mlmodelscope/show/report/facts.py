"""Records and comparisons -> the sentences and rows that every form of a report shares."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from mlmodelscope.analyse.comparison import Comparison
from mlmodelscope.analyse.summary import parts_in_order
from mlmodelscope.analyse.sweep import Sweep
from mlmodelscope.core.estimate import Estimate
from mlmodelscope.core.record import Record
from mlmodelscope.show.records import (
    format_count,
    format_dataset,
    format_execution,
    format_framework,
    format_scenario,
    format_system,
)
from mlmodelscope.show.report.data import Entry, ReportData
from mlmodelscope.show.units import format_bytes, format_duration, format_estimate, format_share

__all__ = [
    "APART",
    "NOISE",
    "READING",
    "Number",
    "headline",
    "identity",
    "name_of",
    "noise_facts",
    "numbers",
    "short_names",
    "sweep_words",
    "title",
    "trust_notes",
    "verdict",
]

Kind = Literal["duration", "bytes", "share", "throughput", "number"]

READING = (
    "Intervals are at 95 % and rest on what was repeated: worker launches for times, samples for accuracy. An interval "
    "within one launch describes that launch and supports no verdict. A percentile that the number of queries cannot "
    "support is refused and not shown. Latencies are per query of the timed region, on the monotonic clock, after "
    "warm-up."
)

APART = "not measured side by side: the machine may have drifted in between"

NOISE = ("load", "processors busy", "stolen", "waiting for a processor", "forced switches", "major faults")


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a record: where it stands in the record's JSON, and what it is."""

    path: str
    kind: Kind
    estimate: Estimate

    @property
    def text(self) -> str:
        return f"{self.estimate.value:g}" if self.kind == "number" else format_estimate(self.estimate, self.kind)


def title(data: ReportData) -> str:
    names = list(dict.fromkeys(entry.record.model.name for entry in data.entries))
    if len(data.entries) == 1:
        return f"{names[0]} {data.entries[0].record.model.version}"
    if len(names) == 1:
        return f"{names[0]}: {len(data.entries)} evaluations"
    return " against ".join(names) if len(names) == 2 else f"{len(data.entries)} evaluations of {len(names)} models"


def name_of(record: Record) -> str:
    return f"{record.model.name} {record.model.version}"


def short_names(entries: Sequence[Entry]) -> dict[int, str]:
    """The model's name by number, with whatever tells it from another entry of that name: version, batch, threads."""
    names = {entry.number: entry.record.model.name for entry in entries}
    for telling in (_version, _framework, _batch, _threads, _dataset, _timed):
        parts = {entry.number: telling(entry.record) for entry in entries}
        for entry in entries:
            twins = [other.number for other in entries if other.record.model.name == entry.record.model.name]
            if parts[entry.number] and len({parts[number] for number in twins} - {""}) > 1:
                names[entry.number] += f", {parts[entry.number]}"
    return names


def _version(record: Record) -> str:
    return record.model.version


def _framework(record: Record) -> str:
    return format_framework(record)


def _batch(record: Record) -> str:
    return f"batch {record.scenario.batch_size}"


def _threads(record: Record) -> str:
    """A record that failed before the model was loaded does not know."""
    return format_count(record.execution.threads, "thread") if record.execution else ""


def _dataset(record: Record) -> str:
    return record.dataset.name if record.dataset else "no data set"


def _timed(record: Record) -> str:
    return f"timed {record.scenario.timed}"


def headline(data: ReportData) -> str:
    """The comparability of the whole report in one sentence."""
    kinds = [comparison.kind for comparison in data.comparisons]
    counts = {kind: kinds.count(kind) for kind in ("fair", "repetition", "unfair")}
    if len(kinds) == 1:
        return {
            "fair": "A fair comparison: one factor differs.",
            "repetition": "A repetition: no factor differs.",
            "unfair": "Not a fair comparison: more than one factor differs.",
        }[kinds[0]]
    if counts["unfair"] == 0:
        return f"All {len(kinds)} comparisons are fair: none has more than one factor that differs."
    if counts["unfair"] == len(kinds):
        return f"None of the {len(kinds)} comparisons is fair: in each, more than one factor differs."
    return f"{counts['unfair']} of {len(kinds)} comparisons are not fair: in those, more than one factor differs."


def verdict(comparison: Comparison) -> str:
    if comparison.kind == "repetition":
        return "repetition"
    if comparison.kind == "fair":
        return f"fair: {comparison.groups[0]} differs"
    return f"not fair: {len(comparison.groups)} factors differ"


def sweep_words(sweep: Sweep) -> str:
    """The best batch size with how far it is to be trusted."""
    doubt = "" if sweep.certainty == "certain" else "; the intervals leave room for another"
    more = "; it was the largest that was tried" if sweep.is_open else ""
    return f"the best batch size is {sweep.optimal}{more}{doubt}."


def identity(record: Record) -> list[tuple[str, str]]:
    """What was run and on what, with the digests that pin it down."""
    dataset, software, system = record.dataset, record.software, record.system
    rows = [
        ("record", record.id),
        ("when", f"{record.created_at[:19].replace('T', ' ')} UTC"),
        ("model", f"{name_of(record)}{f', {record.model.license}' if record.model.license else ''}"),
        ("manifest", record.model.manifest.digest),
        ("weights", record.model.weights_digest or "unknown"),
        ("data set", format_dataset(record)),
        ("sample ids", dataset.sample_ids_digest or "unknown" if dataset else "-"),
        ("framework", format_framework(record)),
        ("execution", format_execution(record)),
        ("scenario", format_scenario(record)),
        ("system", format_system(record)),
    ]
    if system is not None:
        rows.append(("operating system", f"{system.operating_system}{_virtual(system.virtualization)}"))
    if software is not None:
        own = f"mlmodelscope {software.mlmodelscope}, {software.implementation} {software.python}"
        rows.append(("software", f"{own}, {software.environment.kind} environment, {len(software.packages)} packages"))
    if record.origin != "local" or not record.is_trusted:
        rows.append(("origin", f"{record.origin}{'' if record.is_trusted else ', not trusted'}"))
    rows += [(item.name, f"sha256 {item.sha256}, {format_bytes(item.size_bytes)}") for item in record.artifacts]
    return rows


def _virtual(kind: str | None) -> str:
    return f" in a virtual machine ({kind})" if kind else ""


def numbers(record: Record) -> list[Number]:
    """Every number of a record that has an interval or could have one."""
    return list(_performance(record)) + list(_accuracy(record))


def _performance(record: Record) -> Iterator[Number]:
    performance = record.performance
    if performance is None:
        return
    for name in ("latency_median_ns", "latency_trimmed_mean_ns", "latency_mean_ns"):
        yield Number(f"performance.{name}", "duration", getattr(performance, name))
    count, launches = performance.latency_median_ns.n, performance.latency_median_ns.launches
    for name in ("latency_min_ns", "latency_max_ns"):
        bare = Estimate(getattr(performance, name), None, count, launches)
        yield Number(f"performance.{name}", "duration", bare)
    for name, estimate in performance.percentiles_ns.items():
        yield Number(f"performance.percentiles_ns.{name}", "duration", estimate)
    for name in parts_in_order(performance.parts_ns):
        yield Number(f"performance.parts_ns.{name}", "duration", performance.parts_ns[name])
    kinds: dict[str, Kind] = {
        "throughput": "throughput", "load_ns": "duration", "first_inference_ns": "duration", "memory_bytes": "bytes",
        "energy_joules": "number", "cost": "number",
    }  # fmt: skip
    for name, kind in kinds.items():
        if (estimate := getattr(performance, name)) is not None:
            yield Number(f"performance.{name}", kind, estimate)


def _accuracy(record: Record) -> Iterator[Number]:
    accuracy = record.accuracy
    if accuracy is None:
        return
    for name, estimate in (("top1", accuracy.top1), ("top5", accuracy.top5)):
        if estimate is not None:
            yield Number(f"accuracy.{name}", "share", estimate)
    for name, estimate in accuracy.metrics.items():
        yield Number(f"accuracy.metrics.{name}", "number", estimate)


def noise_facts(record: Record) -> tuple[str, ...] | None:
    """The worst launch for each of `NOISE`; None if nothing was measured."""
    noises = [launch.noise for launch in record.launches]
    if not noises:
        return None

    def worst(name: str) -> float | None:
        known = [getattr(noise, name) for noise in noises if getattr(noise, name) is not None]
        return max(known) if known else None

    def share(name: str) -> str:
        value = worst(name)
        return "-" if value is None else format_share(value)

    def count(name: str) -> str:
        value = worst(name)
        return "-" if value is None else f"{value:,.0f}"

    load = worst("load_1m")
    return (
        "-" if load is None else f"{load:.2f}",
        share("cpu_busy_share"),
        share("steal_share"),
        share("pressure_cpu_share"),
        count("involuntary_switches"),
        count("major_faults"),
    )


def trust_notes(entry: Entry) -> list[str]:
    """What a reader should distrust: warnings, missing files, refused percentiles, foreign origin, simulated time."""
    record = entry.record
    notes = [*record.warnings, *entry.gaps]
    performance = record.performance
    if performance is not None:
        if performance.refused:
            names = ", ".join(performance.refused)
            notes.append(f"{names} refused: {next(iter(performance.refused.values()))}")
        if performance.clock != "monotonic":
            notes.append(f"its times are {performance.clock}, not measured")
        if performance.latency_median_ns.launches == 1:
            notes.append("one launch only: its intervals support no verdict")
        if performance.latency_max_ns > 5 * performance.latency_median_ns.value:
            slow, usual = format_duration(performance.latency_max_ns), performance.latency_median_ns
            notes.append(f"the slowest query took {slow}, the usual one {format_duration(usual.value)}")
    if not record.is_trusted:
        notes.append(f"the record is {record.origin} and was not checked here")
    return notes
