"""Turns the legacy form of inputs and outputs (`parameters:` with a fixed order) into the papers' form.

The order was fixed: decode, crop, resize, normalise, layout. Values stand plainly or as `{type: ..., value: ...}`.
"""

from __future__ import annotations

from typing import Any

from mlmodelscope.core.manifest import ModelOutput
from mlmodelscope.core.steps import Crop, Layout, Normalize, Resize, Softmax
from mlmodelscope.manifest.assets import read_asset_keys
from mlmodelscope.manifest.fields import Field, Section, build, read_element_type
from mlmodelscope.manifest.steps import WrittenStep, read_size, read_word

__all__ = ["LegacyParameters", "read_legacy_outputs", "read_legacy_steps"]

_STEP_PARAMETERS = ("crop_method", "crop_ratio", "dimensions", "max_dimension", "keep_aspect_ratio", "mean", "scale")
_ROLES = {"boxes_layer": "box", "probabilities_layer": "probability", "classes_layer": "class", "masks_layer": "mask"}


class LegacyParameters(Section):
    """A `parameters:` mapping whose values may be wrapped in `{type, value}`."""

    def take(self, *names: str) -> Field | None:
        found = super().take(*names)
        if found is not None and found.is_mapping and "value" in found.entries():
            inner = found.entries()["value"]
            return None if inner.is_null else inner
        return found

    def ignore_steps(self, reason: str) -> None:
        for name in _STEP_PARAMETERS:
            found = self.take(name)
            if found is not None:
                found.at_key().warn("ignored", f"{name} has no effect: {reason}")


def read_legacy_steps(parameters: LegacyParameters, data_layout: str) -> list[WrittenStep]:
    """Crop, resize, normalise, layout: what the parameters ask for, in the legacy order."""
    found = [_crop(parameters), _resize(parameters), _normalize(parameters)]
    if data_layout == "CHW":
        found.append(_written(Layout, {"to": "CHW"}, {}, parameters.owner))
    return [one for one in found if one is not None]


def _crop(parameters: LegacyParameters) -> WrittenStep | None:
    method, ratio = parameters.take("crop_method"), parameters.take("crop_ratio")
    if ratio is None:
        if method is not None:
            method.at_key().warn("ignored", "crop_method has no effect without crop_ratio")
        return None
    number = ratio.number()
    if number is None:
        return None
    # 0.57 * 100 is not 57 in binary; ten digits are more than anybody writes
    values: dict[str, Any] = {"percentage": round(number * 100, 10)}
    if method is not None:
        values["method"] = read_word("method", method)
    given = {"percentage": ratio} | ({"method": method} if method is not None else {})
    return _written(Crop, values, given, ratio)


def _resize(parameters: LegacyParameters) -> WrittenStep | None:
    dimensions, longest = parameters.take("dimensions"), parameters.take("max_dimension")
    keeps = parameters.read("keep_aspect_ratio", Field.boolean, False)
    if dimensions is None:
        if longest is None:
            return None
        return _written(Resize, {"max_dimension": longest.value()}, {"max_dimension": longest}, longest)
    if longest is not None:
        longest.at_key().warn("ignored", "max_dimension has no effect beside dimensions")
    one = dimensions.value() if dimensions.is_scalar else None
    if isinstance(one, int) and not isinstance(one, bool):
        size: tuple[int, int] | None = (one, one)
    else:
        size = read_size(dimensions)
    if size is None:
        return None
    values = {"size": size, "keep_aspect_ratio": "cover" if keeps else "squash"}
    return _written(Resize, values, {"size": dimensions}, dimensions)


def _normalize(parameters: LegacyParameters) -> WrittenStep | None:
    given = {"mean": parameters.take("mean"), "rescale": parameters.take("scale")}
    fields = {name: found for name, found in given.items() if found is not None}
    if not fields:
        return None
    values = {name: _channels(found.value()) for name, found in fields.items()}
    return _written(Normalize, values, fields, next(iter(fields.values())))


def _channels(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return value[0] if len(value) == 1 else tuple(value)


def _written(cls: Any, values: dict[str, Any], given: dict[str, Field], owner: Field) -> WrittenStep | None:
    step = build(cls, values, given, owner.at_key(), cls.__name__.lower())
    return None if step is None else WrittenStep(step, owner.at_key(), given)


def read_legacy_outputs(
    parameters: LegacyParameters, output_type: str, description: str, *, has_function: bool
) -> list[ModelOutput]:
    """One output per layer that is named; one layer alone keeps the type that was written."""
    element_type = parameters.read("element_type", read_element_type, "float32")
    layers: list[tuple[str, str | int | None]] = []
    for key, role in _ROLES.items():
        found = parameters.take(key)
        if found is not None:
            layers.append((role, found.name_or_index()))
    if len(layers) <= 1:
        layers = [(output_type, layers[0][1] if layers else None)]
    features = read_asset_keys(parameters, "features")
    transform = parameters.read("probabilities_transform", _read_transform, "")
    # the shape of an output is the model's own affair
    parameters.take("dimensions")
    parameters.finish()
    types = [role for role, _ in layers]
    labelled = next(one for one in ("class", "probability", *types) if one in types)
    return [
        ModelOutput(
            type=role,
            description=description,
            layer_name=layer,
            element_type=element_type,
            features=features if role == labelled else None,
            steps=(Softmax(),) if transform and role == "probability" and not has_function else (),
        )
        for role, layer in layers
    ]


def _read_transform(found: Field) -> str | None:
    text = (found.text() or "").strip().lower()
    if text == "softmax":
        return text
    if found.is_scalar and text != "none":
        found.error("wrong_value", f"expected softmax, found {found.describe()}")
    return None
