"""Turns the tree of a model manifest or a framework manifest into its typed value."""

from __future__ import annotations

from typing import Any, cast

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.manifest import (
    FrameworkManifest,
    FrameworkNeed,
    ModelInput,
    ModelManifest,
    ModelOutput,
    PythonFunction,
)
from mlmodelscope.core.steps import ColorLayout, DataLayout
from mlmodelscope.manifest.assets import read_asset_keys, read_source
from mlmodelscope.manifest.described import (
    read_constraint,
    read_container,
    read_described,
    read_description,
    read_requirements,
)
from mlmodelscope.manifest.fields import Field, Section, read_element_type
from mlmodelscope.manifest.functions import read_function
from mlmodelscope.manifest.implicit import InputFacts, complete_input, complete_output, implied_answer
from mlmodelscope.manifest.legacy import LegacyParameters, read_legacy_outputs, read_legacy_steps
from mlmodelscope.manifest.problem import nearest
from mlmodelscope.manifest.steps import WORDS, WrittenStep, read_steps

__all__ = ["FUNCTIONS", "read_framework", "read_model"]

FUNCTIONS = (
    "before_preprocess",
    "preprocess",
    "after_preprocess",
    "before_postprocess",
    "postprocess",
    "after_postprocess",
)
_OUTPUT_TYPES = {"classification": "probability", "boundingbox": "box"}


def read_model(section: Section) -> ModelManifest | None:
    """None if there are errors; they are in the section's report."""
    values = read_described(section)
    functions = {stage: _read_stage(section, stage) for stage in FUNCTIONS}
    written = {stage for stage in FUNCTIONS if stage in section}
    source_field = section.take("source", "model")
    source, labels = read_source(source_field) if source_field is not None else (None, None)
    inputs = _read_inputs(section, has_function="preprocess" in written)
    outputs = _read_outputs(section, labels, has_function="postprocess" in written)
    values |= {
        "task": section.read("task", Field.text, ""),
        "modality": section.read("modality", Field.text, ""),
        "is_hidden": section.read("hidden", Field.boolean, False),
        "framework": _read_need(section),
        "container": section.read("container", read_container, {}),
        "requirements": section.read("requirements", read_requirements, ()),
        "inputs": inputs,
        "outputs": outputs,
        "source": source,
    }
    section.finish()
    return None if section.owner.report.has_errors else ModelManifest(**values, **functions)


def read_framework(section: Section) -> FrameworkManifest | None:
    values = read_described(section)
    values["container"] = section.read("container", read_container, {})
    values["requirements"] = section.read("requirements", read_requirements, ())
    section.finish()
    return None if section.owner.report.has_errors else FrameworkManifest(**values)


def _read_stage(section: Section, stage: str) -> PythonFunction | None:
    found = section.take(stage)
    return None if found is None else read_function(found, stage)


def _read_need(section: Section) -> FrameworkNeed | None:
    found = section.need("framework")
    if found is None:
        return None
    if found.is_scalar:
        found.error("wrong_type", f"expected a mapping, found {found.describe()}", "write {name: ..., version: ...}")
        return None
    need = found.section()
    if need is None:
        return None
    name = need.need_text("name")
    version = need.read("version", read_constraint, "*")
    options = need.read("options", _read_options, {})
    need.finish()
    return FrameworkNeed(name=name, version=version, options=options)


def _read_options(found: Field) -> dict[str, Any] | None:
    return {name: field.value(name) for name, field in found.entries().items()} if found.section() else None


def _sections(found: Field | None) -> list[Section]:
    """A list of mappings, or one mapping on its own."""
    if found is None:
        return []
    if found.is_mapping:
        return [Section(found)]
    if found.is_sequence and not found.items():
        found.error("missing", "expected at least one")
    return [section for item in found.items() if (section := item.section()) is not None]


def _read_inputs(section: Section, *, has_function: bool) -> tuple[ModelInput, ...]:
    return tuple(_read_input(one, has_function=has_function) for one in _sections(section.need("inputs", "input")))


