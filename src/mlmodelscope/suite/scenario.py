"""Turns one scenario of a suite file into typed scenarios, one per batch size where it has batches."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import ValidationError

from mlmodelscope.core.request import Batched, Offline, Scenario, SingleStream, Timed
from mlmodelscope.manifest.fields import Field, Section
from mlmodelscope.manifest.problem import nearest

__all__ = ["read_count", "read_counts", "read_scenario", "refuse_unknown"]

_CLASSES: dict[str, type[SingleStream | Batched | Offline]] = {
    "single_stream": SingleStream,
    "batched": Batched,
    "offline": Offline,
}
_SECOND_NS = 1_000_000_000
# the words of the command line -> the fields of a scenario
_COUNTS = {
    "queries": "min_queries",
    "launches": "launches",
    "performance_set": "performance_set",
    "workers": "workers",
}


def read_count(found: Field) -> int | None:
    """A whole number from 1."""
    value = found.value()
    if type(value) is not int or not 1 <= value < 2**31:
        found.error("wrong_value", f"expected a whole number from 1, found {found.describe()}")
        return None
    return value


def read_counts(found: Field) -> list[int] | None:
    """One whole number from 1, or a list of different ones."""
    items = [found] if found.is_scalar else found.items()
    counts = [read_count(item) for item in items]
    for index, item in enumerate(items):
        if counts[index] is not None and counts[index] in counts[:index]:
            item.error("wrong_value", f"{counts[index]} stands here again")
    if not items:
        found.error("wrong_value", "an empty list")
    return [count for count in counts if count is not None]


def read_scenario(found: Field, sizes: list[int] | None) -> list[Scenario]:
    """The scenario that a mapping, or the name alone, means; `sizes` are the suite's batch sizes."""
    if found.is_scalar:
        return _variants(found, _type_of(found), {}, sizes)
    section = found.section()
    if section is None:
        return []
    type_field = section.need("type")
    if type_field is None:
        return []
    name = _type_of(type_field)
    own = section.read("batch_sizes", read_counts, None)
    values = _read_fields(section)
    cls = _CLASSES.get(name or "")
    known = set(cls.model_fields) if cls is not None else set()
    for word, field in {**_COUNTS, "warmup": "warmup_queries", "duration": "min_duration_ns", "timed": "timed"}.items():
        if cls is not None and word in section and field not in known:
            section.owner.entries()[word].at_key().error("unknown_key", f"the {name} scenario has no {word}")
    if own is not None and cls is SingleStream:
        section.owner.entries()["batch_sizes"].at_key().error(
            "contradiction", "single_stream always has one sample per query", "use the type batched"
        )
    refuse_unknown(section)
    return _variants(found, name, values, own if own is not None else sizes)


def _variants(found: Field, name: str | None, values: dict[str, Any], sizes: list[int] | None) -> list[Scenario]:
    if name is None or found.report.has_errors:
        return []
    cls = _CLASSES[name]
    if cls is SingleStream:
        return _build(found, SingleStream, [values])
    if sizes is None:
        if cls is Batched:
            found.error("missing", "the batched scenario needs batch_sizes")
            return []
        sizes = [1]
    return _build(found, cls, [{**values, "batch_size": size} for size in sizes])


def _build(found: Field, cls: type[SingleStream | Batched | Offline], variants: list[dict[str, Any]]) -> list[Scenario]:
    try:
        return [cls(**values) for values in variants]
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        found.error("wrong_value", f"{place}: {str(first['msg']).removeprefix('Value error, ')}")
        return []


def _type_of(found: Field) -> str | None:
    name = (found.text() or "").strip()
    if name in _CLASSES:
        return name
    if found.is_scalar:
        near = nearest(name, _CLASSES)
        hint = f"did you mean {near}?" if near else None
        found.error("wrong_value", f"{found.describe()} is not one of {', '.join(_CLASSES)}", hint)
    return None


def _read_fields(section: Section) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for word, field in _COUNTS.items():
        count = section.read(word, read_count, None)
        if count is not None:
            values[field] = count
    timed = section.take("timed")
    if timed is not None:
        text = (timed.text() or "").strip()
        values["timed"] = text
        if text not in get_args(Timed):
            timed.error("wrong_value", f"{timed.describe()} is not one of {', '.join(get_args(Timed))}")
    duration = section.take("duration")
    if duration is not None and (seconds := duration.number()) is not None:
        values["min_duration_ns"] = round(seconds * _SECOND_NS)
        if not 0 <= seconds <= 10**9:
            duration.error("wrong_value", "duration is a number of seconds from 0")
    warmup = section.take("warmup")
    if warmup is not None:
        value = warmup.value()
        values["warmup_queries"] = value
        if type(value) is not int or value < 0:
            warmup.error("wrong_value", f"expected a whole number from 0, found {warmup.describe()}")
    return values


def refuse_unknown(section: Section) -> None:
    """An unknown key is an error in a suite: a list or a limit that is not read would change what is measured."""
    for name, found in section.owner.entries().items():
        if name not in section.asked:
            near = nearest(name, section.asked)
            hint = f"did you mean {near}?" if near else f"known here: {', '.join(sorted(section.asked))}"
            found.at_key().error("unknown_key", f"unknown key {name!r}", hint)
