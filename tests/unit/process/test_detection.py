"""Outputs of detectors to boxes of the original image."""

from io import BytesIO

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from mlmodelscope.core.answer import Boxes, Custom
from mlmodelscope.core.errors import InputError, ShapeError, StepError
from mlmodelscope.core.manifest import FrameworkNeed, ModelInput, ModelManifest, ModelOutput, PythonFunction
from mlmodelscope.core.steps import (
    Cast,
    Decode,
    DecodeBoxes,
    Nms,
    Rescale,
    Resize,
    Slice,
    Softmax,
    Threshold,
    TopK,
)
from mlmodelscope.process.output import output_pipeline
from mlmodelscope.process.pipeline import compile_pipeline

PHOTO = np.zeros((100, 200, 3), np.uint8)
SQUASH = (Decode(), Resize(size=(50, 50)))


def output(kind, *steps):
    return ModelOutput(type=kind, steps=steps)


def model(*outputs, steps=SQUASH, **changes):
    values = {
        "name": "m",
        "version": "1.0.0",
        "framework": FrameworkNeed(name="null"),
        "inputs": (ModelInput(type="image", element_type="uint8", steps=steps),),
        "outputs": outputs,
        **changes,
    }
    return ModelManifest(**values)


def detector(*steps, **changes):
    return model(
        output("box", *(steps or (DecodeBoxes(),))), output("class"), output("probability"), output("count"), **changes
    )


def ask(manifest, outputs, samples=(PHOTO,), labels=()):
    pipeline = output_pipeline(manifest, labels)
    arrays = [np.asarray(one) for one in outputs]
    answers = pipeline.answers(pipeline.finish(arrays, len(samples)), samples)
    assert all(isinstance(answer, Boxes) for answer in answers)
    return answers


def floats(values):
    return np.array(values, np.float32)


def spots(answer):
    return [(box.left, box.top, box.right, box.bottom) for box in answer.boxes]


def found(answer):
    return [(box.index, box.score) for box in answer.boxes]


FOUR = [
    floats([[[0.1, 0.2, 0.5, 0.6], [0.5, 0.5, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]]]),
    floats([[0, 2, 1]]),
    floats([[0.25, 0.75, 0.5]]),
    floats([2]),
]


def test_boxes_classes_scores_and_count():
    (answer,) = ask(detector(), FOUR, labels=["cat", "dog"])
    assert (answer.height, answer.width) == (100, 200)
    assert [(box.index, box.label, box.score) for box in answer.boxes] == [(2, None, 0.75), (0, "cat", 0.25)]
    np.testing.assert_allclose(spots(answer), [(100, 50, 200, 100), (40, 10, 120, 50)], rtol=1e-6)


def test_labels_of_the_class_output_come_first():
    pipeline = output_pipeline(detector(), {1: ["a"], 2: ["b"]})
    (answer,) = pipeline.answers(pipeline.finish(FOUR, 1), [PHOTO])
    assert [box.label for box in answer.boxes] == [None, "a"]


def test_a_batch_whose_padding_is_left_out():
    outputs = [np.concatenate([one, one[::-1], one]) for one in FOUR]
    outputs[3] = floats([0, 3, 9])
    small = np.zeros((10, 10, 3), np.uint8)
    first, second = ask(detector(), outputs, [PHOTO, small])
    assert first.boxes == ()
    assert (second.height, len(second.boxes)) == (10, 3)


@pytest.mark.parametrize("form, row", [("yxyx", [5, 10, 25, 30]), ("xyxy", [10, 5, 30, 25]), ("xywh", [10, 5, 20, 20])])
def test_pixels_are_those_of_the_tensor(form, row):
    (answer,) = ask(
        detector(DecodeBoxes(format=form, coordinates="pixels")), [floats([[row]]), [[0.0]], [[0.5]], [1.0]]
    )
    assert spots(answer) == [(40, 10, 120, 50)]


@pytest.mark.parametrize(
    "mode, expected",
    [
        # the photo of 100 x 200 becomes 50 x 100 of which the middle is kept, or 25 x 50 between borders of 12 and 13
        ("squash", (40, 10, 120, 50)),
        ("cover", (70, 10, 110, 50)),
        ("letterbox", (40, 0, 120, 52)),
        ("fit", (40, 10, 120, 50)),
    ],
)
def test_the_way_back_through_a_resize(mode, expected):
    steps = (Decode(), Resize(size=(50, 50), keep_aspect_ratio=mode))
    (answer,) = ask(detector(steps=steps), [floats([[[0.1, 0.2, 0.5, 0.6]]]), [[0.0]], [[0.5]], [1.0]])
    np.testing.assert_allclose(spots(answer), [expected], atol=1e-5)


