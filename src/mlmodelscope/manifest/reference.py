"""Turns the types of manifests into docs/reference/manifest.md: every field, step, layout and problem code in tables.

`write_reference(Path("docs/reference/manifest.md"))` writes it; a test fails when the file is out of date, and when a
field has no note.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.manifest import FrameworkNeed, ModelInput, ModelOutput, ModelSource, PythonFunction
from mlmodelscope.core.steps import INPUT_STEPS, OUTPUT_STEPS, SHORT_FORMS, STEPS
from mlmodelscope.manifest.assets import ASSET_KEYS
from mlmodelscope.manifest.canonical import FIELD_ORDER
from mlmodelscope.manifest.dataset import LAYOUTS
from mlmodelscope.manifest.json_schema import KINDS
from mlmodelscope.manifest.problem import CODES
from mlmodelscope.manifest.steps import PARAMETER_NAMES, STEP_NAMES, WORDS

__all__ = ["NOTES", "format_reference", "write_reference"]

NOTES: dict[str, str] = {
    "name": "what the manifest describes, as people call it; matches whatever its case",
    "version": "a PEP 440 version of the manifest's subject, kept as text: `1.10` is not `1.1`",
    "task": "what the model or the data set is for: `image_classification`, `object_detection`, ...",
    "modality": "legacy: the kind of data, in the author's words",
    "description": "text for people; line breaks at its ends are dropped",
    "license": "of the weights or the data, in the author's words",
    "references": "papers and pages; one text or a list",
    "attributes": "free: any values; a `version` among them stays text",
    "is_hidden": "true: not shown in lists",
    "framework": "`{name, version, options}`; `version` is a constraint such as `>=1.17 <2`, `^1.x`, `1.12.x`; "
    "none: any; `options` are the framework's own",
    "container": "images by architecture and device: `{amd64: {cpu: IMAGE, gpu: IMAGE}}`",
    "requirements": "PEP 508 requirements of what the Python functions import",
    "inputs": "one entry per input tensor",
    "outputs": "one entry per output tensor",
    "before_preprocess": "Python source; runs on the sample before the steps",
    "preprocess": "Python source that makes the input tensors, instead of steps",
    "after_preprocess": "Python source; runs on the tensors before the model",
    "before_postprocess": "Python source; runs on the model's outputs before the steps",
    "postprocess": "Python source that makes the answer, instead of steps",
    "after_postprocess": "Python source; runs on the answer",
    "source": "the model's files; a bare location means `graph_path`. Also `model:`",
    "split": "which part of the set this is: `validation`, `test`, ...",
    "layout": "where samples and labels are: a mapping with `type`, or the type alone with its fields beside it",
    "labels": "names of the classes, one a line, in the order of the class index",
    "type": "what it holds: an `image` input is decoded; a `probability` output becomes the five best classes; outputs "
    "of the types `box`, `probability` and `class` (and `count`) become boxes",
    "layer_name": "the tensor's name in the model, or its index",
    "element_type": "of the tensor",
    "features": "labels of the classes, one a line",
    "steps": "run in the order written; see below",
    "graph": "the model's file; `base_url` is put before a relative one",
    "weights": "only where a framework keeps the weights in a file of their own",
}

_TITLES = {"model": "Model", "framework": "Framework", "dataset": "Data set"}
_INTRODUCTION = """# Manifest reference

Generated from the types by `mlmodelscope.manifest.reference`; do not edit. How to write one is in
[Write a manifest](../guides/write-a-manifest.md). What each step does to the pixel is in [Steps](steps.md), the
grammar of locations in [Sources](sources.md), of constraints in [Version constraints](version-constraints.md).

