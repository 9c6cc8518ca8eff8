"""A report -> the sections of the HTML page with charts: accuracy, latency, stages, batch sizes, layers."""

from __future__ import annotations

from collections.abc import Sequence

from mlmodelscope.analyse.distribution import BatchSweep, Box, batch_sweeps, box, cumulative, histogram
from mlmodelscope.analyse.summary import parts_in_order
from mlmodelscope.core.estimate import Estimate
from mlmodelscope.core.record import Performance
from mlmodelscope.show.records import format_count
from mlmodelscope.show.report.axes import Axis, batch_axis, duration_axis, rate_axis, share_axis
from mlmodelscope.show.report.charts import (
    LANE,
    Line,
    Row,
    band,
    dot,
    histogram_chart,
    legend,
    line_chart,
    row_chart,
    tick,
    whisker,
)
from mlmodelscope.show.report.data import Entry, ReportData
from mlmodelscope.show.report.facts import short_names, sweep_words
from mlmodelscope.show.report.markup import Content, Markup, element, join
from mlmodelscope.show.report.pieces import Cell, badge, labelled, series, table
from mlmodelscope.show.units import format_duration, format_estimate, format_share

__all__ = ["accuracy_section", "batch_section", "latency_section", "layers_section", "stages_section"]

# more lines than this over one another are a tangle
_MOST_LINES = 8
_MOST_LAYERS = 15


def accuracy_section(data: ReportData) -> Markup | None:
    rated = [(e, e.record.accuracy) for e in data.entries if e.record.accuracy and e.record.accuracy.top1]
    if not rated:
        return None
    names = short_names(data.entries)
    estimates = [estimate for _, a in rated for estimate in (a.top1, a.top5) if estimate]
    axis = share_axis(end for estimate in estimates for end in _ends(estimate))
    rows = []
    for entry, accuracy in rated:
        assert accuracy.top1 is not None
        marks = []
        if accuracy.top5 is not None:
            marks += [_whisker(axis, accuracy.top5, "thin"), dot(axis, accuracy.top5.value, "hollow")]
        marks += [_whisker(axis, accuracy.top1, "heavy"), dot(axis, accuracy.top1.value, "dot")]
        value = format_estimate(accuracy.top1, "share")
        words = f"{names[entry.number]}: top-1 {value}, top-5 {format_estimate(accuracy.top5, 'share')}"
        rows.append(_row(entry, names, marks, value, words))
    numbers: list[list[Content | Cell]] = [
        [labelled(e, names[e.number]), _share(a.top1), _share(a.top5), Cell(str(a.labelled)), Cell(str(a.samples))]
        for e, a in rated
    ]
    caption = "Filled: top-1. Hollow: top-5. Whiskers: Wilson's 95 % interval over the samples with a label."
    return join(
        _figure(row_chart(rows, axis), caption),
        _numbers(("evaluation", "top-1", "top-5", "with a label", "samples"), numbers),
    )


def latency_section(data: ReportData) -> Markup | None:
    timed = [(e, e.record.performance) for e in data.entries if e.record.performance]
    if not timed:
        return None
    names = short_names(data.entries)
    drawn = [entry for entry, _ in timed if any(map(len, entry.evidence.latencies_ns))]
    return join(
        _glance(timed, names),
        element("div", *(_distribution(entry, names) for entry in drawn), class_="cards") if drawn else None,
        element(
            "p",
            "Bars: all queries of all launches. Below each histogram one box per launch: half of its queries lie in "
            "the box, nine of ten on the line.",
            class_="small soft",
        ) if drawn else None,
        _cumulative(drawn, names) if 1 < len(drawn) <= _MOST_LINES else None,
    )  # fmt: skip


def _glance(timed: Sequence[tuple[Entry, Performance]], names: dict[int, str]) -> Markup:
    """All evaluations on one axis."""
    boxes = {entry.number: _pooled(entry) for entry, _ in timed}
    ends = [end for _, p in timed for e in (p.latency_median_ns, *p.percentiles_ns.values()) for end in (e.value,)]
    ends += [end for _, p in timed for end in _ends(p.latency_median_ns)]
    ends += [end for item in boxes.values() if item for end in (item.low, item.high)]
    axis = duration_axis(ends, may_be_log=True)
    rows = []
    for entry, performance in timed:
        shape, median = boxes[entry.number], performance.latency_median_ns
        marks = [band(axis, shape.first_quartile, shape.third_quartile, "range")] if shape else []
        marks += [tick(axis, estimate.value, "notch") for estimate in performance.percentiles_ns.values()]
        marks += [_whisker(axis, median, "heavy"), dot(axis, median.value, "dot")]
        value = format_estimate(median, "duration")
        rows.append(_row(entry, names, marks, value, f"{names[entry.number]}: median latency {value}"))
    scale = " The axis is logarithmic." if axis.is_log else ""
    caption = (
        "Dot and whiskers: the median and its 95 % interval over launches. Band: the middle half of all queries. "
        f"Ticks: the percentiles from p90 that the number of queries supports.{scale}"
    )
    percentiles = list(dict.fromkeys(name for _, p in timed for name in p.percentiles_ns))
    numbers: list[list[Content | Cell]] = [
        [
            labelled(entry, names[entry.number]),
            _duration(p.latency_median_ns),
            *(_duration(p.percentiles_ns.get(name)) for name in percentiles),
            Cell(format_duration(p.latency_max_ns), p.latency_max_ns),
            Cell(f"{p.latency_median_ns.n:,}"),
            Cell(str(p.latency_median_ns.launches)),
        ]
        for entry, p in timed
    ]
    header = ("evaluation", "median", *percentiles, "slowest", "queries", "launches")
    return join(_figure(row_chart(rows, axis), caption), _numbers(header, numbers))


