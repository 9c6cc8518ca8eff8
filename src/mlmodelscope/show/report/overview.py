"""A report -> the sections of the HTML page that say what was run, what it may be compared with, and what failed."""

from __future__ import annotations

from collections.abc import Sequence

from mlmodelscope.analyse.comparison import Comparison
from mlmodelscope.core.factors import Difference
from mlmodelscope.core.record import Record
from mlmodelscope.show.comparisons import format_change, format_ratio, format_speed, format_top1
from mlmodelscope.show.records import format_count, format_framework
from mlmodelscope.show.report.data import Entry, Picture, Pictures, ReportData, Said
from mlmodelscope.show.report.facts import APART, headline, name_of, short_names, verdict
from mlmodelscope.show.report.markup import Content, Markup, element, join
from mlmodelscope.show.report.pieces import Cell, badge, data_uri, labelled, table
from mlmodelscope.show.units import format_bytes, format_estimate, format_throughput

__all__ = ["failures_section", "pictures_section", "summary_section", "verdict_section"]

_SHOWN_PER_GROUP = 12
# so few differences are worth their place on the page
_FEW = 3
_PILLS = {"fair": "good", "repetition": "flat", "unfair": "warn"}


def verdict_section(data: ReportData) -> Markup | None:
    """Before any number: may these be compared at all?"""
    reference = data.reference
    if reference is None:
        return None
    names = short_names(data.entries)
    lead = join("Every evaluation is held against ", badge(reference.number), f" {names[reference.number]}.")
    cards = [_comparison(item, data, names) for item in data.comparisons]
    return join(
        element("p", headline(data), class_="headline"),
        element("p", lead, class_="lead"),
        element("div", *cards, class_="compared"),
    )


def _comparison(item: Comparison, data: ReportData, names: dict[int, str]) -> Markup:
    number = data.number(item.right)
    title = element(
        "div",
        element("h3", badge(number), " ", names[number]),
        element("span", verdict(item), class_=f"pill {_PILLS[item.kind]}"),
        class_="verdict",
    )
    facts: list[tuple[str, Content]] = []
    if item.groups:
        facts.append(("differs in", ", ".join(item.groups)))
    if item.latency_ratio is not None:
        facts.append(("latency", f"{format_ratio(item.latency_ratio)} times: {format_speed(item.latency_ratio)}"))
        if not item.is_side_by_side:
            facts.append(("", APART))
    elif item.latency_note:
        facts.append(("latency", f"not compared: {item.latency_note}"))
    if item.top1 is not None:
        facts.append(("accuracy", format_top1(item.top1)))
        only = (f"{item.top1.only_a} only by ", badge(data.number(item.left)), f", {item.top1.only_b} only by ")
        facts.append(("right answers", [*only, badge(number)]))
    if item.flipped is not None:
        facts.append(("first answers", f"{item.flipped} of {item.common_samples} differ"))
    pairs = [join(element("dt", name), element("dd", text)) for name, text in facts]
    return element("div", title, element("dl", *pairs, class_="facts"), _differences(item.differences), class_="card")


def _differences(found: Sequence[Difference]) -> Markup | None:
    if not found:
        return None
    rows: list[Sequence[str]] = []
    for group in dict.fromkeys(item.group for item in found):
        members = [item for item in found if item.group is group]
        rows += [(str(group), m.fact, format_change(m.left, m.right)) for m in members[:_SHOWN_PER_GROUP]]
        if len(members) > _SHOWN_PER_GROUP:
            rows.append((str(group), f"and {len(members) - _SHOWN_PER_GROUP} more", ""))
    count = f"{len(found)} fact{'s' if len(found) > 1 else ''} that differ{'' if len(found) > 1 else 's'}"
    few = len(found) <= _FEW
    return element("details", element("summary", count), table(("factor", "fact", "there -> here"), rows), open=few)


def summary_section(data: ReportData) -> Markup:
    header = (
        "",
        "model",
        "framework",
        "data set",
        "batch",
        "threads",
        "top-1",
        "median latency",
        "throughput",
        "memory",
    )
    return table(header, [_summary_row(entry) for entry in data.entries], is_sortable=True)


