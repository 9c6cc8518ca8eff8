"""Spellings of steps, the steps that are implied, and how functions are found."""

import pytest

from mlmodelscope.core.manifest import ModelManifest
from mlmodelscope.core.steps import (
    Batch,
    Cast,
    Color,
    Crop,
    Decode,
    DecodeBoxes,
    Layout,
    Mean,
    Nms,
    Normalize,
    Pad,
    Rescale,
    Resize,
    Slice,
    Step,
    Threshold,
    TopK,
)
from mlmodelscope.manifest import load_manifest, parse_manifest, step_facts

HEAD = "name: a\nversion: 1.0\nframework: {name: onnxruntime}\n"


def model(inputs: str, outputs: str = "[{type: image}]", more: str = "") -> ModelManifest:
    value = load_manifest(f"{HEAD}inputs: {inputs}\noutputs: {outputs}\n{more}")
    assert isinstance(value, ModelManifest)
    return value


def input_steps(steps: str, fields: str = "") -> tuple[Step, ...]:
    return model(f"[{{type: image, element_type: uint8, {fields} steps: {steps}}}]").inputs[0].steps


def middle(steps: str) -> Step:
    """The one step between decode and batch."""
    first, step, last = input_steps(steps)
    assert (first, last) == (Decode(), Batch())
    return step


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "[resize: {dimensions: [3, 10, 20], keep_aspect_ratio: true}]",
            Resize(size=(10, 20), keep_aspect_ratio="cover"),
        ),
        ("[resize: {dimensions: [10, 20], keep_aspect_ratio: false}]", Resize(size=(10, 20))),
        (
            "[resize: {size: [10, 20], keep_aspect_ratio: Letterbox, fill: 114}]",
            Resize(size=(10, 20), keep_aspect_ratio="letterbox", fill=114),
        ),
        (
            "[resize: {max_dimension: 9, method: BICUBIC, resizer: cv2}]",
            Resize(max_dimension=9, method="bicubic", resizer="opencv"),
        ),
        ("[crop: {method: topleft, percentage: 50}]", Crop(method="top_left", percentage=50)),
        ("[crop: {method: top-left, size: [1, 2]}]", Crop(method="top_left", size=(1, 2))),
        ("[crop: {method: centre, percentage: 50}]", Crop(percentage=50)),
        ("[pad: [4, 5]]", Pad(size=(4, 5))),
        ("[layout: NCHW]", Layout(to="CHW")),
        ("[layout: hwc]", Layout(to="HWC")),
        ("[color: bgr]", Color(to="BGR")),
        ("[color_mode: grey]", Color(to="GRAY")),
        ("{Crop: {percentage: 50}}", Crop(percentage=50)),
    ],
)
def test_spellings(text: str, expected: Step):
    assert middle(text) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ("[cast: float32, mean: 1]", (Cast(element_type="float32"), Mean(value=1))),
        ("[cast: float32, scale: [1, 2, 3]]", (Cast(element_type="float32"), Rescale(value=(1, 2, 3)))),
        ("[cast: float32, normalize: {std: 2}]", (Cast(element_type="float32"), Normalize(rescale=2))),
        (
            "[cast: float32, normalise: {mean: [1, 2, 3], scale: 4}]",
            (Cast(element_type="float32"), Normalize(mean=(1, 2, 3), rescale=4)),
        ),
    ],
)
def test_arithmetic_after_a_written_cast_ends_in_the_type_of_the_input(text: str, expected: tuple[Step, ...]):
    assert input_steps(text) == (Decode(), *expected, Cast(element_type="uint8"), Batch())


def test_decode_takes_what_it_does_not_say_from_the_input():
    steps = input_steps("[decode: {decoder: opencv}]", "layout: NCHW, color_mode: bgr,")
    assert steps == (Decode(decoder="opencv", color_layout="BGR", data_layout="CHW"), Batch())


def test_decode_without_parameters_and_batch_written():
    assert input_steps("[decode, batch]") == (Decode(), Batch())
    assert input_steps("{decode: , batch: {}}") == (Decode(), Batch())


@pytest.mark.parametrize(
    "element_type, steps, expected",
    [
        ("float32", "[]", (Decode(), Cast(element_type="float32"), Batch())),
        (
            "float32",
            "[decode: {element_type: float32}, mean: 1]",
            (Decode(element_type="float32"), Mean(value=1), Batch()),
        ),
        (
            "float16",
            "[mean: 1, rescale: 2]",
            (Decode(), Cast(element_type="float16"), Mean(value=1), Rescale(value=2), Batch()),
        ),
        (
            "float32",
            "[cast: float64, mean: 1]",
            (Decode(), Cast(element_type="float64"), Mean(value=1), Cast(element_type="float32"), Batch()),
        ),
        (
            "float32",
            "[resize: {shorter_side: 8}]",
            (Decode(), Resize(shorter_side=8), Cast(element_type="float32"), Batch()),
        ),
    ],
)
def test_implied_steps_of_an_image(element_type: str, steps: str, expected: tuple[Step, ...]):
    assert model(f"[{{type: image, element_type: {element_type}, steps: {steps}}}]").inputs[0].steps == expected