A manifest is one YAML document, UTF-8, at most 1 MiB, 64 levels and 100,000 nodes. Scalars follow YAML 1.2 (`no` and
`on` are text). `kind` is `model` (the default), `framework` or `dataset` (the default if there is a `layout`). Unknown
keys are warnings. The JSON Schema of each kind is in the package, `mlmodelscope/manifest/schemas/`.
"""


def format_reference() -> str:
    parts = [_INTRODUCTION]
    for kind, cls in KINDS.items():
        parts.append(f"## {_TITLES[kind]}\n\n{_fields(cls, FIELD_ORDER[kind])}")
        if kind == "model":
            sections = (("inputs[]", ModelInput), ("outputs[]", ModelOutput), ("source", ModelSource))
            parts += [f"### `{name}`\n\n{_fields(one, one.model_fields)}" for name, one in sections]
    parts.append("## Layouts of a data set\n\n" + _classes("layout", LAYOUTS))
    parts.append("## Steps\n\n" + _sides() + _classes("step", STEPS))
    parts.append("## Other spellings\n\n" + _spellings())
    parts.append("## Problem codes\n\n" + _table(("code", "meaning"), ((f"`{code}`", CODES[code]) for code in CODES)))
    return "\n".join(parts)


def write_reference(path: Path) -> None:
    path.write_text(format_reference(), encoding="utf-8")


def _fields(cls: type[BaseModel], names: Iterable[str]) -> str:
    rows = []
    for name in names:
        info = cls.model_fields[name]
        keys = ASSET_KEYS.get(name) if cls in (ModelOutput, ModelSource) else None
        written = "hidden" if name == "is_hidden" else name
        shown = f"`{written}`" if keys is None else f"`{keys.location}`, `{keys.checksum}`, `{keys.convert}`"
        kind = "location(s), checksum, converter" if keys is not None else _type(info.annotation)
        rows.append((shown, kind, _default(info.default, is_needed=info.is_required()), NOTES[name]))
    return _table(("field", "type", "default", "meaning"), rows)


def _classes(what: str, classes: Mapping[str, type[BaseModel]]) -> str:
    rows = []
    for name, cls in classes.items():
        parameters = []
        for field, info in cls.model_fields.items():
            if field in ("step", "type"):
                continue
            short = " (short form)" if SHORT_FORMS.get(name) == field else ""
            default = _default(info.default, is_needed=info.is_required())
            shown = f"`{field}`{short}: {_type(info.annotation)}"
            parameters.append(f"{shown}, {default}" if default else shown)
        rows.append((f"`{name}`", " ".join((cls.__doc__ or "").split()), "; ".join(parameters) or "none"))
    return _table((what, "meaning", "parameters"), rows)


def _sides() -> str:
    sides = (("inputs", INPUT_STEPS), ("outputs", OUTPUT_STEPS))
    lines = [f"Steps of {side}: {', '.join(f'`{name}`' for name in names)}.\n" for side, names in sides]
    keys = ASSET_KEYS["labels"]
    labels = f"`labels` is written as `{keys.location}`, `{keys.checksum}` and `{keys.convert}`.\n"
    return "".join([*lines, labels, "\n"])


def _spellings() -> str:
    rows = [(f"step `{other}`", f"`{own}`") for other, own in STEP_NAMES.items()]
    for step, names in PARAMETER_NAMES.items():
        rows += [(f"`{other}` of `{step}`", f"`{own}`") for other, own in names.items()]
    for kind, words in WORDS.items():
        rows += [(f"`{word}` for `{kind}`", f"`{own}`") for word, own in words.items() if word != own.lower()]
    rows.append(("`true`, `false` for `keep_aspect_ratio`", "`cover`, `squash`"))
    rows.append(("`[channels, height, width]` for a size", "`[height, width]`"))
    return "Words match whatever their case.\n\n" + _table(("written", "read as"), rows)


def _default(value: Any, *, is_needed: bool) -> str:
    if is_needed:
        return "needed"
    if value in (None, "", ()) or value is PydanticUndefined:
        return ""
    return "`false`" if value is False else f"`{value}`"


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return " \\| ".join(f"`{one}`" for one in arguments)
    if origin is dict:
        return "mapping"
    if origin is tuple:
        inner = [_type(one) for one in arguments if one is not Ellipsis]
        return f"list of {inner[0]}" if Ellipsis in arguments else f"[{', '.join(inner)}]"
    if arguments:
        parts = dict.fromkeys(_type(one) for one in arguments if one is not NoneType)
        return " or ".join(parts)
    return _NAMES.get(annotation, "mapping")


_NAMES: dict[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Asset: "asset",
    PythonFunction: "Python source",
    FrameworkNeed: "mapping",
}


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