def _summary_row(entry: Entry) -> list[Markup | str | Cell]:
    record, performance, accuracy = entry.record, entry.record.performance, entry.record.accuracy
    top1 = accuracy.top1 if accuracy else None
    median = performance.latency_median_ns if performance else None
    memory = performance.memory_bytes if performance else None
    threads = record.execution.threads if record.execution else None
    latency = _stacked(format_estimate(median, "duration")) if median else _failed(record)
    return [
        badge(entry.number),
        element("div", name_of(record), class_="name"),
        format_framework(record),
        _dataset(record),
        Cell(str(record.scenario.batch_size), record.scenario.batch_size, "scenario.batch_size"),
        Cell(str(threads or "-"), threads, "execution.threads"),
        Cell(_stacked(format_estimate(top1, "share")), top1.value if top1 else None, "accuracy.top1"),
        Cell(latency, median.value if median else None, "performance.latency_median_ns"),
        Cell(
            format_throughput(performance.throughput.value) if performance else "-",
            performance.throughput.value if performance else None,
            "performance.throughput",
        ),
        Cell(
            format_bytes(memory.value) if memory else "-", memory.value if memory else None, "performance.memory_bytes"
        ),
    ]


def _dataset(record: Record) -> Markup | str:
    facts = record.dataset
    if facts is None:
        return "-"
    count = format_count(facts.sample_count, "sample") if facts.sample_count else None
    return join(facts.name, element("span", count, class_="small") if count else None)


def _stacked(text: str) -> Markup:
    """The value, and below it, smaller, its interval and what is said about that."""
    value, bracket, rest = text.partition(" [")
    bounds, _, note = rest.partition("]")
    lines = (f"[{bounds}]", note.strip()) if bracket else ()
    return join(value, *(element("span", line, class_="small") for line in lines if line))


def _failed(record: Record) -> Markup:
    return element("span", "failed" if record.failure else "-", class_="pill bad" if record.failure else None)


def failures_section(data: ReportData) -> Markup | None:
    failed = [entry for entry in data.entries if entry.record.failure is not None]
    return join(_failure(entry) for entry in failed) if failed else None


def _failure(entry: Entry) -> Markup:
    failure = entry.record.failure
    assert failure is not None
    launch = f", launch {failure.launch + 1}" if failure.launch is not None else ""
    log = failure.log_tail.strip()
    return element(
        "div",
        element("h3", labelled(entry, name_of(entry.record))),
        element("p", failure.message),
        element("p", f"hint: {failure.hint}") if failure.hint else None,
        element("p", f"Stage {failure.stage}{launch}, code {failure.code}.", class_="soft small"),
        element("details", element("summary", "The worker's last words"), element("pre", log)) if log else None,
        class_="card failed",
    )


def pictures_section(data: ReportData) -> Markup | None:
    return join(_picture_set(group) for group in data.pictures) if data.pictures else None


def _picture_set(group: Pictures) -> Markup:
    if not group.pictures:
        why = f"No pictures of {group.dataset}: {group.note or 'none of its samples could be shown'}."
        return element("p", why, class_="lead")
    lead = (
        f"{len(group.pictures)} of {group.samples} samples of {group.dataset}: first those on which the evaluations "
        "disagree, then some that were wrong, then some that were right."
    )
    pictures = [_picture(item) for item in group.pictures]
    return join(element("p", lead, class_="lead"), element("div", *pictures, class_="pictures card"))


def _picture(item: Picture) -> Markup:
    truth = f"{item.truth}" if item.truth is not None else "no label"
    uri = data_uri(item.thumbnail, "image/jpeg")
    return element(
        "div",
        element(
            "img", src=uri, width=item.width, height=item.height, alt=f"sample {item.sample}", title=item.sample,
            loading="lazy",
        ),
        element("strong", truth),
        element("ul", *(_said(said, truth) for said in item.said)),
        class_="picture",
    )  # fmt: skip


def _said(said: Said, truth: str) -> Markup:
    sign, css = {True: ("✓ ", "yes"), False: ("✗ ", "no"), None: ("", None)}[said.is_right]
    answer = said.answer
    text = "no answer" if answer is None else f"{answer.label or f'class {answer.index}'} {answer.score:.2f}"
    if answer is not None and answer.label == truth and said.is_right is False:
        text += " (another class of that name)"
    return element("li", [[badge(number), " "] for number in said.numbers], element("span", sign, text, class_=css))
