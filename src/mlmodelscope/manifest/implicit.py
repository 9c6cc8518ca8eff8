"""Turns the steps that an author wrote into all the steps that run: what was implied becomes visible.

Of an image without `decode` the first step is a Decode; arithmetic works in the input's element type, so a Cast stands
before it unless a cast was written; the data ends in the input's element type, and Batch is last. An output of
probabilities without steps ends in TopK(5); outputs of boxes, probabilities and classes without steps become boxes, in
the form of TensorFlow's detectors. Following the state of the data from step to step also finds steps that
cannot work where they stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlmodelscope.core.manifest import ModelOutput
from mlmodelscope.core.steps import (
    Batch,
    Cast,
    Color,
    ColorLayout,
    DataLayout,
    Decode,
    DecodeBoxes,
    ElementType,
    Layout,
    Mean,
    Normalize,
    Rescale,
    Step,
    TopK,
)
from mlmodelscope.manifest.fields import Field
from mlmodelscope.manifest.steps import WrittenStep

__all__ = ["InputFacts", "complete_input", "complete_output", "implied_answer"]

_FLOATS = ("float16", "float32", "float64")
_CHANNELS = {"RGB": 3, "BGR": 3, "GRAY": 1}
# these outputs of a detector belong together: the best scores alone would lose their boxes
_DETECTION = ("box", "class", "mask")
_FILTERS = ("threshold", "nms")
_ANSWERS = ("argsort", "topk", "boxes")


@dataclass(frozen=True, slots=True)
class InputFacts:
    """What the input says beside its steps. `layout` and `color` are fields of the input, with where they stand."""

    is_image: bool
    element_type: ElementType
    layout: tuple[DataLayout, Field] | None = None
    color: tuple[ColorLayout, Field] | None = None


@dataclass(slots=True)
class _State:
    """What is known about the data after the steps so far; None: nothing."""

    element_type: ElementType | None = None
    layout: DataLayout | None = None
    color: ColorLayout | None = None
    is_cast: bool = False


def complete_input(written: Sequence[WrittenStep], facts: InputFacts) -> tuple[Step, ...]:
    _check_order(written)
    steps: list[Step] = []
    state = _State()
    if facts.is_image and not (written and isinstance(written[0].step, Decode)):
        decode = Decode(
            color_layout=facts.color[0] if facts.color else "RGB",
            data_layout=facts.layout[0] if facts.layout else "HWC",
        )
        _follow(decode, state)
        steps.append(decode)
    for one in written:
        step = _filled(one, facts)
        if isinstance(step, Batch):
            continue
        if isinstance(step, Mean | Rescale | Normalize):
            _check_channels(step, one, state)
            if not state.is_cast and state.element_type != facts.element_type:
                steps.append(Cast(element_type=facts.element_type))
                _follow(steps[-1], state)
            if state.element_type not in _FLOATS:
                hint = "put cast: float32 before it, and a cast back after it if the model takes whole numbers"
                one.field.warn("integer_arithmetic", f"{step.step} in {state.element_type} cuts fractions off", hint)
        _follow(step, state)
        steps.append(step)
    if state.element_type not in (None, facts.element_type):
        steps.append(Cast(element_type=facts.element_type))
    _check_fields(state, facts)
    return (*steps, Batch())


def complete_output(written: Sequence[WrittenStep]) -> tuple[Step, ...]:
    has_boxes = False
    for index, one in enumerate(written):
        name = one.step.step
        if name in ("argsort", "topk") and index < len(written) - 1:
            one.field.error("step_order", f"{name} makes the answer, so it must be the last step")
        elif name in _FILTERS and not has_boxes:
            one.field.error("step_order", f"{name} works on boxes", "put boxes before it")
        elif name not in _FILTERS and has_boxes:
            one.field.error("step_order", f"{name} cannot follow boxes: only {' and '.join(_FILTERS)} can")
        has_boxes = has_boxes or name == "boxes"
    return tuple(one.step for one in written)


def implied_answer(output_type: str, outputs: Sequence[ModelOutput]) -> tuple[Step, ...]:
    """The steps of an output that has none and no Python function. `outputs`: all of them, with what was written."""
    types = {one.type for one in outputs}
    written = {step.step for one in outputs for step in one.steps}
    if output_type == "probability" and not types.intersection(_DETECTION) and "boxes" not in written:
        return (TopK(k=5),)
    # with masks beside them boxes would be half an answer
    is_detector = {"probability", "class"} <= types and "mask" not in types
    if output_type == "box" and is_detector and not written.intersection(_ANSWERS):
        return (DecodeBoxes(),)
    return ()


def _filled(one: WrittenStep, facts: InputFacts) -> Step:
    """A written decode takes what it does not say from the input's own fields."""
    if not isinstance(one.step, Decode):
        return one.step
    implied: dict[str, str] = {}
    if facts.color and "color_layout" not in one.given:
        implied["color_layout"] = facts.color[0]
    if facts.layout and "data_layout" not in one.given:
        implied["data_layout"] = facts.layout[0]
    return one.step.model_copy(update=implied)


def _follow(step: Step, state: _State) -> None:
    match step:
        case Decode():
            state.element_type, state.layout, state.color = step.element_type, step.data_layout, step.color_layout
        case Cast():
            state.element_type, state.is_cast = step.element_type, True
        case Color():
            state.color = step.to
        case Layout():
            state.layout = step.to
        case _:
            pass


def _check_order(written: Sequence[WrittenStep]) -> None:
    for index, one in enumerate(written):
        if isinstance(one.step, Decode) and index > 0:
            one.field.error("step_order", "decode reads the file, so it must be the first step")
        if isinstance(one.step, Batch) and index < len(written) - 1:
            one.field.error("step_order", "batch must be the last step")


def _check_channels(step: Mean | Rescale | Normalize, one: WrittenStep, state: _State) -> None:
    if state.color is None:
        return
    expected = _CHANNELS[state.color]
    names = ("mean", "rescale") if isinstance(step, Normalize) else ("value",)
    for name in names:
        value = getattr(step, name)
        if isinstance(value, tuple) and len(value) != expected:
            one.given[name].error("channels", f"{len(value)} numbers for the {expected} channel(s) of {state.color}")


def _check_fields(state: _State, facts: InputFacts) -> None:
    for name, said, found in (("layout", facts.layout, state.layout), ("colour", facts.color, state.color)):
        if said is not None and found is not None and said[0] != found:
            said[1].error("contradiction", f"the input says {said[0]}, the steps end in the {name} {found}")
