"""Accuracy over exactly the samples that were run, by hand."""

import pytest

from mlmodelscope.analyse.accuracy import is_right, score
from mlmodelscope.analyse.statistics import proportion
from mlmodelscope.core.answer import Classes, ClassScore, Custom, Prediction, RawTensors


def prediction(label, *ranked):
    scores = tuple(ClassScore(index=index, label=None, score=-float(place)) for place, index in enumerate(ranked))
    return Prediction(sample="s", label=label, answer=Classes(classes=scores))


@pytest.mark.parametrize(
    ("label", "ranked", "k", "expected"),
    [
        (7, (7, 1, 2, 3, 4), 1, True),
        (7, (1, 7, 2, 3, 4), 1, False),
        (7, (1, 2, 3, 4, 7), 5, True),
        (7, (1, 2, 3, 4, 5, 7), 5, False),
        (0, (0,), 5, True),
        (1000, tuple(range(10)), 5, False),
        (-1, tuple(range(10)), 5, False),
        (7, (), 1, False),
        (None, (7,), 1, None),
    ],
)
def test_right_is_the_true_class_among_the_first_k(label, ranked, k, expected):
    assert is_right(prediction(label, *ranked), k) is expected


@pytest.mark.parametrize("answer", [Custom(value=7), RawTensors(tensors=())])
def test_an_answer_without_classes_is_neither_right_nor_wrong(answer):
    assert is_right(Prediction(sample="s", label=7, answer=answer), 1) is None


def test_top1_and_top5_with_intervals_over_samples():
    predictions = [
        prediction(1, 1, 2, 3, 4, 5),
        prediction(2, 1, 2, 3, 4, 5),
        prediction(6, 1, 2, 3, 4, 5),
        prediction(5, 1, 2, 3, 4, 5),
    ]
    found = score(predictions)
    assert (found.samples, found.labelled) == (4, 4)
    assert found.top1 == proportion(1, 4)
    assert found.top5 == proportion(3, 4)
    assert (found.top1.value, found.top1.interval.basis) == (0.25, "samples")


def test_a_label_that_no_class_has_counts_as_wrong():
    found = score([prediction(1, 1, 2, 3, 4, 5), prediction(99, 1, 2, 3, 4, 5)])
    assert (found.top1.value, found.top5.value) == (0.5, 0.5)


def test_samples_without_a_label_are_counted_but_not_scored():
    found = score([prediction(1, 1, 2, 3, 4, 5), prediction(None, 1, 2, 3, 4, 5)])
    assert (found.samples, found.labelled, found.top1.n, found.top1.value) == (2, 1, 1, 1.0)


def test_labels_are_counted_even_if_the_answers_hold_no_classes():
    found = score([Prediction(sample="s", label=1, answer=Custom(value="cat"))])
    assert (found.samples, found.labelled, found.top1, found.top5) == (1, 1, None, None)


@pytest.mark.parametrize("ranked", [(1,), (1, 2, 3), (1, 2, 3, 4)])
def test_there_is_no_top5_among_fewer_than_five_classes(ranked):
    found = score([prediction(1, 1, 2, 3, 4, 5), prediction(1, *ranked)])
    assert (found.top1.value, found.top5) == (1.0, None)


def test_there_is_a_top5_among_ten_classes():
    assert score([prediction(4, *range(10)), prediction(5, *range(10))]).top5.value == 0.5


def test_nothing_run_gives_no_number():
    found = score([])
    assert (found.samples, found.labelled, found.top1, found.top5) == (0, 0, None, None)
