"""Turns a complaint about one place of a text into a frozen `Problem`, and problems into lines for people.

`CODES` lists every code with what it means; docs/reference/manifest.md is made from it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

__all__ = ["CODES", "Level", "Place", "Problem", "Report", "TooManyProblemsError", "format_problem", "nearest"]

Level = Literal["error", "warning"]
_LONGEST_LINE = 1000

CODES: dict[str, str] = {
    "channels": "a list of numbers does not have one number per colour channel",
    "checksum": "a checksum is not 64 (SHA-256) or 32 (MD5) hexadecimal digits",
    "constraint": "a version constraint cannot be read, or no version can satisfy it",
    "contradiction": "two fields say different things about the same fact",
    "duplicate_key": "a mapping has the same key twice",
    "empty": "the file holds no manifest",
    "encoding": "the file is not UTF-8 text",
    "function_ambiguous": "Python source with several functions that could be meant",
    "function_missing": "Python source without a function of two parameters",
    "function_signature": "the Python function does not take two parameters",
    "function_syntax": "Python source that does not parse",
    "ignored": "a field that has no effect here",
    "image_device": "a container image tagged for the other device",
    "int8_bytes": "`int8` for decoded bytes: read as `uint8`",
    "integer_arithmetic": "subtraction or division in a type of whole numbers",
    "location": "a location is neither a URL, a path nor a package member",
    "merge_key": "YAML's merge key `<<`, which is not read",
    "missing": "a field that is needed is not there",
    "not_a_mapping": "the top level of the file is not a mapping",
    "not_text": "a character that no text file holds",
    "pattern": "a regular expression that does not compile or has no group `label`",
    "raw_image": "the element type `raw_image`: read as `uint8`",
    "requirement": "a requirement is not PEP 508",
    "several_documents": "the file holds more than one YAML document",
    "step_form": "a step is not written as one name with its parameters",
    "step_order": "a step stands where it cannot work",
    "step_side": "a step of the other side: an input's among outputs, or the reverse",
    "steps_and_function": "steps and a Python function for the same stage",
    "too_deep": "the YAML is nested more than 64 levels deep",
    "too_large": "the file is over 1 MiB",
    "too_many_nodes": "the YAML has more than 100,000 nodes, aliases counted as often as they are used",
    "too_many_problems": "the file has more than 200 problems; it is not read further",
    "unknown_key": "a key that means nothing here",
    "unknown_kind": "`kind` is not model, framework or dataset",
    "unknown_step": "there is no step of this name",
    "unreadable": "the file is not there or cannot be read",
    "version": "a version is not PEP 440",
    "wrong_type": "a value of another type than the field takes",
    "wrong_value": "a value outside what the field takes",
    "yaml_alias": "a YAML alias without an anchor, or inside its own anchor",
    "yaml_syntax": "the text is not YAML",
    "yaml_tag": "an explicit YAML tag, which is not read",
}


class Place(NamedTuple):
    """Where something starts: both count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One complaint. `path` is the field (`inputs[0].steps[1].crop`), "" for the file as a whole."""

    file: str
    line: int
    column: int
    path: str
    level: Level
    code: str
    message: str
    hint: str | None = None

    def to_fields(self) -> dict[str, Any]:
        return asdict(self)


def format_problem(problem: Problem) -> str:
    """`file:line:column: error: message`, and the hint on a line of its own."""
    where = f"{problem.file}:{problem.line}:{problem.column}"
    field = f"{problem.path}: " if problem.path else ""
    text = _shown(f"{where}: {problem.level}: {field}{problem.message}")
    return text if problem.hint is None else f"{text}\n  hint: {_shown(problem.hint)}"


def _shown(text: str) -> str:
    """One line that is safe for a terminal: keys and values of a manifest may hold anything, of any length."""
    clean = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[:_LONGEST_LINE])
    return clean if len(text) <= _LONGEST_LINE else f"{clean}..."


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` was most likely meant to be."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


class TooManyProblemsError(Exception):
    """Raised by a report that is full, and caught by whoever made it."""


class Report:
    """Collects the problems of one text while it is read. `lines` is the text, for positions inside Python source.

    With `most`, TooManyProblemsError ends the reading once there are more: a hostile text has any number.
    """

    def __init__(self, file: str, lines: tuple[str, ...] = (), most: int | None = None) -> None:
        self.file = file
        self.lines = lines
        self._most = most
        self._found: set[Problem] = set()

    @property
    def has_errors(self) -> bool:
        return any(problem.level == "error" for problem in self._found)

    def add(self, level: Level, code: str, place: Place, path: str, message: str, hint: str | None = None) -> None:
        assert code in CODES
        if self._most is not None and len(self._found) >= self._most:
            message = f"more than {self._most} problems: the rest of the file is not read"
            self._found.add(Problem(self.file, place.line, place.column, "", "error", "too_many_problems", message))
            raise TooManyProblemsError
        self._found.add(Problem(self.file, place.line, place.column, path, level, code, message, hint))

    def problems(self) -> tuple[Problem, ...]:
        """In the order of the file. An alias used twice is reported once: it stands in one place."""
        return tuple(sorted(self._found, key=lambda one: (one.line, one.column, one.path, one.code, one.message)))
