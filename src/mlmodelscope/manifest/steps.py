"""Turns the `steps:` of an input or output, in any way people write them, into typed steps with their places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlmodelscope.core.steps import INPUT_STEPS, OUTPUT_STEPS, SHORT_FORMS, STEPS, Step
from mlmodelscope.manifest.assets import ASSET_KEYS, read_asset_keys
from mlmodelscope.manifest.fields import Field, Section, build
from mlmodelscope.manifest.problem import nearest

__all__ = ["STEP_NAMES", "WORDS", "WrittenStep", "read_size", "read_steps", "read_word"]

STEP_NAMES: dict[str, str] = {
    "color_layout": "color",
    "color_mode": "color",
    "data_layout": "layout",
    "decode_boxes": "boxes",
    "non_max_suppression": "nms",
    "normalise": "normalize",
    "scale": "rescale",
    "score_threshold": "threshold",
    "top_k": "topk",
}
PARAMETER_NAMES: dict[str, dict[str, str]] = {
    "decode": {"color_mode": "color_layout", "layout": "data_layout"},
    "crop": {"dimensions": "size"},
    "resize": {"dimensions": "size"},
    "pad": {"dimensions": "size"},
    "normalize": {"std": "rescale", "scale": "rescale"},
    "topk": {"top_k": "k"},
    "nms": {"iou_threshold": "iou"},
}
WORDS: dict[str, dict[str, str]] = {
    "color_layout": {"grey": "GRAY", "grayscale": "GRAY"} | {one.lower(): one for one in ("RGB", "BGR", "GRAY")},
    "data_layout": {"hwc": "HWC", "nhwc": "HWC", "chw": "CHW", "nchw": "CHW"},
    "method": {"centre": "center", "topleft": "top_left", "top-left": "top_left"},
    "position": {"centre": "center", "topleft": "top_left", "top-left": "top_left"},
    "coordinates": {"normalised": "normalized", "relative": "normalized", "absolute": "pixels"},
    "decoder": {"pil": "pillow", "cv2": "opencv"},
    "resizer": {"pil": "pillow", "cv2": "opencv"},
}
_KINDS_OF_WORD = {("color", "to"): "color_layout", ("layout", "to"): "data_layout"}
_BARE = {"resize": "{shorter_side: 256}", "crop": "{size: [224, 224]}", "slice": "{start: 1}", "nms": "{iou: 0.5}"}


@dataclass(frozen=True, slots=True)
class WrittenStep:
    """A step and where it stands; `given` are the parameters that the author wrote."""

    step: Step
    field: Field
    given: dict[str, Field]


def read_steps(found: Field, side: str) -> list[WrittenStep]:
    """The steps in the order written. `side` is "input" or "output". A mapping's keys are its steps."""
    written = []
    for name, field in _named(found):
        step = _read_step(name, field, side)
        if step is not None:
            written.append(step)
    return written


def _named(found: Field) -> list[tuple[str, Field]]:
    if found.is_mapping:
        return list(found.entries().items())
    named = []
    for item in found.items():
        if item.is_scalar and not item.is_null:
            # `- softmax` is a step without parameters
            named.append((item.text() or "", item))
        elif item.is_mapping and len(item.entries()) == 1:
            named.append(next(iter(item.entries().items())))
        else:
            hint = "write - crop: {percentage: 87.5}, and indent the parameters under the step's name"
            item.error("step_form", f"expected one step, found {_count(item)}", hint)
    return named


def _count(item: Field) -> str:
    return f"a mapping of {len(item.entries())} keys" if item.is_mapping else item.describe()


def _read_step(written_name: str, field: Field, side: str) -> WrittenStep | None:
    name = _step_name(written_name, field.at_key(), side)
    if name is None:
        return None
    given = _given(name, field, is_bare=field.is_scalar and field.text() == written_name)
    if given is None:
        return None
    values = {key: _value(name, key, one) for key, one in given.items()}
    if "labels" in STEPS[name].model_fields and field.is_mapping:
        # unknown keys were reported with the other parameters
        values["labels"] = read_asset_keys(Section(field), "labels")
    if any(value is _BAD for value in values.values()):
        return None
    step = build(STEPS[name], values, given, field.at_key(), name)
    return None if step is None else WrittenStep(step, field.at_key(), given)  # type: ignore[arg-type]


