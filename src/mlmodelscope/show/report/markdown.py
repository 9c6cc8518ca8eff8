"""A report -> Markdown tables, for pull requests and wikis: the facts of the HTML page without its charts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mlmodelscope.analyse.comparison import Comparison
from mlmodelscope.analyse.distribution import batch_sweeps
from mlmodelscope.analyse.summary import parts_in_order
from mlmodelscope.show.comparisons import format_change, format_ratio, format_speed, format_top1
from mlmodelscope.show.records import format_dataset, format_framework
from mlmodelscope.show.report.data import Entry, ReportData
from mlmodelscope.show.report.facts import (
    APART,
    NOISE,
    READING,
    headline,
    identity,
    name_of,
    noise_facts,
    short_names,
    sweep_words,
    title,
    trust_notes,
    verdict,
)
from mlmodelscope.show.units import format_duration, format_estimate, format_share

__all__ = ["escape", "format_markdown"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~>$])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", "@": "&#64;"}
_SHOWN_DIFFERENCES = 6
_MOST_LAYERS = 15


def format_markdown(data: ReportData) -> str:
    blocks = [f"# {escape(title(data))}"]
    for heading, section in _SECTIONS:
        content = "\n\n".join(section(data))
        if content:
            blocks.append(f"## {heading}\n\n{content}")
    made = f"Made by mlmodelscope {escape(data.version)} on {data.made_at[:16].replace('T', ' ')} UTC."
    return "\n\n".join([*blocks, f"{READING} {made}"]) + "\n"


def escape(text: str) -> str:
    """Text that stays text: no formatting, no HTML, no new line, and nobody is mentioned by it."""
    flat = " ".join(text.split())
    shielded = "".join(_ENTITIES.get(character, character) for character in flat)
    # the sign in front of an entity's number is ours
    return _SPECIAL.sub(r"\\\1", shielded).replace("&\\#64;", "&#64;")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *([escape(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _verdicts(data: ReportData) -> Iterator[str]:
    reference = data.reference
    if reference is None:
        return
    names = short_names(data.entries)
    yield f"**{headline(data)}** Each is held against {reference.number}, {escape(names[reference.number])}."
    header = ("", "evaluation", "verdict", "differs in", "latency ratio", "top-1", "first answers that differ")
    yield _table(header, [_verdict(item, data.number(item.right), names) for item in data.comparisons])
    for item in data.comparisons:
        if item.differences:
            yield _differences(item, data.number(item.right))


def _verdict(item: Comparison, number: int, names: dict[int, str]) -> list[str]:
    ratio = item.latency_ratio
    speed = f"{format_ratio(ratio)}: {format_speed(ratio)}" if ratio else item.latency_note or "-"
    if ratio and not item.is_side_by_side:
        speed += f" ({APART})"
    flipped = "-" if item.flipped is None else f"{item.flipped} of {item.common_samples}"
    top1 = format_top1(item.top1).removeprefix("top-1 ") if item.top1 else "-"
    return [str(number), names[number], verdict(item), ", ".join(item.groups) or "nothing", speed, top1, flipped]


def _differences(item: Comparison, number: int) -> str:
    shown = item.differences[:_SHOWN_DIFFERENCES]
    lines = [f"- {escape(f'{d.group}: {d.fact}: {format_change(d.left, d.right)}')}" for d in shown]
    if len(item.differences) > len(shown):
        lines.append(f"- and {len(item.differences) - len(shown)} more")
    return "\n".join([f"What differs in {number}:", "", *lines])


def _summary(data: ReportData) -> Iterator[str]:
    header = (
        "",
        "model",
        "framework",
        "data set",
        "batch",
        "top-1",
        "median latency",
        "throughput",
        "memory",
        "record",
    )
    yield _table(header, [_summary_row(entry) for entry in data.entries])


def _summary_row(entry: Entry) -> list[str]:
    record, performance = entry.record, entry.record.performance
    failed = f"failed: {record.failure.code}" if record.failure else "-"
    return [
        str(entry.number),
        name_of(record),
        format_framework(record),
        format_dataset(record),
        str(record.scenario.batch_size),
        format_estimate(record.accuracy.top1, "share") if record.accuracy else "-",
        format_estimate(performance.latency_median_ns, "duration") if performance else failed,
        format_estimate(performance.throughput, "throughput") if performance else "-",
        format_estimate(performance.memory_bytes, "bytes") if performance else "-",
        record.id,
    ]


def _failures(data: ReportData) -> Iterator[str]:
    for entry in data.entries:
        if failure := entry.record.failure:
            hint = f" Hint: {escape(failure.hint)}" if failure.hint else ""
            where = f"stage {failure.stage}, {escape(failure.code)}"
            yield f"- {entry.number} {escape(name_of(entry.record))}: {escape(failure.message)} ({where}).{hint}"


def _accuracy(data: ReportData) -> Iterator[str]:
    rated = [(entry, entry.record.accuracy) for entry in data.entries if entry.record.accuracy]
    if rated:
        names = short_names(data.entries)
        rows = [
            [
                str(entry.number),
                names[entry.number],
                format_estimate(accuracy.top1, "share"),
                format_estimate(accuracy.top5, "share"),
                str(accuracy.labelled),
            ]
            for entry, accuracy in rated
        ]
        yield _table(("", "evaluation", "top-1", "top-5", "samples with a label"), rows)


def _latency(data: ReportData) -> Iterator[str]:
    timed = [(entry, entry.record.performance) for entry in data.entries if entry.record.performance]
    if not timed:
        return
    names = short_names(data.entries)
    percentiles = list(dict.fromkeys(name for _, performance in timed for name in performance.percentiles_ns))
    parts = parts_in_order(name for _, performance in timed for name in performance.parts_ns)
    rows = [
        [
            str(entry.number),
            names[entry.number],
            format_estimate(found.latency_median_ns, "duration"),
            *(format_estimate(found.percentiles_ns.get(name), "duration") for name in percentiles),
            format_duration(found.latency_max_ns),
            str(found.latency_median_ns.n),
            str(found.latency_median_ns.launches),
        ]
        for entry, found in timed
    ]
    yield _table(("", "evaluation", "median", *percentiles, "slowest", "queries", "launches"), rows)
    if parts:
        split = [
            [str(entry.number), *(format_estimate(found.parts_ns.get(name), "duration") for name in parts)]
            for entry, found in timed
            if found.parts_ns
        ]
        yield "Medians of the parts of a query:\n\n" + _table(("", *parts), split)


def _batches(data: ReportData) -> Iterator[str]:
    for sweep in batch_sweeps(entry.record for entry in data.entries):
        rows = [
            [
                str(data.number(record.id)),
                str(record.scenario.batch_size),
                format_estimate(record.performance.throughput if record.performance else None, "throughput"),
                "best" if record.scenario.batch_size == sweep.sweep.optimal else "",
            ]
            for record in sweep.records
        ]
        name = escape(name_of(sweep.records[0]))
        rule = "Best is the last one where doubling still added more than 5 % of throughput."
        yield f"{name}: {sweep_words(sweep.sweep)} {rule}\n\n" + _table(("", "batch", "throughput", ""), rows)


def _layers(data: ReportData) -> Iterator[str]:
    for entry in data.entries:
        if entry.layers:
            slowest = entry.layers[:_MOST_LAYERS]
            rows = [[e.name, e.operator, format_duration(e.time_ns), format_share(e.share)] for e in slowest]
            yield f"Record {entry.number}:\n\n" + _table(("layer", "operator", "time", "share"), rows)


def _trust(data: ReportData) -> Iterator[str]:
    notes = [f"- {entry.number}: {escape(note)}" for entry in data.entries for note in trust_notes(entry)]
    if notes:
        yield "\n".join(notes)
    measured = [(entry, facts) for entry in data.entries if (facts := noise_facts(entry.record)) is not None]
    if measured:
        yield _table(("", *NOISE), [[str(entry.number), *facts] for entry, facts in measured])


def _records(data: ReportData) -> Iterator[str]:
    for entry in data.entries:
        rows = [[name, text] for name, text in identity(entry.record)]
        yield f"Record {entry.number}:\n\n" + _table(("", escape(name_of(entry.record))), rows)


_SECTIONS = (
    ("Comparability", _verdicts),
    ("Summary", _summary),
    ("Failed", _failures),
    ("Accuracy", _accuracy),
    ("Latency", _latency),
    ("Batch size", _batches),
    ("Slowest layers", _layers),
    ("What to distrust", _trust),
    ("Records", _records),
)