def _pooled(entry: Entry) -> Box | None:
    values = _all(entry)
    return box(values) if values else None


def _all(entry: Entry) -> list[float]:
    return [value for launch in entry.evidence.latencies_ns for value in launch]


def _distribution(entry: Entry, names: dict[int, str]) -> Markup:
    performance = entry.record.performance
    assert performance is not None
    launches = [launch for launch in entry.evidence.latencies_ns if launch]
    shape, boxes = histogram(_all(entry)), [box(launch) for launch in launches]
    marks = {"median": performance.latency_median_ns, **performance.percentiles_ns}
    inside = [(name, e.value) for name, e in marks.items() if shape.edges[0] <= e.value <= shape.edges[-1]]
    axis = duration_axis([shape.edges[0], shape.edges[-1]])
    facts = (
        f"{format_count(len(_all(entry)), 'query', 'queries')} in {format_count(len(launches), 'launch', 'launches')}"
    )
    beyond = f"; {shape.beyond} slower, up to {format_duration(performance.latency_max_ns)}" if shape.beyond else ""
    words = f"Histogram of {facts}: median {format_estimate(performance.latency_median_ns, 'duration')}"
    return element(
        "figure",
        element("h3", labelled(entry, names[entry.number])),
        element("p", f"{facts}, in {axis.unit}{beyond}", class_="small soft"),
        histogram_chart(shape, boxes, inside, axis, series(entry.number), words),
        class_="card",
    )


def _cumulative(entries: Sequence[Entry], names: dict[int, str]) -> Markup:
    curves = [(entry, cumulative(_all(entry))) for entry in entries]
    # the slowest query of all would squeeze every curve to the left; the last point drawn is p99.5 or so
    ends = [x for _, points in curves for x, share in points if share <= 0.995] or [x for _, p in curves for x, _ in p]
    x_axis = duration_axis(ends, may_be_log=True)
    y_axis = Axis(0, 1, False, tuple((value / 4, f"{25 * value}") for value in range(5)), "% of queries")
    lines = [Line(series(entry.number), str(entry.number), points) for entry, points in curves]
    keys = legend([(series(entry.number), f"{entry.number} {names[entry.number]}") for entry in entries])
    chart = line_chart(lines, x_axis, y_axis, "Share of queries that took no longer than the time below")
    return _figure(join(keys, chart), "How many per cent of the queries took no longer than the time below.")


def stages_section(data: ReportData) -> Markup | None:
    """Where the time of a query goes, per sample: a query of a large batch takes longer and does more."""
    split = [
        (e, e.record.performance.parts_ns)
        for e in data.entries
        if e.record.performance and e.record.performance.parts_ns
    ]
    if not split:
        return None
    names = short_names(data.entries)
    parts = parts_in_order(name for _, found in split for name in found)
    axis = duration_axis([_per_sample(e, sum(x.value for x in found.values())) for e, found in split], from_zero=True)
    rows = []
    for entry, found in split:
        total = sum(estimate.value for estimate in found.values())
        marks, start = [], 0.0
        for part in parts_in_order(found):
            estimate = found[part]
            marks.append(_segment(axis, entry, start, estimate.value, part, parts.index(part)))
            start += estimate.value
        shares = ", ".join(f"{name} {format_share(e.value / total)}" for name, e in found.items() if total)
        value = format_duration(_per_sample(entry, total))
        rows.append(_row(entry, names, marks, value, f"{names[entry.number]}: {shares}"))
    keys = legend([(series(index + 1), name) for index, name in enumerate(parts)])
    numbers: list[list[Content | Cell]] = [
        [labelled(entry, names[entry.number]), *(_duration(found.get(part)) for part in parts)]
        for entry, found in split
    ]
    caption = (
        "The median of each part of a query, divided by its number of samples. Medians of parts need not add up to "
        "the median of the whole."
    )
    return join(
        keys,
        _figure(row_chart(rows, axis), caption),
        _numbers(("evaluation, per query", *parts), numbers),
    )


def _segment(axis: Axis, entry: Entry, start: float, length: float, name: str, index: int) -> Markup:
    left, right = (axis.at(_per_sample(entry, value)) for value in (start, start + length))
    label = None
    if right - left > 14:
        middle = f"{(left + right) / 2:.2f}%"
        label = element("text", name, x=middle, y=LANE / 2, dy="0.34em", text_anchor="middle", class_="segment-name")
    shape = element(
        "rect", x=f"{left:.2f}%", width=f"{max(right - left, 0.1):.2f}%", y=4, height=LANE - 8,
        class_=f"segment {series(index + 1)}",
    )  # fmt: skip
    return join(shape, label)