def test_other_inputs_are_not_decoded():
    assert model("[{type: tensor}]").inputs[0].steps == (Batch(),)
    assert model("[{type: tensor, steps: [mean: 1]}]").inputs[0].steps == (
        Cast(element_type="float32"),
        Mean(value=1),
        Batch(),
    )


@pytest.mark.parametrize(
    "outputs, expected",
    [
        ("[{type: probability}]", [(TopK(k=5),)]),
        ("[{type: classification}]", [(TopK(k=5),)]),
        ("[{type: probability, steps: []}]", [()]),
        ("[{type: probability, steps: [slice: {start: 1}, top_k: 3]}]", [(Slice(start=1), TopK(k=3))]),
        ("[{type: probability}, {type: box}]", [(), ()]),
        ("[{type: probability}, {type: box}, {type: class}]", [(), (DecodeBoxes(),), ()]),
        ("[{type: probability}, {type: box, steps: []}, {type: class}]", [(), (), ()]),
        ("[{type: probability}, {type: box}, {type: class}, {type: mask}]", [(), (), (), ()]),
        ("[{type: probability, steps: [topk: 1]}, {type: box}, {type: class}]", [(TopK(k=1),), (), ()]),
        ("[{type: rows, steps: [boxes]}, {type: probability}]", [(DecodeBoxes(),), ()]),
        (
            "[{type: x, steps: [decode_boxes: {coordinates: Absolute, format: XYXY}, score_threshold: 1, nms]}]",
            [(DecodeBoxes(coordinates="pixels", format="xyxy"), Threshold(score=1), Nms())],
        ),
        ("[{type: embedding}]", [()]),
    ],
)
def test_implied_steps_of_outputs(outputs: str, expected: list[tuple[Step, ...]]):
    assert [one.steps for one in model("[{type: tensor}]", outputs).outputs] == expected


def test_arithmetic_in_whole_numbers_is_a_warning():
    reading = parse_manifest(
        f"{HEAD}inputs: [{{type: image, element_type: uint8, steps: [mean: 1]}}]\noutputs: [{{type: x}}]", "f"
    )
    assert [one.code for one in reading.problems] == ["integer_arithmetic"]
    assert reading.value is not None


@pytest.mark.parametrize(
    "source, name",
    [
        ("def other(a, b): ...\ndef fun(env, data): ...", "fun"),
        ("def other(a, b): ...\ndef preprocess(env, data): ...", "preprocess"),
        ("import os\ndef only(env, data): ...\ndef helper(x): ...", "only"),
        ("def fun(env, data, extra=None): ...", "fun"),
        ("def fun(*values): ...", "fun"),
        ("PATTERN = '\\d'\ndef fun(env, data): ...", "fun"),
    ],
)
def test_the_function_that_is_meant(source: str, name: str):
    block = "preprocess: |\n" + "".join(f"  {line}\n" for line in source.split("\n"))
    found = model("[{type: image}]", more=block).preprocess
    assert found is not None
    assert (found.name, found.source) == (name, source + "\n")


def test_functions_before_and_after_go_with_steps():
    value = model("[{type: image, steps: [decode]}]", more='after_preprocess: "def fun(env, data): return data"\n')
    assert value.after_preprocess is not None
    assert value.inputs[0].steps[0] == Decode()


def test_step_facts_count_steps_and_functions_in_the_order_they_run():
    plain = model("[{type: image, element_type: uint8}]", "[{type: probability}]")
    assert len(step_facts(plain)) == 3
    before = model(
        "[{type: image, element_type: uint8}]", "[{type: probability}]", 'before_preprocess: "def fun(a, b): ..."\n'
    )
    assert step_facts(before)[1:] == step_facts(plain)
    other = model("[{type: image, element_type: uint8, color_layout: BGR}]", "[{type: probability}]")
    assert [a == b for a, b in zip(step_facts(other), step_facts(plain), strict=True)] == [False, True, True]


def test_digest_does_not_depend_on_how_it_is_written():
    flat = model("[{type: image, steps: {resize: {dimensions: [3, 8, 8]}, scale: 255}}]")
    listed = model("[{type: image, steps: [decode: {}, resize: {size: [8, 8]}, cast: float32, rescale: 255.0, batch]}]")
    assert flat.digest == listed.digest


def test_text_stays_text():
    value = model(
        "[{type: image, layer_name: '0'}]",
        more="license: no\nattributes: {version: 1.10, on: on, n: 1_0, f: 1e3, z: ~}\n",
    )
    assert value.license == "no"
    assert value.inputs[0].layer_name == "0"
    assert value.attributes == {"version": "1.10", "on": "on", "n": "1_0", "f": 1000.0, "z": None}