def _step_name(written: str, field: Field, side: str) -> str | None:
    lowered = written.strip().lower()
    name = STEP_NAMES.get(lowered, lowered)
    ours = INPUT_STEPS if side == "input" else OUTPUT_STEPS
    if name in ours:
        return name
    listed = f"steps of an {side}: {', '.join(ours)}"
    if name in STEPS:
        field.error("step_side", f"{name} is not a step of an {side}", listed)
        return None
    near = nearest(lowered, [*ours, *STEP_NAMES])
    hint = f"did you mean {STEP_NAMES.get(near, near)}?" if near else listed
    field.error("unknown_step", f"there is no step named {written!r}", hint)
    return None


def _given(name: str, field: Field, *, is_bare: bool) -> dict[str, Field] | None:
    """The parameters as written, under their own names; None if they are no parameters at all."""
    if field.is_null or is_bare:
        return {}
    if field.is_mapping:
        return _parameters(name, Section(field))
    if name in SHORT_FORMS:
        return {SHORT_FORMS[name]: field}
    hint = f"write {name}: {_BARE.get(name, '{...}')}" if STEPS[name].model_fields.keys() != {"step"} else None
    takes = "parameters as a mapping" if hint else "no parameters"
    field.error("step_form", f"{name} takes {takes}, found {field.describe()}", hint)
    return None


def _parameters(name: str, section: Section) -> dict[str, Field]:
    others: dict[str, list[str]] = {}
    for other, own in PARAMETER_NAMES.get(name, {}).items():
        others.setdefault(own, []).append(other)
    given = {}
    for parameter in STEPS[name].model_fields:
        if parameter == "labels":
            keys = ASSET_KEYS["labels"]
            for key in (keys.location, keys.checksum, keys.convert):
                section.take(key)
        elif parameter != "step":
            found = section.take(parameter, *others.get(parameter, []))
            if found is not None:
                given[parameter] = found
    section.finish()
    return given


_BAD: Any = object()


def _value(step: str, parameter: str, found: Field) -> Any:
    """The plain value of a parameter, in our words; `_BAD` if it was reported here."""
    special = _SPECIAL.get((step, parameter)) or _SPECIAL.get(("", parameter))
    if special is not None:
        value = special(found)
        return _BAD if value is None else value
    kind = _KINDS_OF_WORD.get((step, parameter), parameter)
    return read_word(kind, found) if found.is_scalar else _tupled(found.value())


def read_word(kind: str, found: Field) -> Any:
    """A value that may be a word with other spellings (`NHWC`, `centre`): its own spelling, whatever the case."""
    value = found.value()
    if not isinstance(value, str):
        return value
    lowered = value.strip().lower()
    return WORDS.get(kind, {}).get(lowered, lowered)


def read_size(found: Field) -> tuple[int, int] | None:
    """[height, width]; [channels, height, width] is taken too."""
    value = found.value()
    numbers = isinstance(value, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in value)
    if not numbers or len(value) not in (2, 3) or min(value) < 1:
        hint = f"write [{value}, {value}]" if isinstance(value, int) and not isinstance(value, bool) else None
        message = f"expected [height, width] or [channels, height, width], found {found.describe()}"
        found.error("wrong_value", message, hint)
        return None
    if len(value) == 3 and value[0] not in (1, 3, 4):
        found.error("wrong_value", f"the first of three numbers is the channels (1, 3 or 4), found {value[0]}")
        return None
    return value[-2], value[-1]


def _aspect(found: Field) -> str | None:
    value = found.value()
    if isinstance(value, bool):
        return "cover" if value else "squash"
    return str(read_word("keep_aspect_ratio", found))


def _decoded_type(found: Field) -> str | None:
    value = read_word("element_type", found)
    if value == "int8":
        found.warn("int8_bytes", "decoded bytes are 0 to 255: int8 is read as uint8", "write uint8")
        return "uint8"
    return str(value)


_SPECIAL: dict[tuple[str, str], Callable[[Field], Any]] = {
    ("", "size"): read_size,
    ("", "keep_aspect_ratio"): _aspect,
    ("decode", "element_type"): _decoded_type,
}


def _tupled(value: Any) -> Any:
    return tuple(_tupled(one) for one in value) if isinstance(value, list) else value