def _per_sample(entry: Entry, value: float) -> float:
    queries = sum(launch.queries for launch in entry.record.launches)
    samples = sum(launch.samples for launch in entry.record.launches)
    return value * queries / samples if samples else value


def batch_section(data: ReportData) -> Markup | None:
    sweeps = batch_sweeps(entry.record for entry in data.entries)
    if not sweeps:
        return None
    points = [(record, record.performance) for sweep in sweeps for record in sweep.records]
    x_axis = batch_axis(record.scenario.batch_size for record, _ in points)
    y_axis = rate_axis(end for _, performance in points if performance for end in _ends(performance.throughput))
    lines = [_sweep_line(sweep, index, len(sweeps)) for index, sweep in enumerate(sweeps)]
    words = [f"{_sweep_name(item)}: {sweep_words(item.sweep)}" for item in sweeps]
    caption = (
        "Whiskers: 95 % interval over launches. Ring: the best batch size, the last one where doubling still added "
        "more than 5 % of throughput."
    )
    rows = [_sweep_row(data, sweep, index) for sweep in sweeps for index in range(len(sweep.records))]
    return join(
        *(element("p", text, class_="headline") for text in words),
        _figure(line_chart(lines, x_axis, y_axis, " ".join(words)), caption),
        table(("evaluation", "batch", "throughput", "per doubling", ""), rows),
    )


def _sweep_name(sweep: BatchSweep) -> str:
    record = sweep.records[0]
    return f"{record.model.name} on {record.software.framework if record.software else 'unknown'}"


def _sweep_line(sweep: BatchSweep, index: int, count: int) -> Line:
    measured = [(r.scenario.batch_size, r.performance.throughput) for r in sweep.records if r.performance]
    intervals = [(e.interval.low, e.interval.high) if e.interval else None for _, e in measured]
    points = [(float(size), estimate.value) for size, estimate in measured]
    name = sweep.records[0].model.name if count > 1 else ""
    return Line(series(index + 1), name, points, intervals, sweep.sweep.optimal)


def _sweep_row(data: ReportData, sweep: BatchSweep, index: int) -> list[Markup | str | Cell]:
    record, gain = sweep.records[index], sweep.sweep.points[index].gain
    assert record.performance is not None
    size, throughput = record.scenario.batch_size, record.performance.throughput
    return [
        element("span", badge(data.number(record.id)), " ", record.model.name),
        Cell(str(size), size),
        Cell(format_estimate(throughput, "throughput"), throughput.value, "performance.throughput"),
        Cell("-" if gain is None else f"{100 * gain:+z.1f} %", gain),
        element("span", "best", class_="pill good") if size == sweep.sweep.optimal else "",
    ]


def layers_section(data: ReportData) -> Markup | None:
    """The slowest layers of every evaluation that was traced so deep."""
    traced = [entry for entry in data.entries if entry.layers]
    if not traced:
        return None
    names = short_names(data.entries)
    blocks = []
    for entry in traced:
        shown = entry.layers[:_MOST_LAYERS]
        axis = duration_axis([layer.time_ns for layer in shown], from_zero=True)
        css = f"segment {series(entry.number)}"
        rows = [
            Row(
                element("span", layer.name, element("span", f" {layer.operator}", class_="soft small")),
                band(axis, 0, layer.time_ns, css, half=8),
                f"{format_duration(layer.time_ns)}, {format_share(layer.share)}",
                f"{layer.name}: {format_duration(layer.time_ns)}",
            )
            for layer in shown
        ]
        count = f"The slowest {len(shown)} of {len(entry.layers)} layers, from the framework's own profile."
        blocks.append(join(element("h3", labelled(entry, names[entry.number])), _figure(row_chart(rows, axis), count)))
    return join(blocks)


def _row(entry: Entry, names: dict[int, str], marks: Sequence[Markup], value: str, words: str) -> Row:
    label = join(badge(entry.number), element("span", names[entry.number]))
    return Row(label, element("g", *marks, class_=series(entry.number)), value, words)


def _figure(chart: Markup, caption: str) -> Markup:
    return element("figure", chart, element("figcaption", caption))


def _numbers(header: Sequence[str], rows: Sequence[Sequence[Content | Cell]]) -> Markup:
    return element("details", element("summary", "Numbers"), table(header, rows, is_sortable=True))


def _ends(estimate: Estimate) -> tuple[float, ...]:
    interval = estimate.interval
    return (estimate.value,) if interval is None else (estimate.value, interval.low, interval.high)


def _whisker(axis: Axis, estimate: Estimate, css: str) -> Markup:
    interval = estimate.interval
    return whisker(axis, interval.low, interval.high, css) if interval else Markup()


def _share(estimate: Estimate | None) -> Cell:
    return Cell(format_estimate(estimate, "share"), estimate.value if estimate else None)


def _duration(estimate: Estimate | None) -> Cell:
    return Cell(format_estimate(estimate, "duration"), estimate.value if estimate else None)
