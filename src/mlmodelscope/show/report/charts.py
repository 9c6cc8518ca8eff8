"""Numbers -> charts as inline SVG; knows axes, colours and shapes, and nothing of records.

Horizontal places are per cent of the drawing, so that a chart fits a phone and a desk without its text being scaled.
Vertical places are pixels, but in `line_chart`, whose lines are stretched and keep their width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlmodelscope.analyse.distribution import Box, Histogram
from mlmodelscope.show.report.axes import Axis
from mlmodelscope.show.report.markup import Content, Markup, element, join

__all__ = ["Line", "Row", "band", "dot", "histogram_chart", "legend", "line_chart", "row_chart", "tick", "whisker"]

LANE = 30
_MIDDLE = LANE / 2
_BARS = 104
_LABELS = 26
_BOX = 11
_MOST_BOXES = 12
# the width of a letter, in per cent of a drawing of some 290 pixels
_LETTER = 2.2


@dataclass(frozen=True, slots=True)
class Row:
    """One lane of a row chart: `label` before it, `marks` in it, `value` behind it, `description` in words."""

    label: Content
    marks: Content
    value: str
    description: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line through `points`, each (x, y) with the ends of y's interval. `name` stands beside it and in the legend."""

    css: str
    name: str
    points: Sequence[tuple[float, float]]
    intervals: Sequence[tuple[float, float] | None] = ()
    best: int | None = None


def row_chart(rows: Sequence[Row], axis: Axis) -> Markup:
    """Lanes under one another over one axis."""
    lanes = [
        element(
            "div",
            element("div", row.label, class_="row-label"),
            element(
                "svg", _grid(axis, LANE), row.marks, class_="lane", height=LANE, role="img", aria_label=row.description
            ),
            element("div", row.value, class_="row-value"),
            class_="row",
        )
        for row in rows
    ]
    scale = element("svg", _tick_labels(axis, 4), class_="scale", height=18, aria_hidden="true")
    footer = element("div", element("div", class_="row-label"), scale, class_="row row-axis")
    return element("div", *lanes, footer, class_="rows")


def band(axis: Axis, low: float, high: float, css: str, half: float = 7) -> Markup:
    left, right = axis.at(low), axis.at(high)
    return element(
        "rect", x=_percent(left), width=_percent(max(right - left, 0.2)), y=_MIDDLE - half, height=2 * half, class_=css
    )


def whisker(axis: Axis, low: float, high: float, css: str, cap: float = 4) -> Markup:
    ends = [
        element("line", x1=_percent(axis.at(end)), x2=_percent(axis.at(end)), y1=_MIDDLE - cap, y2=_MIDDLE + cap)
        for end in (low, high)
    ]
    line = element("line", x1=_percent(axis.at(low)), x2=_percent(axis.at(high)), y1=_MIDDLE, y2=_MIDDLE)
    return element("g", line, *ends, class_=css)


def dot(axis: Axis, value: float, css: str) -> Markup:
    return element("circle", cx=_percent(axis.at(value)), cy=_MIDDLE, r=4.5, class_=css)


def tick(axis: Axis, value: float, css: str, half: float = 6) -> Markup:
    x = _percent(axis.at(value))
    return element("line", x1=x, x2=x, y1=_MIDDLE - half, y2=_MIDDLE + half, class_=css)


def histogram_chart(
    shape: Histogram, launches: Sequence[Box], marks: Sequence[tuple[str, float]], axis: Axis, css: str, summary: str
) -> Markup:
    """Bars of all queries with `marks` (a name, a value) drawn through them, and a box for each launch below."""
    shown = launches[:_MOST_BOXES]
    top, floor = _LABELS, _LABELS + _BARS
    boxes_top = floor + 22
    height = boxes_top + _BOX * len(shown) + 2
    drawing = [
        _grid(axis, floor - top, top),
        _bars(shape, axis, floor),
        element("line", x1="0", x2="100%", y1=floor, y2=floor, class_="base"),
        element("svg", _tick_labels(axis, 0), y=floor + 4, height=18, class_="nested"),
        _marks(marks, axis, top, floor),
        *(_box(item, axis, boxes_top + _BOX * index + _BOX / 2) for index, item in enumerate(shown)),
    ]
    return element("svg", *drawing, class_=f"plot {css}", height=height, role="img", aria_label=summary)


def line_chart(lines: Sequence[Line], x: Axis, y: Axis, summary: str, height: int = 230) -> Markup:
    """Lines over two axes; points and intervals only where intervals are given."""
    grid = [
        join(
            element("line", x1="0", x2="100%", y1=_percent(100 - y.at(v)), y2=_percent(100 - y.at(v)), class_="grid"),
            element("text", text, x=-8, y=_percent(100 - y.at(v)), dy="0.32em", text_anchor="end", class_="tick"),
        )
        for v, text in y.ticks
    ]
    paths = [
        element("path", d=_path(line.points, x, y), class_=f"line {line.css}", vector_effect="non-scaling-stroke")
        for line in lines
    ]
    stretched = element("svg", *paths, viewBox="0 0 1000 1000", preserveAspectRatio="none", width="100%", height="100%")
    drawing = [
        _grid(x, height),
        *grid,
        stretched,
        *(_points(line, x, y) for line in lines),
        *(_name(line, x, y, index, len(lines)) for index, line in enumerate(lines)),
        element("svg", _tick_labels(x, 0), y=height + 4, height=18, class_="nested"),
    ]
    svg = element("svg", *drawing, class_="canvas", height=height, role="img", aria_label=summary)
    title_y = element("div", y.unit, class_="axis-title axis-y")
    return element("div", title_y, svg, class_="framed")


