"""Steps as data: what they accept, what they refuse, and the way through JSON."""

import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter, ValidationError

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.steps import (
    INPUT_STEPS,
    OUTPUT_STEPS,
    SHORT_FORMS,
    STEPS,
    Cast,
    Color,
    Crop,
    Decode,
    Layout,
    Mean,
    Normalize,
    Pad,
    Rescale,
    Resize,
    Slice,
    Step,
    TopK,
)

ANY_STEP = TypeAdapter(Step)

size = st.tuples(st.integers(1, 4096), st.integers(1, 4096))
number = st.floats(-1e6, 1e6)
channels = number | st.lists(number, min_size=1, max_size=4).map(tuple)
divisors = channels.filter(lambda value: 0 not in (value if isinstance(value, tuple) else (value,)))
crops = st.builds(Crop, method=st.sampled_from(["center", "top_left"]), size=size) | st.builds(
    Crop, percentage=st.floats(1e-3, 100)
)
resizes = st.builds(
    Resize, size=size, keep_aspect_ratio=st.sampled_from(["cover", "fit", "letterbox", "squash"]), fill=number
) | st.builds(Resize, shorter_side=st.integers(1, 4096), method=st.sampled_from(["nearest", "area"]))
slices = st.integers(0, 9).flatmap(
    lambda start: st.builds(Slice, start=st.just(start), stop=st.none() | st.integers(start + 1, 99))
)
chosen = {
    "crop": crops,
    "resize": resizes,
    "pad": st.builds(Pad, size=size, value=number),
    "rescale": st.builds(Rescale, value=divisors),
    "normalize": st.builds(Normalize, mean=channels, rescale=divisors),
    "slice": slices,
    "mean": st.builds(Mean, value=channels),
    "cast": st.builds(Cast, element_type=st.sampled_from(["uint8", "float16", "bool"])),
    "color": st.builds(Color, to=st.sampled_from(["RGB", "BGR", "GRAY"])),
    "layout": st.builds(Layout, to=st.sampled_from(["HWC", "CHW"])),
    "decode": st.builds(Decode, decoder=st.sampled_from(["pillow", "opencv"])),
    "threshold": st.builds(STEPS["threshold"], score=st.floats(0.01, 0.99)),
    "topk": st.builds(TopK, k=st.integers(1, 99), labels=st.sampled_from([None, Asset(locations=("labels.txt",))])),
}
steps = st.one_of(*(chosen[name] if name in chosen else st.builds(cls) for name, cls in STEPS.items()))


@given(steps)
def test_a_step_survives_json(step):
    again = ANY_STEP.validate_json(step.model_dump_json())
    assert again == step
    assert type(again) is STEPS[step.step]


def test_every_step_is_for_inputs_or_outputs():
    assert set(INPUT_STEPS) | set(OUTPUT_STEPS) == set(STEPS)
    assert len(set(INPUT_STEPS)) == len(INPUT_STEPS)
    assert len(set(OUTPUT_STEPS)) == len(OUTPUT_STEPS)


def test_short_forms_name_a_parameter_of_their_step():
    for name, parameter in SHORT_FORMS.items():
        assert parameter in STEPS[name].model_fields


def test_a_short_form_can_stand_alone():
    for name, parameter in SHORT_FORMS.items():
        others = [field for other, field in STEPS[name].model_fields.items() if other != parameter]
        assert not any(field.is_required() for field in others), name


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"step": "crop"}, "either percentage or size"),
        ({"step": "crop", "percentage": 50, "size": [1, 1]}, "either percentage or size"),
        ({"step": "crop", "percentage": 0}, "greater than 0"),
        ({"step": "crop", "percentage": 100.1}, "less than or equal to 100"),
        ({"step": "crop", "size": [0, 1]}, "greater than 0"),
        ({"step": "crop", "size": [1]}, "required"),
        ({"step": "resize"}, "exactly one of size"),
        ({"step": "resize", "size": [1, 1], "shorter_side": 1}, "exactly one of size"),
        ({"step": "resize", "shorter_side": 1, "max_dimension": 1}, "exactly one of size"),
        ({"step": "resize", "shorter_side": 1, "keep_aspect_ratio": "fit"}, "goes with size"),
        ({"step": "resize", "size": [1, 1], "method": "cubic"}, "bicubic"),
        ({"step": "rescale", "value": 0}, "division by zero"),
        ({"step": "rescale", "value": [1, 0, 1]}, "division by zero"),
        ({"step": "normalize", "rescale": [0.0]}, "division by zero"),
        ({"step": "mean", "value": []}, "at least 1"),
        ({"step": "mean", "value": [1, 2, 3, 4, 5]}, "at most 4"),
        ({"step": "mean", "value": float("nan")}, "finite"),
        ({"step": "slice", "start": -1}, "greater than or equal to 0"),
        ({"step": "slice", "start": 3, "stop": 3}, "keeps no class"),
        ({"step": "slice", "start": 5, "stop": 2}, "keeps no class"),
        ({"step": "topk", "k": 0}, "greater than 0"),
        ({"step": "cast", "element_type": "float"}, "float32"),
        ({"step": "decode", "color": "RGB"}, "Extra"),
        ({"step": "blur"}, "blur"),
        ({}, "step"),
    ],
)
def test_what_a_step_refuses(values, problem):
    with pytest.raises(ValidationError) as caught:
        ANY_STEP.validate_python(values)
    assert problem in str(caught.value)


def test_defaults_of_a_ranking():
    assert (TopK().k, TopK().labels) == (5, None)