def _read_input(section: Section, *, has_function: bool) -> ModelInput:
    input_type = section.need_text("type").strip().lower()
    legacy = _parameters(section)
    side = legacy or section
    layer = section.take("layer_name") or (legacy.take("input_layer") if legacy is not None else None)
    element = section.take("element_type") or (legacy.take("element_type") if legacy is not None else None)
    element_type = (read_element_type(element) if element is not None else None) or "float32"
    layout = _read_word(side, "data_layout", "layout")
    color = _read_word(side, "color_layout", "color_layout", "color_mode")
    steps_field = section.take("steps")
    description = section.read("description", read_description, "")
    facts = InputFacts(
        is_image=input_type == "image",
        element_type=element_type,
        layout=cast("tuple[DataLayout, Field] | None", layout),
        color=cast("tuple[ColorLayout, Field] | None", color),
    )
    written = _written_input(legacy, steps_field, facts, has_function=has_function)
    if legacy is not None:
        if steps_field is None:
            # in the legacy order the layout is a step of its own, after the arithmetic
            facts = InputFacts(facts.is_image, element_type, color=facts.color)
        legacy.finish()
    section.finish()
    return ModelInput(
        type=input_type,
        description=description,
        layer_name=layer.name_or_index() if layer is not None else None,
        element_type=element_type,
        steps=() if has_function else complete_input(written, facts),
    )


def _written_input(
    legacy: LegacyParameters | None, steps: Field | None, facts: InputFacts, *, has_function: bool
) -> list[WrittenStep]:
    if steps is not None:
        if legacy is not None:
            legacy.ignore_steps("steps are given")
        if has_function:
            _refuse_both(steps, "preprocess")
        return read_steps(steps, "input")
    if legacy is None:
        return []
    if has_function or not facts.is_image:
        legacy.ignore_steps("the preprocess function is used" if has_function else "the input is not an image")
        return []
    return read_legacy_steps(legacy, facts.layout[0] if facts.layout else "HWC")


def _read_outputs(section: Section, labels: Asset | None, *, has_function: bool) -> tuple[ModelOutput, ...]:
    found: list[tuple[ModelOutput, bool]] = []
    for one in _sections(section.need("outputs", "output")):
        found += _read_output(one, has_function=has_function)
    written = [output for output, _ in found]
    outputs = []
    for output, is_open in found:
        changes: dict[str, Any] = {}
        if is_open:
            changes["steps"] = (*output.steps, *implied_answer(output.type, written))
        if labels is not None and output.features is None and output.type in ("probability", "class"):
            changes["features"] = labels
        outputs.append(output.model_copy(update=changes))
    return tuple(outputs)


def _read_output(section: Section, *, has_function: bool) -> list[tuple[ModelOutput, bool]]:
    """Outputs, each with whether the steps that make its answer were left to us."""
    written_type = section.need_text("type").strip().lower()
    output_type = _OUTPUT_TYPES.get(written_type, written_type)
    description = section.read("description", read_description, "")
    legacy = _parameters(section)
    steps_field = section.take("steps")
    if legacy is not None and steps_field is None:
        section.finish()
        outputs = read_legacy_outputs(legacy, output_type, description, has_function=has_function)
        return [(output, not has_function) for output in outputs]
    if legacy is not None:
        legacy.owner.at_key().error("contradiction", "an output has either parameters or steps", "keep steps")
    if steps_field is not None and has_function:
        _refuse_both(steps_field, "postprocess")
    steps = complete_output(read_steps(steps_field, "output")) if steps_field is not None else ()
    layer = section.take("layer_name")
    output = ModelOutput(
        type=output_type,
        description=description,
        layer_name=layer.name_or_index() if layer is not None else None,
        element_type=section.read("element_type", read_element_type, "float32"),
        features=read_asset_keys(section, "features"),
        steps=steps,
    )
    section.finish()
    return [(output, steps_field is None and not has_function)]


def _parameters(section: Section) -> LegacyParameters | None:
    found = section.take("parameters")
    if found is None:
        return None
    if not found.is_mapping:
        found.section()
        return None
    return LegacyParameters(found)


def _refuse_both(steps: Field, stage: str) -> None:
    if not (steps.is_sequence and not steps.items()):
        message = f"steps and the Python function {stage} are both given"
        steps.at_key().error("steps_and_function", message, "keep one; before_ and after_ functions may go with steps")


def _read_word(section: Section, kind: str, *names: str) -> tuple[str, Field] | None:
    found = section.take(*names)
    text = found.text() if found is not None else None
    if found is None or text is None:
        return None
    word = WORDS[kind].get(text.strip().lower())
    if word is None:
        options = sorted(set(WORDS[kind].values()))
        near = nearest(text, options)
        hint = f"did you mean {near}?" if near else None
        found.error("wrong_value", f"{found.describe()} is not one of {', '.join(options)}", hint)
        return None
    return word, found
