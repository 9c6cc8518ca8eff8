import hashlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.answer import Classes, RawTensors
from mlmodelscope.core.errors import ShapeError, StepError
from mlmodelscope.core.manifest import FrameworkNeed, ModelInput, ModelManifest, ModelOutput
from mlmodelscope.core.steps import Argsort, Cast, Crop, Mean, Normalize, Rescale, Slice, Softmax, TopK
from mlmodelscope.process.output import output_pipeline, softmax, top_classes


def model(*outputs):
    return ModelManifest(
        name="m",
        version="1.0.0",
        framework=FrameworkNeed(name="null"),
        inputs=(ModelInput(type="image"),),
        outputs=tuple(ModelOutput(type="probability", layer_name=name, steps=steps) for name, steps in outputs),
    )


def answers(outputs, count, *steps, labels=()):
    pipeline = output_pipeline(model(("prob", steps)), labels)
    return pipeline.answers(pipeline.finish(outputs, count))


def ranking(answer):
    assert isinstance(answer, Classes)
    return [(score.index, score.score) for score in answer.classes]


@given(
    classes=st.integers(1, 200),
    k=st.integers(1, 210),
    levels=st.integers(1, 300),
    seed=st.integers(0, 1000),
)
def test_top_classes_are_the_first_of_a_stable_sort(classes, k, levels, seed):
    scores = np.random.default_rng(seed).integers(0, levels, classes).astype(np.float32)
    picked, values = top_classes(scores, k)
    expected = np.argsort(-scores, kind="stable")[:k]
    np.testing.assert_array_equal(picked, expected)
    np.testing.assert_array_equal(values, scores[expected])


def test_softmax_is_exact_and_stable():
    logits = np.array([[1000.0, 1001.0, 999.0], [-5.0, 0.0, 5.0]], np.float32)
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    expected = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    found = softmax(logits)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected.astype(np.float32))
    assert softmax(logits.astype(np.float64)).dtype == np.float64


def test_topk_of_a_batch_leaves_the_padding_out():
    scores = np.array([[0.1, 0.7, 0.2], [0.5, 0.5, 0.0], [9, 9, 9]], np.float32)
    first, second = answers([scores], 2, TopK(k=2), labels=["cat", "dog", "cow"])
    assert ranking(first) == [(1, float(np.float32(0.7))), (2, float(np.float32(0.2)))]
    assert ranking(second) == [(0, 0.5), (1, 0.5)]
    assert [score.label for score in first.classes] == ["dog", "cow"]


def test_k_larger_than_the_classes_and_argsort_give_all():
    scores = np.array([[3, 1, 2]], np.uint8)
    for step in (TopK(k=10), Argsort()):
        (answer,) = answers([scores], 1, step)
        assert ranking(answer) == [(0, 3.0), (2, 2.0), (1, 1.0)]
        assert answer.classes[0].label is None


def test_slice_cuts_the_labels_alike():
    scores = np.array([[9, 1, 2]], np.float32)
    steps = (Slice(start=1), TopK(k=1))
    for labels in (["background", "cat", "dog"], ["cat", "dog"]):
        (answer,) = answers([scores], 1, *steps, labels=labels)
        assert ranking(answer) == [(1, 2.0)]
        assert answer.classes[0].label == "dog"
    with pytest.raises(StepError, match="4 labels do not fit 2 classes"):
        answers([scores], 1, *steps, labels=["a", "b", "c", "d"])
    for step in (Slice(start=3), Slice(stop=4)):
        with pytest.raises(StepError, match="slice"):
            answers([scores], 1, step, TopK(k=1))


def test_arithmetic_and_cast_of_outputs():
    scores = np.array([[0, 128, 255]], np.uint8)
    (answer,) = answers([scores], 1, Cast(element_type="float32"), Rescale(value=255), TopK(k=1))
    assert ranking(answer) == [(2, 1.0)]
    (answer,) = answers([scores.astype(np.float32)], 1, Mean(value=8), Normalize(mean=1, rescale=2), Argsort())
    assert ranking(answer) == [(2, 123.0), (1, 59.5), (0, -4.5)]
    (answer,) = answers([scores.astype(np.float16)], 1, Softmax(), TopK(k=1))
    assert ranking(answer) == [(2, 1.0)]


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1, 1), (1, 1, 1, 3), (3,)])
def test_dimensions_of_one_do_not_matter(shape):
    (answer,) = answers([np.array([1, 3, 2], np.float32).reshape(shape)], 1, TopK(k=1))
    assert ranking(answer) == [(1, 3.0)]


def test_outputs_that_cannot_be_ranked():
    with pytest.raises(StepError, match="not one row of classes"):
        answers([np.zeros((1, 3, 3), np.float32)], 1, TopK())
    with pytest.raises(ShapeError, match="does not hold 2 samples"):
        answers([np.zeros((1, 3), np.float32)], 2, TopK())
    with pytest.raises(ShapeError, match="names 1 outputs, the model gave 0"):
        answers([], 1, TopK())
    for bad in (np.nan, np.inf):
        for classes in (3, 300):
            scores = np.zeros((1, classes), np.float32)
            scores[0, 1] = bad
            with pytest.raises(StepError, match="cannot be ranked"):
                answers([scores], 1, TopK(k=1))


def test_masked_classes_do_no_harm_below_the_top():
    scores = np.array([[1, -np.inf]])
    (answer,) = answers([scores], 1, TopK(k=1))
    assert ranking(answer) == [(0, 1.0)]
    with pytest.raises(StepError, match="cannot be ranked"):
        answers([scores], 1, TopK(k=2))


def test_steps_in_the_wrong_place_are_refused_when_the_pipeline_is_made():
    with pytest.raises(StepError, match="crop is not a step of an output"):
        output_pipeline(model(("prob", (Crop(size=(1, 1)), TopK()))))
    with pytest.raises(StepError, match="no step can follow topk"):
        output_pipeline(model(("prob", (TopK(), Softmax()))))


def test_the_first_ranked_output_is_the_answer():
    pipeline = output_pipeline(model(("boxes", ()), ("prob", (TopK(k=1),))), {1: ["a", "b"]})
    (answer,) = pipeline.answers(pipeline.finish([np.zeros((1, 4)), np.array([[0.0, 1.0]])], 1))
    assert answer.classes[0].label == "b"


def test_outputs_without_steps_become_facts():
    boxes = np.array([[[1.0, -2.0]], [[3.0, np.nan]]], np.float32)
    empty = np.zeros((2, 0), np.int64)
    pipeline = output_pipeline(model(("boxes", ()), (None, ())))
    first, second = pipeline.answers(pipeline.finish([boxes, empty], 2))
    assert isinstance(first, RawTensors)
    facts = first.tensors[0]
    assert (facts.name, facts.shape, facts.element_type) == ("boxes", (1, 2), "float32")
    assert facts.sha256 == hashlib.sha256(boxes[0].tobytes()).hexdigest()
    assert (facts.minimum, facts.maximum, facts.mean) == (-2.0, 1.0, -0.5)
    assert (second.tensors[0].minimum, second.tensors[0].mean) == (None, None)
    assert (first.tensors[1].name, first.tensors[1].minimum) == ("1", None)


def test_texts_have_the_same_digest_in_every_process():
    pipeline = output_pipeline(model(("text", ())))
    (answer,) = pipeline.answers(pipeline.finish([np.array([["ab", "c"]], object)], 1))
    assert answer.tensors[0].sha256 == hashlib.sha256(b"ab\0c").hexdigest()
