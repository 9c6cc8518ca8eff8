"""A report -> one HTML page that opens without a network: style, script, charts, pictures and records are inside.

Nothing from a record can become markup (`markup.element` escapes it), and the page's own policy forbids every script
and style but ours, and every request.
"""

from __future__ import annotations

import base64
import hashlib

from mlmodelscope.show.report.data import ReportData
from mlmodelscope.show.report.details import records_section, trust_section
from mlmodelscope.show.report.facts import READING, title
from mlmodelscope.show.report.figures import (
    accuracy_section,
    batch_section,
    latency_section,
    layers_section,
    stages_section,
)
from mlmodelscope.show.report.markup import Markup, element, join, raw
from mlmodelscope.show.report.overview import failures_section, pictures_section, summary_section, verdict_section
from mlmodelscope.show.report.style import SCRIPT, STYLE

__all__ = ["format_html"]

_SECTIONS = (
    ("verdict", "Comparability", verdict_section),
    ("summary", "Summary", summary_section),
    ("failures", "Failed", failures_section),
    ("accuracy", "Accuracy", accuracy_section),
    ("latency", "Latency", latency_section),
    ("stages", "Stages", stages_section),
    ("batch", "Batch size", batch_section),
    ("layers", "Layers", layers_section),
    ("pictures", "Pictures", pictures_section),
    ("trust", "What to distrust", trust_section),
    ("records", "Records", records_section),
)


def format_html(data: ReportData) -> str:
    """The whole page. A section without content is left out, and so is its link."""
    parts = [(key, name, section(data)) for key, name, section in _SECTIONS]
    shown = [(key, name, content) for key, name, content in parts if content]
    links = [element("li", element("a", name, href=f"#{key}")) for key, name, _ in shown]
    sections = [
        element("section", element("h2", name), content, id=key, aria_label=name) for key, name, content in shown
    ]
    page = element(
        "html",
        _head(data),
        element(
            "body",
            _header(data),
            element("nav", element("ul", *links), aria_label="Sections"),
            element("main", *sections),
            element("footer", element("p", READING), element("p", _made(data))),
            element("script", raw(SCRIPT)),
        ),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _head(data: ReportData) -> Markup:
    policy = f"default-src 'none'; img-src data:; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}"
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name_="generator", content=f"mlmodelscope {data.version}"),
        element("title", f"{title(data)} - evaluation report"),
        element("style", raw(STYLE)),
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _header(data: ReportData) -> Markup:
    count = len(data.entries)
    failed = sum(entry.record.status == "failed" for entry in data.entries)
    words = f"{count} evaluation{'s' if count > 1 else ''}{f', {failed} of them failed' if failed else ''}"
    return element("header", element("h1", title(data)), element("p", f"Evaluation report: {words}.", class_="soft"))


def _made(data: ReportData) -> Markup:
    return join(f"Made by mlmodelscope {data.version} on {data.made_at[:16].replace('T', ' ')} UTC.")
