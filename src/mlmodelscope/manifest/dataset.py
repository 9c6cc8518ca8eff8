"""Turns the tree of a data set manifest into its typed value."""

from __future__ import annotations

import re
from typing import Any, get_args

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.manifest import DatasetLayout, DatasetManifest
from mlmodelscope.core.value import Frozen
from mlmodelscope.manifest.assets import read_asset
from mlmodelscope.manifest.described import read_described
from mlmodelscope.manifest.fields import Field, Section, build
from mlmodelscope.manifest.problem import nearest

__all__ = ["LAYOUTS", "read_dataset"]

LAYOUTS: dict[str, type[Frozen]] = {
    cls.model_fields["type"].default: cls for cls in get_args(get_args(DatasetLayout)[0])
}


def read_dataset(section: Section) -> DatasetManifest | None:
    """None if there are errors; they are in the section's report."""
    values = read_described(section)
    values["task"] = section.read("task", Field.text, "")
    values["split"] = section.read("split", Field.text, "")
    found = section.need("layout")
    if found is not None:
        values["layout"] = _read_layout(found, section)
    if "labels" not in section.asked:
        values["labels"] = section.read("labels", read_asset, None)
    section.finish()
    return None if section.owner.report.has_errors else DatasetManifest(**values)


def _read_layout(found: Field, outer: Section) -> Frozen | None:
    """A mapping with `type`, or the type alone with its fields beside it."""
    if found.is_scalar:
        type_field, section = found, outer
    else:
        inner = found.section()
        if inner is None:
            return None
        needed = inner.need("type")
        if needed is None:
            return None
        type_field, section = needed, inner
    name = (type_field.text() or "").strip().lower()
    if name not in LAYOUTS:
        near = nearest(name, LAYOUTS)
        hint = f"did you mean {near}?" if near else None
        type_field.error("wrong_value", f"{type_field.describe()} is not one of {', '.join(LAYOUTS)}", hint)
        # whatever layout was meant, its fields are no unknown keys
        for parameter in {parameter for cls in LAYOUTS.values() for parameter in cls.model_fields}:
            section.take(parameter)
        return None
    layout = _build_layout(name, section, found)
    if section is not outer:
        section.finish()
    return layout


def _build_layout(name: str, section: Section, owner: Field) -> Frozen | None:
    values: dict[str, Any] = {}
    fields: dict[str, Field] = {}
    for parameter, info in LAYOUTS[name].model_fields.items():
        if parameter == "type":
            continue
        found = section.take(parameter)
        if found is None:
            continue
        fields[parameter] = found
        if parameter == "files":
            values[parameter] = _read_files(found)
        elif Asset in (info.annotation, *get_args(info.annotation)):
            values[parameter] = read_asset(found)
        else:
            value = found.value()
            values[parameter] = tuple(value) if isinstance(value, list) else value
        if parameter == "pattern":
            _check_pattern(found)
    if owner.report.has_errors and None in values.values():
        return None
    return build(LAYOUTS[name], values, fields, owner.at_key(), name)


def _read_files(found: Field) -> tuple[Asset, ...] | None:
    parts = found.items() if found.is_sequence else [found]
    files = [read_asset(part) for part in parts]
    return tuple(one for one in files if one is not None) if None not in files else None


def _check_pattern(found: Field) -> None:
    text = found.text()
    if text is None:
        return
    try:
        groups = re.compile(text).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        found.error("pattern", f"not a regular expression: {error}")
        return
    if "label" not in groups:
        found.error("pattern", "the expression has no group named label", r"write for example _(?P<label>\d+)\.jpg$")
