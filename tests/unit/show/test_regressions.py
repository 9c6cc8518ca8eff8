"""The lines of a check, as they stand in the log of a pipeline."""

from mlmodelscope.analyse.regression import Finding, RegressionCheck
from mlmodelscope.core.estimate import Estimate, Interval
from mlmodelscope.core.factors import FactorGroup
from mlmodelscope.show.regressions import format_check


def finding(outcome: str, subject: str = "speed", limit: float = 0.05, **changes) -> Finding:
    change = Estimate(0.1, Interval(0.08, 0.12, 0.95, "launches"), n=10, launches=5)
    return Finding(subject, outcome, **{"change": change, "limit": limit, **changes})


def shown(*findings: Finding, groups: tuple[FactorGroup, ...] = ()) -> list[str]:
    return format_check(RegressionCheck("old", "new", groups, findings)).splitlines()


def test_a_proven_regression():
    assert shown(finding("regression")) == [
        "new against the baseline old; no factor differs",
        "speed: REGRESSION; +10.0 % [+8.0, +12.0] (+ is slower, - is faster); limit 5 % slower",
        "a regression is proven",
    ]


def test_doubt_is_no_pass_in_disguise():
    lines = shown(finding("cannot tell", change=None, reason="one of the two has no latencies"))
    assert lines[1] == "speed: cannot tell; limit 5 % slower; one of the two has no latencies"
    assert lines[-1] == "no regression is proven; more launches or samples would tell more"


def test_accuracy_is_in_points_and_allowed_groups_are_named():
    lines = shown(finding("no regression", "accuracy", 0.005), groups=(FactorGroup.FRAMEWORK,))
    assert lines[0] == "new against the baseline old; framework differ, as allowed"
    assert lines[1].startswith("accuracy: ok; +10.0 points [+8.0, +12.0] (+ is lost, - is gained); limit 0.5 points")
    assert lines[-1] == "no regression"