def test_boxes_are_cut_at_the_border_and_those_outside_are_dropped():
    rows = [[[-0.5, -0.5, 0.5, 0.5], [0.2, 1.0, 0.4, 1.5], [0.5, 0.5, 0.4, 0.6], [0, 0, np.inf, 1]]]
    (answer,) = ask(detector(), [floats(rows), [[0.0] * 4], [[0.9, 0.8, 0.7, 0.6]], [4.0]])
    assert spots(answer) == [(0, 0, 100, 50), (0, 0, 200, 100)]


def test_threshold_keeps_what_is_equal_in_the_scores_own_type():
    outputs = [np.tile(floats([0, 0, 1, 1]), (1, 3, 1)), floats([[0, 0, 0]]), floats([[0.7, 0.69, 0.71]]), [3.0]]
    (answer,) = ask(detector(DecodeBoxes(), Threshold(score=0.7)), outputs)
    assert [round(box.score, 2) for box in answer.boxes] == [0.71, 0.7]


def test_equal_scores_keep_the_order_of_the_output():
    outputs = [np.tile(floats([0, 0, 1, 1]), (1, 4, 1)), floats([[3, 1, 2, 0]]), floats([[0.5, 0.5, 0.9, 0.5]]), [4.0]]
    (answer,) = ask(detector(), outputs)
    assert [box.index for box in answer.boxes] == [2, 3, 1, 0]


@pytest.mark.parametrize(
    "step, expected",
    [
        (Nms(), [(0, 0.875), (1, 0.75)]),
        (Nms(class_aware=False), [(0, 0.875)]),
        (Nms(iou=1), [(0, 0.875), (1, 0.75), (0, 0.5)]),
        (Nms(iou=1, max_boxes=2), [(0, 0.875), (1, 0.75)]),
    ],
)
def test_suppression(step, expected):
    rows = floats([[[0, 0, 0.5, 0.5], [0, 0, 0.5, 0.51], [0, 0, 0.5, 0.52]]])
    outputs = [rows, floats([[0, 1, 0]]), floats([[0.5, 0.75, 0.875]]), [3.0]]
    (answer,) = ask(detector(DecodeBoxes(), step), outputs)
    assert found(answer) == expected
    (late,) = ask(detector(DecodeBoxes(), step, Threshold(score=0.8)), outputs)
    assert found(late) == expected[:1]


def test_a_class_below_zero_is_an_empty_place():
    outputs = [np.tile(floats([0, 0, 1, 1]), (1, 2, 1)), floats([[-1, 5]]), floats([[0.9, 0.1]]), [2.0]]
    (answer,) = ask(detector(), outputs)
    assert [box.index for box in answer.boxes] == [5]


def test_scores_per_class_beside_the_boxes_and_a_background():
    manifest = model(
        output("box", DecodeBoxes(format="xyxy")), output("probability", Softmax(), Slice(start=1)), steps=SQUASH
    )
    logits = floats([[[9, 1, 2], [0, 5, 5]]])
    pipeline = output_pipeline(manifest, {1: ["background", "cat", "dog"]})
    rows = pipeline.finish([np.tile(floats([0, 0, 1, 1]), (1, 2, 1)), logits], 1)
    (answer,) = pipeline.answers(rows, [PHOTO])
    assert [(box.index, box.label) for box in answer.boxes] == [(0, "cat"), (1, "dog")]


def test_one_score_and_no_class_is_the_first_class():
    manifest = model(output("box", DecodeBoxes()), output("probability"))
    (answer,) = ask(manifest, [floats([[[0, 0, 1, 1]]]), floats([[[0.5]]])])
    assert found(answer) == [(0, 0.5)]


@pytest.mark.parametrize(
    "arrangement, row, expected",
    [
        ("per_class", [0.125, 0.75, 0.5], (1, 0.75)),
        ("objectness", [0.5, 0.25, 0.75, 0.75], (1, 0.375)),
        ("score_class", [0.625, 3], (3, 0.625)),
    ],
)
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("has_batch", [False, True])
def test_rows_that_hold_everything(arrangement, row, expected, transposed, has_batch):
    step = DecodeBoxes(format="cxcywh", coordinates="pixels", arrangement=arrangement, transposed=transposed)
    tensor = floats([[25, 25, 10, 20, *row]])
    tensor = tensor.T if transposed else tensor
    (answer,) = ask(model(output("rows", step)), [tensor[None] if has_batch else tensor])
    assert found(answer) == [expected]
    assert spots(answer) == [(80, 30, 120, 70)]


def test_integers_are_brought_to_numbers_by_steps():
    manifest = model(
        output("box", Cast(element_type="float32"), Rescale(value=200), DecodeBoxes()),
        output("class"),
        output("probability", Cast(element_type="float32"), Rescale(value=256)),
    )
    (answer,) = ask(manifest, [np.uint8([[[20, 40, 100, 120]]]), np.uint8([[7]]), np.uint8([[64]])])
    assert found(answer) == [(7, 0.25)]
    np.testing.assert_allclose(spots(answer), [(40, 10, 120, 50)], rtol=1e-6)


