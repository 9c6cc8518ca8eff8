"""Turns a manifest file or its text into a `Reading`: the typed value and every problem, with line and column."""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlmodelscope.core.errors import ManifestError
from mlmodelscope.core.manifest import DatasetManifest, FrameworkManifest, ModelManifest
from mlmodelscope.manifest.dataset import read_dataset
from mlmodelscope.manifest.document import parse_document
from mlmodelscope.manifest.fields import Field, Section
from mlmodelscope.manifest.model import read_framework, read_model
from mlmodelscope.manifest.problem import Place, Problem, Report, TooManyProblemsError, format_problem, nearest

__all__ = [
    "MAX_BYTES",
    "AnyManifest",
    "Reading",
    "invalid",
    "load_manifest",
    "parse_manifest",
    "read_manifest",
    "read_text",
]

MAX_BYTES = 1024 * 1024
_MOST_PROBLEMS = 200

AnyManifest = ModelManifest | FrameworkManifest | DatasetManifest

_READERS = {"model": read_model, "framework": read_framework, "dataset": read_dataset}
_START = Place(1, 1)
# the line breaks that the YAML parser counts
_BREAK = re.compile(r"\r\n|[\n\r\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Reading:
    """`value` is None exactly if a problem is an error; warnings leave it in place. Problems are in file order."""

    value: AnyManifest | None
    problems: tuple[Problem, ...]


def read_manifest(path: Path) -> Reading:
    """Reads one file. Nothing is raised for what the file holds, nor for a file that is not there."""
    report = Report(str(path))
    text = read_text(path, report)
    return Reading(None, report.problems()) if text is None else parse_manifest(text, str(path))


def read_text(path: Path, report: Report) -> str | None:
    """The text of a file of at most MAX_BYTES; None: `report` says why not."""
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            report.add("error", "unreadable", _START, "", "not a regular file")
            return None
        if facts.st_size > MAX_BYTES:
            report.add("error", "too_large", _START, "", f"{facts.st_size:,} bytes; at most {MAX_BYTES:,} are read")
            return None
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        report.add("error", "unreadable", _START, "", getattr(error, "strerror", None) or str(error))
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        place = Place(before.count(b"\n") + 1, len(before) - (before.rfind(b"\n") + 1) + 1)
        message = f"the byte 0x{content[error.start]:02x} is not UTF-8 text"
        report.add("error", "encoding", place, "", message, "save the file as UTF-8")
        return None


def parse_manifest(text: str, origin: str) -> Reading:
    """`origin` is the name that problems carry. Never raises for any text."""
    size = len(text) if len(text) > MAX_BYTES else len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        return _refused(origin, "too_large", f"{size:,} bytes; a manifest has at most {MAX_BYTES:,}")
    report = Report(origin, tuple(_BREAK.split(text)), _MOST_PROBLEMS)
    try:
        top = parse_document(text, report)
        value = _read_kind(Section(Field(top, "", report, top.place, top.place))) if top is not None else None
    except TooManyProblemsError:
        value = None
    return Reading(None if report.has_errors else value, report.problems())


def load_manifest(source: Path | str, origin: str = "<text>") -> AnyManifest:
    """The value of a file (`Path`) or of a text (`str`); raises ManifestError with every problem in its fields."""
    reading = read_manifest(source) if isinstance(source, Path) else parse_manifest(source, origin)
    if reading.value is not None:
        return reading.value
    raise invalid(reading.problems)


def invalid(problems: Sequence[Problem]) -> ManifestError:
    """The error that tells of problems, at least one of which is an error."""
    errors = [problem for problem in problems if problem.level == "error"]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    first = errors[0]
    where = format_problem(first).partition("\n")[0]
    fields = [problem.to_fields() for problem in problems]
    return ManifestError(f"{where}{more}", hint=first.hint, problems=fields)


def _read_kind(section: Section) -> AnyManifest | None:
    """`kind`, else a data set if there is a layout, else a model."""
    found = section.take("kind")
    if found is None:
        kind = "dataset" if "layout" in section else "model"
    else:
        kind = (found.text() or "").strip().lower()
        if kind not in _READERS:
            near = nearest(kind, _READERS)
            hint = f"did you mean {near}?" if near else None
            found.error("unknown_kind", f"{found.describe()} is not one of {', '.join(_READERS)}", hint)
            return None
    value: AnyManifest | None = _READERS[kind](section)
    return value


def _refused(origin: str, code: str, message: str, place: Place = _START, hint: str | None = None) -> Reading:
    report = Report(origin)
    report.add("error", code, place, "", message, hint)
    return Reading(None, report.problems())
