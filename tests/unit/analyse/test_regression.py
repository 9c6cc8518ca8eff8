"""Verdicts for pipelines: proven, ruled out, cannot tell; and what is refused."""

import pytest

from mlmodelscope.analyse.comparison import Evidence
from mlmodelscope.analyse.regression import check
from mlmodelscope.core.answer import Classes, ClassScore, Prediction
from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.factors import FactorGroup
from mlmodelscope.core.request import Batched
from mlmodelscope.testing.records import example_launch, example_record, example_software, failed_record


def answers(right: int, wrong: int = 0, *, first: int = 0) -> list[Prediction]:
    """`right` right answers and `wrong` wrong ones, for samples numbered from `first`."""
    return [
        Prediction(
            sample=str(first + i),
            label=0,
            answer=Classes(classes=(ClassScore(index=0 if i < right else 1, label=None, score=1.0),)),
        )
        for i in range(right + wrong)
    ]


def evidence(latencies: list[list[float]], predictions: list[Prediction] | None = None, **changes) -> Evidence:
    return Evidence(example_record(**changes), latencies, predictions or [])


def launches(median_ms: float, count: int = 5, spread: float = 0.001) -> list[list[float]]:
    """Launches whose medians lie close together round the given one."""
    middle = (count - 1) / 2
    return [[median_ms * 1e6 * (1 + spread * (i - middle))] * 9 for i in range(count)]


def speed(before, after, limit: float = 0.05):
    found = check(before, after, max_slowdown=limit, max_accuracy_loss=None)
    (finding,) = found.findings
    assert found.is_regression == (finding.outcome == "regression")
    return finding


def accuracy(before, after, limit: float = 0.005):
    (finding,) = check(before, after, max_slowdown=None, max_accuracy_loss=limit).findings
    return finding


class TestSpeed:
    def test_slower_beyond_the_limit_is_proven(self):
        finding = speed(evidence(launches(10)), evidence(launches(11)))
        assert finding.outcome == "regression"
        assert finding.change.value == pytest.approx(0.1, abs=1e-3)

    def test_slower_within_the_limit_is_none(self):
        assert speed(evidence(launches(10)), evidence(launches(10.3))).outcome == "no regression"

    def test_faster_is_none(self):
        assert speed(evidence(launches(10)), evidence(launches(5))).outcome == "no regression"

    def test_an_interval_on_both_sides_proves_nothing(self):
        noisy = evidence(launches(10.5, spread=0.05))
        assert speed(evidence(launches(10, spread=0.05)), noisy).outcome == "cannot tell"

    def test_one_launch_proves_nothing_however_slow(self):
        finding = speed(evidence(launches(10, count=1)), evidence(launches(100, count=1)))
        assert finding.outcome == "cannot tell"
        assert "two launches" in finding.reason

    def test_no_latencies(self):
        assert speed(evidence([]), evidence(launches(10))).outcome == "cannot tell"

    def test_time_per_sample_counts_where_batches_differ(self):
        def batched(size: int, milliseconds: float) -> Evidence:
            facts = tuple(example_launch(i, queries=10, samples=10 * size) for i in range(2))
            return evidence(launches(milliseconds), scenario=Batched(batch_size=size, launches=2), launches=facts)

        found = check(
            batched(1, 10), batched(4, 20), max_slowdown=0.05, max_accuracy_loss=None, allowed=[FactorGroup.EXECUTION]
        )
        (finding,) = found.findings
        assert finding.outcome == "no regression"
        assert finding.change.value == pytest.approx(-0.5, abs=1e-3)


class TestAccuracy:
    def test_a_loss_beyond_the_limit_is_proven(self):
        finding = accuracy(evidence([], answers(1000)), evidence([], answers(900, 100)))
        assert finding.outcome == "regression"
        assert finding.change.value == pytest.approx(0.1)
        assert finding.change.interval.low > 0.005

    def test_a_gain_is_none(self):
        assert accuracy(evidence([], answers(900, 100)), evidence([], answers(1000))).outcome == "no regression"

    def test_few_samples_prove_nothing(self):
        assert accuracy(evidence([], answers(9)), evidence([], answers(8, 1))).outcome == "cannot tell"

    def test_the_same_answers_are_none_however_few(self):
        finding = accuracy(evidence([], answers(9)), evidence([], answers(9)))
        assert (finding.outcome, finding.change.value) == ("no regression", 0)
        assert "all 9 samples" in finding.reason

    def test_no_common_samples(self):
        finding = accuracy(evidence([], answers(9)), evidence([], answers(9, first=100)))
        assert finding.outcome == "cannot tell"


class TestRefusals:
    def test_a_group_that_differs(self):
        other = evidence(launches(10), software=example_software(framework_version="1.21.0"))
        with pytest.raises(UsageError, match="not comparable: framework differ") as caught:
            check(evidence(launches(10)), other, max_slowdown=0.05, max_accuracy_loss=None)
        assert "--allow framework" in caught.value.hint
        assert caught.value.fields["groups"] == ["framework"]

    def test_an_allowed_group_may_differ(self):
        other = evidence(launches(11), software=example_software(framework_version="1.21.0"))
        found = check(
            evidence(launches(10)), other, max_slowdown=0.05, max_accuracy_loss=None, allowed=[FactorGroup.FRAMEWORK]
        )
        assert (found.groups, found.is_regression) == ((FactorGroup.FRAMEWORK,), True)

    def test_another_group_than_the_allowed_one(self):
        other = evidence(launches(11), software=example_software(framework_version="1.21.0"), seed=1)
        with pytest.raises(UsageError, match="scenario differ"):
            check(
                evidence(launches(10)),
                other,
                max_slowdown=0.05,
                max_accuracy_loss=None,
                allowed=[FactorGroup.FRAMEWORK],
            )

    def test_a_failed_evaluation_has_nothing_to_check(self):
        with pytest.raises(UsageError, match="failed"):
            check(evidence(launches(10)), Evidence(failed_record(), [], []), max_slowdown=0.05, max_accuracy_loss=None)

    def test_no_limit_at_all(self):
        with pytest.raises(UsageError, match="nothing to check"):
            check(evidence([]), evidence([]), max_slowdown=None, max_accuracy_loss=None)