def test_no_box_at_all():
    empty = [np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0, np.float32)]
    manifest = model(output("box", DecodeBoxes(), Nms()), output("class"), output("probability"))
    assert ask(manifest, empty)[0].boxes == ()
    assert ask(manifest, [one[None] for one in empty])[0].boxes == ()
    rows = model(output("rows", DecodeBoxes(arrangement="per_class")))
    assert ask(rows, [np.zeros((1, 0, 84), np.float32)])[0].boxes == ()


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(0, 30))
def test_any_numbers_give_boxes_inside_the_image(seed, samples, boxes):
    numbers = np.random.default_rng(seed)
    outputs = [
        numbers.normal(0.5, 1, (samples, boxes, 4)).astype(np.float32),
        numbers.integers(0, 5, (samples, boxes)),
        numbers.random((samples, boxes), np.float32),
        numbers.integers(0, boxes + 2, samples),
    ]
    answers = ask(detector(DecodeBoxes(), Threshold(score=0.2), Nms(iou=0.4)), outputs, [PHOTO] * samples)
    for answer in answers:
        scores = [box.score for box in answer.boxes]
        assert scores == sorted(scores, reverse=True)
        for left, top, right, bottom in spots(answer):
            assert 0 <= left < right <= 200
            assert 0 <= top < bottom <= 100


def test_the_size_comes_from_the_header_of_the_file():
    file = BytesIO()
    Image.new("L", (200, 100)).save(file, "PNG")
    (answer,) = ask(detector(), FOUR, [file.getvalue()])
    assert (answer.height, answer.width) == (100, 200)


def test_what_is_no_image_has_no_size():
    pipeline = output_pipeline(detector())
    rows = pipeline.finish(FOUR, 1)
    with pytest.raises(InputError):
        pipeline.answers(rows, [b"no image"])
    with pytest.raises(InputError, match="height and a width"):
        pipeline.answers(rows, [np.zeros(3)])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_not_a_number_is_refused(place):
    outputs = [one.copy() for one in FOUR]
    outputs[place].flat[0] = np.nan
    with pytest.raises(StepError, match="not a number"):
        output_pipeline(detector()).finish(outputs, 1)


@pytest.mark.parametrize(
    "manifest, outputs, error, match",
    [
        (detector(), [FOUR[0][:, :, :3], *FOUR[1:]], StepError, "rows of 3 numbers"),
        (detector(), [FOUR[0][0, 0], *FOUR[1:]], ShapeError, "does not hold boxes"),
        (detector(), [FOUR[0], FOUR[1][:, :2], *FOUR[2:]], ShapeError, r"classes of shape \[1, 2\] do not fit"),
        (detector(), [*FOUR[:2], FOUR[2][:, :1], FOUR[3]], ShapeError, r"scores of shape \[1, 1\] do not fit"),
        (detector(), [*FOUR[:2], np.ones((1, 3, 2)), FOUR[3]], StepError, "one of them must go"),
        (detector(), [*FOUR[:3], floats([np.nan])], ShapeError, "does not say how many"),
        (detector(), FOUR[:3], ShapeError, "names 4 outputs"),
        (model(output("rows", DecodeBoxes(arrangement="score_class"))), [FOUR[0]], StepError, "score_class"),
    ],
)
def test_tensors_that_do_not_fit(manifest, outputs, error, match):
    with pytest.raises(error, match=match):
        output_pipeline(manifest).finish(outputs, 1)


@pytest.mark.parametrize(
    "manifest, match",
    [
        (model(output("box", DecodeBoxes())), "no output of type probability"),
        (model(output("box", DecodeBoxes()), output("probability", TopK())), "topk makes an answer of its own"),
        (model(output("box", DecodeBoxes(), Softmax()), output("probability")), "softmax cannot follow boxes"),
        (
            detector(
                DecodeBoxes(coordinates="pixels"),
                steps=(),
                preprocess=PythonFunction(name="fun", source="def fun(env, data): return data"),
            ),
            "a preprocess function hides",
        ),
    ],
)
def test_manifests_that_can_work_on_no_sample(manifest, match):
    with pytest.raises(StepError, match=match):
        compile_pipeline(manifest)


def test_functions_around_the_steps():
    def function(body):
        return PythonFunction(name="fun", source=f"def fun(env, data):\n    {body}\n")

    halved = detector(before_postprocess=function("return [data[0] / 2, *data[1:]]"))
    pipeline = compile_pipeline(halved, ["cat"])
    (answer,) = pipeline.answers(pipeline.finish(FOUR, 1), [PHOTO])
    np.testing.assert_allclose(spots(answer), [(50, 25, 100, 50), (20, 5, 60, 25)], rtol=1e-6)
    counted = detector(after_postprocess=function("return [[one['label'], one['left']] for one in data]"))
    pipeline = compile_pipeline(counted, ["cat"])
    (answer,) = pipeline.answers(pipeline.finish(FOUR, 1), [PHOTO])
    assert answer == Custom(value=[[None, 0.5], ["cat", pytest.approx(0.2)]])