def legend(items: Sequence[tuple[str, str]]) -> Markup:
    """Pairs of a colour class and what it stands for."""
    keys = [element("li", element("span", class_=f"key {css}"), text) for css, text in items]
    return element("ul", *keys, class_="legend")


def _grid(axis: Axis, height: float, top: float = 0) -> Markup:
    return join(
        element("line", x1=_percent(axis.at(v)), x2=_percent(axis.at(v)), y1=top, y2=top + height, class_="grid")
        for v, _ in axis.ticks
    )


def _tick_labels(axis: Axis, top: float) -> Markup:
    """The last one carries the unit; one that would touch it on a narrow drawing is left out."""
    labels = []
    last = axis.ticks[-1][0]
    free = axis.at(last) - _LETTER * (len(axis.ticks[-1][1]) + len(axis.unit) + 2)
    for value, number in axis.ticks:
        place = axis.at(value)
        if value != last and place + _LETTER * len(number) / 2 > free:
            continue
        text = f"{number} {axis.unit}" if value == last else number
        anchor = "start" if place < 1 else "end" if place > 99 else "middle"
        labels.append(element("text", text, x=_percent(place), y=top + 11, text_anchor=anchor, class_="tick"))
    return join(labels)


def _bars(shape: Histogram, axis: Axis, floor: float) -> Markup:
    most = max(shape.counts) or 1
    bars = []
    for count, left, right in zip(shape.counts, shape.edges[:-1], shape.edges[1:], strict=True):
        start, end = axis.at(left), axis.at(right)
        tall = (_BARS - 6) * count / most
        if count:
            bars.append(element("rect", x=_percent(start), width=_percent(end - start), y=floor - tall, height=tall))
    return element("g", *bars, class_="bars")


def _marks(marks: Sequence[tuple[str, float]], axis: Axis, top: float, floor: float) -> Markup:
    """Dashed lines with their names above; names that would touch stand on the second or third line."""
    ends = [-100.0, -100.0]
    drawn = []
    for name, value in sorted(marks, key=lambda mark: mark[1]):
        place = axis.at(value)
        half = _LETTER * len(name) / 2 + 1
        level = 0 if place - half > ends[0] else 1
        ends[level] = place + half
        anchor, x = ("end", min(place, 100.0)) if place > 95 else ("start", place) if place < 5 else ("middle", place)
        css = "mark" if name != "median" else "mark mark-median"
        y = top - 4 - 11 * level
        drawn.append(element("line", x1=_percent(place), x2=_percent(place), y1=y + 3, y2=floor, class_=css))
        drawn.append(element("text", name, x=_percent(x), y=y, text_anchor=anchor, class_="mark-name"))
    return join(drawn)


def _box(item: Box, axis: Axis, y: float) -> Markup:
    left, right = axis.at(item.first_quartile), axis.at(item.third_quartile)
    middle = _percent(axis.at(item.median))
    return element(
        "g",
        element("line", x1=_percent(axis.at(item.low)), x2=_percent(axis.at(item.high)), y1=y, y2=y, class_="box-line"),
        element("rect", x=_percent(left), width=_percent(max(right - left, 0.3)), y=y - 3, height=6, class_="box"),
        element("line", x1=middle, x2=middle, y1=y - 4, y2=y + 4, class_="box-median"),
    )


def _path(points: Sequence[tuple[float, float]], x: Axis, y: Axis) -> str:
    places = [f"{10 * x.at(a):.1f} {1000 - 10 * y.at(b):.1f}" for a, b in points]
    return "M" + "L".join(places)


def _points(line: Line, x: Axis, y: Axis) -> Markup:
    drawn = []
    for (a, b), interval in zip(line.points, line.intervals, strict=False):
        across, up = _percent(x.at(a)), _percent(100 - y.at(b))
        if interval is not None:
            low, high = (_percent(100 - y.at(end)) for end in interval)
            drawn.append(element("line", x1=across, x2=across, y1=low, y2=high, class_=f"whisker {line.css}"))
        if line.best == a:
            drawn.append(element("circle", cx=across, cy=up, r=9, class_=f"ring {line.css}"))
        drawn.append(element("circle", cx=across, cy=up, r=4.5, class_=f"dot {line.css}"))
    return join(drawn)


def _name(line: Line, x: Axis, y: Axis, index: int, count: int) -> Markup:
    """The name beside a point of the line, at another height for every line."""
    place = len(line.points) - 1 if line.intervals else int((index + 1) / (count + 1) * (len(line.points) - 1))
    a, b = line.points[place]
    offset = {"dx": 12, "dy": -10} if line.intervals else {"dx": 7, "dy": 4}
    return element(
        "text", line.name, x=_percent(x.at(a)), y=_percent(100 - y.at(b)), class_=f"line-name {line.css}", **offset
    )


def _percent(place: float) -> str:
    return f"{place:.2f}%"
