"""Turns a manifest's value into its canonical YAML text, and a model's steps into one digest each.

The text is the papers' form with every step visible as an item of a list. Fields at their default are left out; the
parameters of a step never are. Comments of the original are not kept.
"""

from __future__ import annotations

from typing import Any

import yaml

from mlmodelscope.core.asset import Asset, Checksum, Conversion
from mlmodelscope.core.manifest import (
    DatasetManifest,
    FrameworkManifest,
    ModelInput,
    ModelManifest,
    ModelOutput,
    ModelSource,
    PythonFunction,
)
from mlmodelscope.core.record import StepFacts
from mlmodelscope.core.steps import Step
from mlmodelscope.core.value import Frozen, digest_of
from mlmodelscope.manifest.assets import ASSET_KEYS
from mlmodelscope.manifest.document import FLOAT, INT

__all__ = ["FIELD_ORDER", "format_manifest", "step_facts", "written_step"]

FIELD_ORDER: dict[str, tuple[str, ...]] = {
    "model": (
        "name",
        "version",
        "task",
        "modality",
        "description",
        "license",
        "references",
        "is_hidden",
        "framework",
        "container",
        "requirements",
        "inputs",
        "before_preprocess",
        "preprocess",
        "after_preprocess",
        "outputs",
        "before_postprocess",
        "postprocess",
        "after_postprocess",
        "source",
        "attributes",
    ),
    "framework": ("name", "version", "description", "license", "references", "container", "requirements", "attributes"),
    "dataset": (
        "name",
        "version",
        "task",
        "split",
        "description",
        "license",
        "references",
        "layout",
        "labels",
        "attributes",
    ),
}


def format_manifest(value: ModelManifest | FrameworkManifest | DatasetManifest) -> str:
    """Text that parses to an equal value."""
    written: dict[str, Any] = {"kind": value.kind}
    for name in FIELD_ORDER[value.kind]:
        part = getattr(value, name)
        if part not in (None, "", (), {}, False):
            written["hidden" if name == "is_hidden" else name] = _written(part)
    # folding long lines would change nothing but is hard to read, and to compare
    return yaml.dump(written, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**9)


def step_facts(model: ModelManifest) -> tuple[StepFacts, ...]:
    """Every step and Python function, in the order in which they run."""
    parts: list[tuple[str, Frozen | None]] = [("before_preprocess", model.before_preprocess)]
    parts += [(step.step, step) for one in model.inputs for step in one.steps]
    parts += [("preprocess", model.preprocess), ("after_preprocess", model.after_preprocess)]
    parts += [("before_postprocess", model.before_postprocess)]
    parts += [(step.step, step) for one in model.outputs for step in one.steps]
    parts += [("postprocess", model.postprocess), ("after_postprocess", model.after_postprocess)]
    return tuple(_step_facts(name, part) for name, part in parts if part is not None)


def _step_facts(name: str, part: Frozen) -> StepFacts:
    parameters = {} if isinstance(part, PythonFunction) else part.model_dump(mode="json", exclude={"step", "labels"})
    return StepFacts(name=name, digest=digest_of(part), parameters=parameters)


def written_step(step: Step) -> dict[str, Any]:
    """`{name: parameters}`; a step of one parameter is written with its bare value."""
    parameters = {name: getattr(step, name) for name in type(step).model_fields if name not in ("step", "labels")}
    if "labels" not in type(step).model_fields and len(parameters) == 1:
        return {step.step: _plain(next(iter(parameters.values())))}
    labels = getattr(step, "labels", None)
    given = {name: _plain(value) for name, value in parameters.items() if value is not None}
    return {step.step: _Flow(given | (_written_keys("labels", labels) if labels is not None else {}))}


def _written(part: Any) -> Any:
    match part:
        case PythonFunction():
            return part.source
        case ModelInput() | ModelOutput():
            return _written_side(part)
        case ModelSource():
            weights = _written_keys("weights", part.weights) if part.weights is not None else {}
            return _written_keys("graph", part.graph) | weights
        case Asset():
            return _written_asset(part)
        case Frozen():
            fields = {name: getattr(part, name) for name in type(part).model_fields}
            return {name: _written(value) for name, value in fields.items() if value not in (None, {})}
        case tuple() if any(isinstance(one, Frozen | Asset) for one in part):
            return [_written(one) for one in part]
        case _:
            return _plain(part)


def _written_side(side: ModelInput | ModelOutput) -> dict[str, Any]:
    written: dict[str, Any] = {"type": side.type}
    if side.description:
        written["description"] = side.description
    if side.layer_name is not None:
        written["layer_name"] = side.layer_name
    written["element_type"] = side.element_type
    if isinstance(side, ModelOutput) and side.features is not None:
        written |= _written_keys("features", side.features)
    if side.steps or side.type in ("probability", "box"):
        # an empty list says that no answer is made of these
        written["steps"] = [written_step(step) for step in side.steps]
    return written


def _written_keys(name: str, asset: Asset) -> dict[str, Any]:
    keys = ASSET_KEYS[name]
    written: dict[str, Any] = {keys.location: _written_locations(asset)}
    if asset.checksum is not None:
        written[keys.checksum] = _written_checksum(asset.checksum)
    if asset.conversion is not None:
        written[keys.convert] = _written_conversion(asset.conversion)
    return written


def _written_asset(asset: Asset) -> Any:
    if asset.checksum is None and asset.conversion is None:
        return _written_locations(asset)
    written: dict[str, Any] = {"location": _written_locations(asset)}
    if asset.checksum is not None:
        written["checksum"] = _written_checksum(asset.checksum)
    if asset.conversion is not None:
        written["convert"] = _written_conversion(asset.conversion)
    return written


def _written_locations(asset: Asset) -> Any:
    return asset.locations[0] if len(asset.locations) == 1 else list(asset.locations)


def _written_checksum(checksum: Checksum) -> Any:
    return _Flow({name: value for name, value in checksum.model_dump().items() if value is not None})


def _written_conversion(conversion: Conversion) -> Any:
    if not conversion.options:
        return conversion.name
    return _Flow({"name": conversion.name, **conversion.options})


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        is_numbers = all(isinstance(one, int | float) for one in value)
        return _FlowList(value) if is_numbers else list(value)
    return value


class _Flow(dict[str, Any]):
    """A mapping that is written on one line."""


class _FlowList(list[Any]):
    """A list that is written on one line."""


class _Dumper(yaml.SafeDumper):
    """Quotes whatever YAML 1.1 or 1.2 would read as something other than text; text of several lines is a block."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # only double quotes keep line breaks such as U+0085, which other styles read back as a plain one
    style = None if text.isprintable() else '"'
    if "\n" in text and _is_block_safe(text):
        style = "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _is_block_safe(text: str) -> bool:
    """Whether a `|` block keeps the text to the letter in every reader."""
    lines = text.split("\n")
    is_clean = all(line == line.rstrip() and all(char.isprintable() for char in line) for line in lines)
    return is_clean and bool(lines[0]) and not lines[0].startswith(" ")


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(
    _Flow, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True)
)
_Dumper.add_representer(
    _FlowList, lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)
)
_Dumper.add_implicit_resolver("tag:yaml.org,2002:int", INT, list("-+0123456789"))
_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789."))
