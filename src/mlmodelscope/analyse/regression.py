"""Turns a baseline and a candidate into a verdict for a pipeline: a proven regression, none, or cannot tell; pure.

A regression is proven where the whole interval lies beyond the limit, ruled out where all of it lies within; an
interval that straddles the limit proves nothing. Speed is the time per sample, by the ratio of launch medians; accuracy
is top-1 on the samples that both ran, sample by sample.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from mlmodelscope.analyse.comparison import Comparison, Evidence, compare
from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.estimate import Estimate
from mlmodelscope.core.factors import Difference, FactorGroup

__all__ = ["Finding", "RegressionCheck", "Subject", "check"]

Subject = Literal["speed", "accuracy"]
Outcome = Literal["regression", "no regression", "cannot tell"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`change` and `limit` in the same unit: the share by which a sample takes longer, or of samples no longer right.

    Positive is worse for both. `reason` says why nothing can be told, or why no interval is needed.
    """

    subject: Subject
    outcome: Outcome
    change: Estimate | None
    limit: float
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RegressionCheck:
    """`candidate` against `baseline`; `groups` of factors that differ, all of them allowed by whoever asked."""

    baseline: str
    candidate: str
    groups: tuple[FactorGroup, ...]
    findings: tuple[Finding, ...]

    @property
    def is_regression(self) -> bool:
        return any(finding.outcome == "regression" for finding in self.findings)


def check(
    baseline: Evidence,
    candidate: Evidence,
    *,
    max_slowdown: float | None,
    max_accuracy_loss: float | None,
    allowed: Collection[FactorGroup] = (),
) -> RegressionCheck:
    """Limits are shares (0.05: 5 % slower; 0.005: half a point of top-1); None: that subject is not asked about.

    Raises UsageError if one of the two failed, or if they differ in a group that is not `allowed`.
    """
    if max_slowdown is None and max_accuracy_loss is None:
        raise UsageError("there is nothing to check", hint="give a limit for the slowdown or for the loss of accuracy")
    if min(max_slowdown or 0, max_accuracy_loss or 0) < 0:
        raise UsageError("a limit is 0 or more")
    for evidence in (baseline, candidate):
        if evidence.record.status == "failed":
            raise UsageError(
                f"the evaluation {evidence.record.id} failed: it has no result to check",
                hint=f"mlmodelscope show {evidence.record.id}",
                record=evidence.record.id,
            )
    comparison = compare(baseline, candidate)
    _refuse_unfair(comparison, allowed)
    findings = []
    if max_slowdown is not None:
        findings.append(_speed(comparison, baseline, candidate, max_slowdown))
    if max_accuracy_loss is not None:
        findings.append(_accuracy(comparison, max_accuracy_loss))
    return RegressionCheck(baseline.record.id, candidate.record.id, comparison.groups, tuple(findings))


def _refuse_unfair(comparison: Comparison, allowed: Collection[FactorGroup]) -> None:
    unwanted = [group for group in comparison.groups if group not in allowed]
    if not unwanted:
        return
    shown = "; ".join(_shown(item) for group in unwanted for item in comparison.differences if item.group is group)
    raise UsageError(
        f"{comparison.right} and its baseline {comparison.left} are not comparable: {', '.join(unwanted)} differ "
        f"({shown if len(shown) <= 400 else shown[:397] + '...'})",
        hint=f"if that is what you study, add {' '.join(f'--allow {group}' for group in unwanted)}",
        groups=[str(group) for group in unwanted],
        differences=[
            {"group": str(item.group), "fact": item.fact, "baseline": item.left, "candidate": item.right}
            for item in comparison.differences
        ],
    )


def _shown(item: Difference) -> str:
    def short(value: object) -> str:
        text = "unknown" if value is None else str(value)
        return text if len(text) <= 40 else text[:37] + "..."

    return f"{item.group} {item.fact}: {short(item.left)} -> {short(item.right)}"


def _speed(comparison: Comparison, baseline: Evidence, candidate: Evidence, limit: float) -> Finding:
    ratio = comparison.latency_ratio
    if ratio is None:
        return Finding("speed", "cannot tell", None, limit, comparison.latency_note)
    sizes = [_samples_per_query(evidence) for evidence in (baseline, candidate)]
    # time per sample: queries of another size are no slowdown
    change = _moved(ratio, factor=sizes[0] / sizes[1], offset=-1)
    interval = change.interval
    if interval is None or interval.basis != "launches":
        return Finding("speed", "cannot tell", change, limit, "a verdict on speed needs two launches or more of each")
    return Finding("speed", _outcome(interval.low, interval.high, limit), change, limit)


def _samples_per_query(evidence: Evidence) -> float:
    launches = evidence.record.launches
    return sum(launch.samples for launch in launches) / max(1, sum(launch.queries for launch in launches))


def _accuracy(comparison: Comparison, limit: float) -> Finding:
    if comparison.top1 is None:
        return Finding("accuracy", "cannot tell", None, limit, "the two have no labelled samples in common")
    change = _moved(comparison.top1.difference, factor=-1)
    if comparison.flipped == 0:
        count = comparison.common_samples
        return Finding("accuracy", "no regression", change, limit, f"the same first answers on all {count} samples")
    interval = change.interval
    assert interval is not None
    return Finding("accuracy", _outcome(interval.low, interval.high, limit), change, limit)


def _outcome(low: float, high: float, limit: float) -> Outcome:
    if low > limit:
        return "regression"
    return "no regression" if high <= limit else "cannot tell"


def _moved(estimate: Estimate, *, factor: float, offset: float = 0.0) -> Estimate:
    """factor * estimate + offset, interval and all."""
    from dataclasses import replace

    # -0.0 would be shown as a change
    def move(value: float) -> float:
        return factor * value + offset + 0.0

    interval = estimate.interval
    if interval is not None:
        low, high = sorted((move(interval.low), move(interval.high)))
        interval = replace(interval, low=low, high=high)
    return replace(estimate, value=move(estimate.value), interval=interval)
