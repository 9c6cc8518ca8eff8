"""Turns nodes into plain values and typed values, field by field, and reports what does not fit where it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast, get_args

from pydantic import BaseModel, ValidationError

from mlmodelscope.core.steps import ElementType
from mlmodelscope.manifest.document import Entry, MappingNode, Node, ScalarNode, SequenceNode, scalar_value
from mlmodelscope.manifest.problem import Place, Report, nearest

__all__ = ["ELEMENT_TYPES", "Field", "Section", "build", "read_element_type"]

_Model = TypeVar("_Model", bound=BaseModel)
_Value = TypeVar("_Value")
_Default = TypeVar("_Default")

ELEMENT_TYPES: tuple[str, ...] = get_args(ElementType)


@dataclass(frozen=True, slots=True)
class Field:
    """A node with its path. The readers return None for a value that does not fit, having reported it.

    `place` is where its problems are reported; `key_place` is where its key stands, if it has one.
    """

    node: Node
    path: str
    report: Report
    place: Place
    key_place: Place

    def at_key(self) -> Field:
        return replace(self, place=self.key_place)

    def error(self, code: str, message: str, hint: str | None = None) -> None:
        self.report.add("error", code, self.place, self.path, message, hint)

    def warn(self, code: str, message: str, hint: str | None = None) -> None:
        self.report.add("warning", code, self.place, self.path, message, hint)

    @property
    def is_null(self) -> bool:
        return isinstance(self.node, ScalarNode) and self.node.is_plain and self.node.text in _NULLS

    @property
    def is_scalar(self) -> bool:
        return isinstance(self.node, ScalarNode)

    @property
    def is_sequence(self) -> bool:
        return isinstance(self.node, SequenceNode)

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.node, MappingNode)

    def text(self) -> str | None:
        """The raw text of any scalar: `1.10` and `no` stay what was written."""
        if not isinstance(self.node, ScalarNode):
            self._unfit("text")
            return None
        return self.node.text

    def boolean(self) -> bool | None:
        value = self.value()
        return value if isinstance(value, bool) else self._unfit("true or false")

    def number(self) -> float | None:
        value = self.value()
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number else self._unfit("a number")

    def name_or_index(self) -> str | int | None:
        value = self.value()
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        self._unfit("a name or an index from 0")
        return None

    def texts(self) -> tuple[str, ...]:
        """A list of texts, or one text on its own."""
        if self.is_scalar:
            return (self.text() or "",)
        return tuple(text for item in self.items() if (text := item.text()) is not None)

    def value(self, key: str = "") -> Any:
        """Plain JSON values; a scalar under the key `version` is its raw text."""
        node = self.node
        if isinstance(node, ScalarNode):
            if key == "version" and not self.is_null:
                return node.text
            try:
                return scalar_value(node)
            except ValueError as error:
                self.error("wrong_value", str(error))
                return None
        if isinstance(node, SequenceNode):
            return [item.value() for item in self.items()]
        return {entry.key: child.value(entry.key) for entry, child in self._children()}

    def items(self) -> list[Field]:
        if not isinstance(self.node, SequenceNode):
            self._unfit("a list")
            return []
        return [
            Field(node, f"{self.path}[{index}]", self.report, node.place, node.place)
            for index, node in enumerate(self.node.items)
        ]

    def section(self) -> Section | None:
        return Section(self) if self.is_mapping else self._unfit("a mapping")

    def entries(self) -> dict[str, Field]:
        """The fields of a mapping whose keys are free; each stands where its key stands."""
        if not self.is_mapping:
            self._unfit("a mapping")
            return {}
        return {entry.key: child for entry, child in self._children()}

    def child(self, part: str | int) -> Field | None:
        if isinstance(part, int) and isinstance(self.node, SequenceNode) and part < len(self.node.items):
            return self.items()[part]
        if isinstance(self.node, MappingNode):
            return self.entries().get(str(part))
        return None

    def _children(self) -> Iterator[tuple[Entry, Field]]:
        assert isinstance(self.node, MappingNode)
        for entry in self.node.entries:
            path = f"{self.path}.{entry.key}" if self.path else entry.key
            yield entry, Field(entry.value, path, self.report, entry.value.place, entry.place)

    def _unfit(self, expected: str) -> Any:
        # always None; typed so that a reader can end with it
        self.error("wrong_type", f"expected {expected}, found {self.describe()}")

    def describe(self) -> str:
        if isinstance(self.node, MappingNode):
            return "a mapping"
        if isinstance(self.node, SequenceNode):
            return "a list"
        if self.is_null:
            return "nothing"
        text = self.node.text
        return repr(text if len(text) <= 40 else text[:37] + "...")


_NULLS = ("", "~", "null", "Null", "NULL")


class Section:
    """The fields of one mapping. What was never asked for is reported by `finish` as unknown."""

    def __init__(self, owner: Field) -> None:
        self.owner = owner
        self._fields = owner.entries()
        self.asked: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._fields and not self._fields[name].is_null

    @property
    def names(self) -> list[str]:
        return list(self._fields)

    def take(self, *names: str) -> Field | None:
        """The field of this name or of one of its other names; None if absent or null."""
        self.asked.update(names)
        found = [(name, self._fields[name]) for name in names if name in self]
        for name, other in found[1:]:
            other.error("contradiction", f"{name} and {found[0][0]} mean the same field", f"keep {names[0]}")
        return found[0][1] if found else None

    def need(self, *names: str) -> Field | None:
        found = self.take(*names)
        if found is None:
            where = self._fields[names[0]].at_key() if names[0] in self._fields else self.owner
            where.error("missing", f"{names[0]} is missing")
        return found

    def read(self, name: str, reader: Callable[[Field], _Value | None], default: _Default) -> _Value | _Default:
        """What `reader` makes of the field; `default` if it is absent or does not fit."""
        found = self.take(name)
        value = reader(found) if found is not None else None
        return default if value is None else value

    def need_text(self, name: str) -> str:
        found = self.need(name)
        text = (found.text() if found is not None else None) or ""
        if found is not None and found.is_scalar and not text.strip():
            found.error("wrong_value", f"{name} is empty")
        return text

    def finish(self) -> None:
        entries = self.owner.node.entries if isinstance(self.owner.node, MappingNode) else ()
        for entry in entries:
            if entry.key in self.asked:
                continue
            near = nearest(entry.key, self.asked)
            hint = f"did you mean {near}?" if near else f"known here: {', '.join(sorted(self.asked))}"
            path = self._fields[entry.key].path
            self.owner.report.add(
                "warning", "unknown_key", entry.place, path, f"unknown key {entry.key!r}, ignored", hint
            )


def read_element_type(found: Field) -> ElementType | None:
    text = (found.text() or "").strip().lower()
    if text in ELEMENT_TYPES:
        return cast("ElementType", text)
    if text == "raw_image":
        found.warn("raw_image", "raw_image is read as uint8: the decoded pixels, unchanged")
        return "uint8"
    if found.is_scalar:
        near = nearest(text, ELEMENT_TYPES)
        hint = f"did you mean {near}?" if near else None
        found.error("wrong_value", f"{text!r} is not one of {', '.join(ELEMENT_TYPES)}", hint)
    return None


def build(
    cls: type[_Model], values: Mapping[str, Any], fields: Mapping[str, Field], owner: Field, what: str
) -> _Model | None:
    """`cls` from `values`; each complaint is put where its field stands, one per field."""
    try:
        return cls.model_validate(values, strict=True)
    except ValidationError as error:
        by_field: dict[str, list[Any]] = {}
        for one in error.errors(include_url=False):
            by_field.setdefault(str(one["loc"][0]) if one["loc"] else "", []).append(one)
        for name, complaints in by_field.items():
            _explain(name, complaints, fields, owner, what)
        return None


def _explain(name: str, complaints: list[Any], fields: Mapping[str, Field], owner: Field, what: str) -> None:
    first = complaints[0]
    if first["type"] == "missing":
        owner.error("missing", f"{what} needs {name}")
        return
    place = fields.get(name, owner)
    if len(complaints) > 1 and isinstance(first["loc"][1], str):
        # a union complains once per branch: the branch for lists is meant if a list was written
        branch = [one for one in complaints if place.is_sequence and "tuple" in str(one["loc"][1])]
        if not branch:
            place.error("wrong_type", f"expected a number or a list of numbers, found {place.describe()}")
            return
        complaints = branch
    for one in complaints:
        _complain(one, place, owner, what)


def _complain(complaint: Any, place: Field, owner: Field, what: str) -> None:
    for part in complaint["loc"][1:]:
        place = place.child(part) or place
    message = str(complaint["msg"]).removeprefix("Value error, ").replace("Input should", "should")
    if complaint["type"] == "literal_error":
        options = [word.strip("' ") for word in complaint["ctx"]["expected"].replace(" or ", ",").split(",")]
        near = nearest(str(complaint["input"]), options)
        place.error(
            "wrong_value",
            f"{place.describe()} is not one of {', '.join(options)}",
            f"did you mean {near}?" if near else None,
        )
    elif complaint["type"] == "value_error":
        place.error("wrong_value", message)
    else:
        code = "wrong_type" if complaint["type"].endswith("_type") else "wrong_value"
        shown = f", found {place.describe()}" if place is not owner else f" ({what})"
        place.error(code, message + shown)
