"""Turns YAML text into a tree of nodes that know their line and column and their raw text.

The tree is built from parser events, so that limits hold while the text is read: 64 levels, and 100,000 nodes with
every alias counted in full. Scalars follow the YAML 1.2 core schema (`no` and `on` are text) and are typed only when a
field asks, so a version keeps the text it was written with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from yaml.reader import Reader

from mlmodelscope.manifest.problem import Place, Report

__all__ = [
    "FLOAT",
    "INT",
    "Entry",
    "MappingNode",
    "Node",
    "ScalarNode",
    "SequenceNode",
    "parse_document",
    "scalar_value",
]

MAX_DEPTH = 64
MAX_NODES = 100_000

_NULL = re.compile(r"(?:null|Null|NULL|~)?\Z")
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.nan|\.NaN|\.NAN)\Z")
_STR_TAGS = ("!", "tag:yaml.org,2002:str")
# far more digits than any number of a manifest has, and fewer than Python refuses to convert
_LONGEST_NUMBER = 400


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """`block_line` is the line on which the text of a `|` block starts."""

    place: Place
    text: str
    is_plain: bool
    block_line: int | None = None


@dataclass(frozen=True, slots=True)
class SequenceNode:
    place: Place
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    key: str
    place: Place
    value: Node


@dataclass(frozen=True, slots=True)
class MappingNode:
    place: Place
    entries: tuple[Entry, ...]


Node = ScalarNode | SequenceNode | MappingNode


def parse_document(text: str, report: Report) -> MappingNode | None:
    """The top-level mapping, or None: then `report` says why. A problem of syntax ends the reading."""
    text = text.removeprefix("\ufeff")
    bad = Reader.NON_PRINTABLE.search(text)
    if bad is not None:
        before = text[: bad.start()]
        place = Place(before.count("\n") + 1, bad.start() - (before.rfind("\n") + 1) + 1)
        report.add("error", "not_text", place, "", f"the character {bad.group()!a} does not belong in a text file")
        return None
    try:
        return _Builder(text, report).build()
    except _StopError as stop:
        report.add("error", stop.code, stop.place, "", stop.message, stop.hint)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1) if mark is not None else Place(1, 1)
        words = [word for word in (error.context, error.problem) if word]
        hint = "indent with spaces: YAML does not take tabs" if "\\t" in str(error.problem) else None
        report.add("error", "yaml_syntax", place, "", ": ".join(words), hint)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # the parser lets Python's own complaints about absurd escapes and numbers through
        report.add("error", "yaml_syntax", Place(1, 1), "", f"the text is not YAML: {error}")
    return None


def scalar_value(node: ScalarNode) -> str | int | float | bool | None:
    """The value by the YAML 1.2 core schema. ValueError: a number that cannot be kept (infinite, huge)."""
    text = node.text
    if not node.is_plain:
        return text
    if _NULL.match(text):
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _NOT_FINITE.match(text):
        raise ValueError(f"{text} is not a finite number")
    is_int, is_float = INT.match(text), FLOAT.match(text)
    if (is_int or is_float) and len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number of {len(text)} characters is too long")
    if is_int:
        number = int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if not -(2**63) <= number < 2**63:
            raise ValueError(f"{text} does not fit in 64 bits")
        return number
    if is_float:
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError(f"{text} is too large")
        return value
    return text


class _StopError(Exception):
    def __init__(self, code: str, place: Place, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.code, self.place, self.message, self.hint = code, place, message, hint


@dataclass(slots=True)
class _Anchor:
    """`size` counts the nodes of the tree, `height` its levels; None while the node is still open."""

    node: Node | None = None
    size: int = 0
    height: int = 0


@dataclass(slots=True)
class _Builder:
    text: str
    report: Report
    count: int = 0
    height: int = 0
    anchors: dict[str, _Anchor] = field(default_factory=dict)

    def build(self) -> MappingNode:
        top: Node | None = None
        events: Iterator[Event] = yaml.parse(self.text, Loader=yaml.SafeLoader)
        for event in events:
            if not isinstance(event, DocumentStartEvent):
                continue
            if top is not None:
                hint = "write one file per manifest"
                raise _StopError("several_documents", _place(event), "a second YAML document starts here", hint)
            top = self._node(next(events), events, 1)
        if top is None:
            raise _StopError(
                "empty", Place(1, 1), "the file holds no manifest", "a manifest starts with name: and version:"
            )
        if not isinstance(top, MappingNode):
            if isinstance(top, ScalarNode) and top.is_plain and _NULL.match(top.text):
                raise _StopError(
                    "empty", top.place, "the file holds no manifest", "a manifest starts with name: and version:"
                )
            raise _StopError("not_a_mapping", top.place, "a manifest is a mapping of fields: name, version, ...")
        return top

    def _node(self, event: Event, events: Iterator[Event], depth: int) -> Node:
        self._count(event, 1, depth)
        if isinstance(event, AliasEvent):
            return self._alias(event, depth)
        assert isinstance(event, NodeEvent)
        anchor = _Anchor()
        if event.anchor is not None:
            self.anchors[event.anchor] = anchor
        start = self.count
        outer, self.height = self.height, 1
        anchor.node = self._open(event, events, depth)
        anchor.size, anchor.height = self.count - start, self.height
        self.height = max(outer, self.height + 1)
        return anchor.node

    def _open(self, event: Event, events: Iterator[Event], depth: int) -> Node:
        place = _place(event)
        match event:
            case ScalarEvent():
                return self._scalar(event)
            case SequenceStartEvent():
                _refuse_tag(event)
                items = []
                while not isinstance(item := next(events), SequenceEndEvent):
                    items.append(self._node(item, events, depth + 1))
                return SequenceNode(place, tuple(items))
            case _:
                assert isinstance(event, MappingStartEvent)
                _refuse_tag(event)
                return MappingNode(place, self._entries(events, depth))

    def _entries(self, events: Iterator[Event], depth: int) -> tuple[Entry, ...]:
        entries: dict[str, Entry] = {}
        while not isinstance(event := next(events), MappingEndEvent):
            key = self._node(event, events, depth + 1)
            value = self._node(next(events), events, depth + 1)
            if not isinstance(key, ScalarNode):
                raise _StopError("yaml_syntax", key.place, "a key must be a word, not a list or a mapping")
            place = _place(event)
            if key.is_plain and key.text == "<<":
                self.report.add("error", "merge_key", place, "", "the merge key << is not read", "repeat the fields")
            elif key.text in entries:
                first = entries[key.text].place
                hint = f"the first one is on line {first.line}"
                self.report.add("error", "duplicate_key", place, "", f"the key {key.text!r} stands here again", hint)
            else:
                entries[key.text] = Entry(key.text, place, value)
        return tuple(entries.values())

    def _scalar(self, event: ScalarEvent) -> ScalarNode:
        if event.tag is not None and event.tag not in _STR_TAGS:
            raise _StopError("yaml_tag", _place(event), f"the tag {event.tag} is not read", "leave the tag out")
        if any("\ud800" <= char <= "\udfff" for char in event.value):
            raise _StopError("not_text", _place(event), "half of a surrogate pair is not a character")
        is_plain = event.style is None and event.tag is None
        place = _place(event)
        return ScalarNode(place, event.value, is_plain, place.line + 1 if event.style == "|" else None)

    def _alias(self, event: AliasEvent, depth: int) -> Node:
        anchor = self.anchors.get(event.anchor or "")
        if anchor is None:
            raise _StopError("yaml_alias", _place(event), f"the alias *{event.anchor} has no anchor &{event.anchor}")
        if anchor.node is None:
            raise _StopError("yaml_alias", _place(event), f"the alias *{event.anchor} stands inside its own anchor")
        self._count(event, anchor.size, depth + anchor.height - 1)
        self.height = max(self.height, anchor.height + 1)
        return anchor.node

    def _count(self, event: Event, nodes: int, depth: int) -> None:
        self.count += nodes
        if depth > MAX_DEPTH:
            raise _StopError("too_deep", _place(event), f"nested more than {MAX_DEPTH} levels deep")
        if self.count > MAX_NODES:
            raise _StopError("too_many_nodes", _place(event), f"more than {MAX_NODES:,} nodes, aliases counted in full")


def _place(event: Event) -> Place:
    assert event.start_mark is not None
    return Place(event.start_mark.line + 1, event.start_mark.column + 1)


def _refuse_tag(event: SequenceStartEvent | MappingStartEvent) -> None:
    if event.tag is not None and event.tag != "!":
        raise _StopError("yaml_tag", _place(event), f"the tag {event.tag} is not read", "leave the tag out")
