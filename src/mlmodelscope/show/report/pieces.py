"""Small pieces of the HTML page that several sections share: badges, tables, data URIs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from mlmodelscope.show.report.data import Entry
from mlmodelscope.show.report.markup import Content, Markup, element
from mlmodelscope.show.report.style import SERIES

__all__ = ["Cell", "badge", "data_uri", "labelled", "series", "table"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that is a number: aligned to the right, and sorted by `value`. `source` says where the number is from."""

    text: Content
    value: float | None = None
    source: str | None = None


def series(number: int) -> str:
    """The colour class of a record."""
    return f"s{(number - 1) % SERIES + 1}"


def badge(number: int) -> Markup:
    return element(
        "a", str(number), class_=f"badge {series(number)}", href=f"#record-{number}", title=f"record {number}"
    )


def labelled(entry: Entry, name: str) -> Markup:
    return element("span", badge(entry.number), " ", name)


def table(header: Sequence[str], rows: Sequence[Sequence[Content | Cell]], *, is_sortable: bool = False) -> Markup:
    """A column whose first cell is a `Cell` is one of numbers."""
    numeric = [isinstance(cell, Cell) for cell in rows[0]] if rows else [False] * len(header)
    head = [
        element("th", text, class_="number" if is_number else None, scope="col")
        for text, is_number in zip(header, numeric, strict=True)
    ]
    body = [element("tr", *(_cell(cell) for cell in row)) for row in rows]
    whole = element(
        "table",
        element("thead", element("tr", *head)),
        element("tbody", *body),
        class_="sortable" if is_sortable and len(rows) > 1 else None,
    )
    return element("div", whole, class_="table")


def _cell(cell: Content | Cell) -> Markup:
    if not isinstance(cell, Cell):
        return element("td", cell)
    value = "" if cell.value is None else repr(cell.value)
    return element("td", cell.text, class_="number", data_value=value, title=cell.source)


def data_uri(content: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"
