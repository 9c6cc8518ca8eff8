"""Verdicts on a repetition."""

import pytest

from mlmodelscope.analyse.comparison import Evidence
from mlmodelscope.analyse.reproduction import judge
from mlmodelscope.core.answer import Classes, ClassScore, Custom, Prediction
from mlmodelscope.core.request import SingleStream
from mlmodelscope.testing.records import example_record, example_system

STEADY = [[100.0, 100.0], [101.0, 101.0], [99.0, 99.0]]


def answers(text, label=0):
    """One prediction per digit, which is the only class of the answer."""
    return [
        Prediction(
            sample=str(position),
            label=label,
            answer=Classes(classes=(ClassScore(index=int(digit), label=None, score=1.0),)),
        )
        for position, digit in enumerate(text)
    ]


def evidence(latencies=STEADY, predictions=(), **changes):
    return Evidence(example_record(**changes), latencies, predictions)


def scaled(factor):
    return [[value * factor for value in launch] for launch in STEADY]


@pytest.mark.parametrize(
    ("repeated", "verdict"),
    [
        (scaled(1.0), "agrees"),
        (scaled(1.01), "agrees"),
        (scaled(2.0), "differs"),
        (scaled(0.5), "differs"),
        (scaled(1.05), "cannot tell"),
        ([[50.0], [200.0], [100.0]], "cannot tell"),
        ([[100.0] * 50], "cannot tell"),
        ([], "cannot tell"),
    ],
)
def test_speed(repeated, verdict):
    assert judge(evidence(), evidence(repeated)).speed == verdict


def test_single_launches_never_give_a_verdict_on_speed():
    assert judge(evidence([[100.0] * 50]), evidence([[100.0] * 50])).speed == "cannot tell"


def test_another_timed_region_gives_no_verdict_on_speed():
    other = evidence(scenario=SingleStream(launches=2, timed="inference"))
    assert judge(evidence(), other).speed == "cannot tell"


@pytest.mark.parametrize(
    ("original", "repeated", "verdict"),
    [
        ("0102", "0102", "same answers"),
        ("", "", "cannot tell"),
        # one sample of one: no test can say anything
        ("0", "1", "cannot tell"),
        # six to none: 2 / 2**6 = 3 %
        ("0" * 6, "1" * 6, "differs"),
        # five to none: 6 %
        ("0" * 5, "1" * 5, "cannot tell"),
        # many samples, few flips in either direction
        ("01" + "0" * 998, "10" + "0" * 998, "agrees"),
        # wrong in another way: accuracy is the same, the answers are not
        ("0" * 990 + "1" * 10, "0" * 990 + "2" * 10, "agrees"),
    ],
)
def test_accuracy(original, repeated, verdict):
    left, right = evidence(predictions=answers(original)), evidence(predictions=answers(repeated))
    assert judge(left, right).accuracy == verdict


def test_flips_without_labels_differ():
    left, right = (evidence(predictions=answers(text, label=None)) for text in ("00", "01"))
    assert judge(left, right).accuracy == "differs"


def test_answers_of_any_kind_can_be_the_same():
    def custom(value):
        return evidence(predictions=[Prediction(sample="0", label=None, answer=Custom(value=value))])

    assert judge(custom([1]), custom([1])).accuracy == "same answers"
    assert judge(custom([1]), custom([2])).accuracy == "differs"


def test_what_changed_is_kept():
    found = judge(evidence(), evidence(system=example_system(kernel="6.2.0")))
    assert [(item.group, item.fact) for item in found.comparison.differences] == [("system", "kernel")]
