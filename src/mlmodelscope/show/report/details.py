"""A report -> the sections of the HTML page that let a reader doubt and check: noise, warnings, and every record."""

from __future__ import annotations

from mlmodelscope.show.report.data import Entry, ReportData
from mlmodelscope.show.report.facts import NOISE, Number, identity, noise_facts, numbers, short_names, trust_notes
from mlmodelscope.show.report.markup import Content, Markup, element, join
from mlmodelscope.show.report.pieces import Cell, badge, data_uri, labelled, table

__all__ = ["records_section", "trust_section"]

_NUMBERS = ("field of the record", "value", "exact", "95 % interval, exact", "over", "n", "launches")


def trust_section(data: ReportData) -> Markup | None:
    names = short_names(data.entries)
    notes = [
        element("li", labelled(entry, f"{names[entry.number]}: {note}"))
        for entry in data.entries
        for note in trust_notes(entry)
    ]
    measured = [(entry, facts) for entry in data.entries if (facts := noise_facts(entry.record)) is not None]
    rows: list[list[Content | Cell]] = [
        [labelled(entry, names[entry.number]), *(Cell(text) for text in facts)] for entry, facts in measured
    ]
    if not notes and not rows:
        return None
    lead = "What else went on, from the worst launch of each evaluation; - where the machine does not say."
    return join(
        element("ul", *notes) if notes else None,
        element("p", lead, class_="lead") if rows else None,
        table(("evaluation", *NOISE), rows) if rows else None,
    )


def records_section(data: ReportData) -> Markup:
    lead = (
        "Everything that decided the results. Each number above stands in one of these records under the field named "
        "here; the JSON file has the rest, and so has "
    )
    command = element("code", "mlmodelscope show ID")
    return join(element("p", lead, command, ".", class_="lead"), (_record(entry) for entry in data.entries))


def _record(entry: Entry) -> Markup:
    record = entry.record
    content = record.model_dump_json(indent=1).encode()
    pairs = [join(element("dt", name), element("dd", _value(name, text))) for name, text in identity(record)]
    rows = [_number(item, record.id) for item in numbers(record)]
    download = element("a", "Record as JSON", href=data_uri(content, "application/json"), download=f"{record.id}.json")
    return element(
        "details",
        element("summary", badge(entry.number), " ", f"{record.model.name} {record.model.version} ",
                element("span", record.id, class_="id soft")),
        element("dl", *pairs, class_="facts"),
        table(_NUMBERS, rows) if rows else None,
        element("details", element("summary", "Manifest"), element("pre", record.model.manifest.text)),
        element("p", download, class_="download"),
        class_="card record",
        id=f"record-{entry.number}",
    )  # fmt: skip


def _value(name: str, text: str) -> Markup | str:
    is_digest = name in ("record", "manifest", "weights", "sample ids") or text.startswith("sha256 ")
    return element("code", text) if is_digest else text


def _number(item: Number, record_id: str) -> list[Markup | str | Cell]:
    estimate, interval = item.estimate, item.estimate.interval
    return [
        element("code", item.path),
        Cell(item.text, source=record_id),
        Cell(f"{estimate.value:.10g}"),
        Cell(f"{interval.low:.10g} to {interval.high:.10g}" if interval else "-"),
        interval.basis.replace("_", " ") if interval else "-",
        Cell(f"{estimate.n:,}"),
        Cell(str(estimate.launches)),
    ]
