"""Turns plans and suites into records: from history where the user allows it, by evaluation where not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mlmodelscope.core.errors import MLModelScopeError, UnknownNameError
from mlmodelscope.core.record import Record
from mlmodelscope.core.request import Batched, EvaluationPlan, EvaluationRequest, Offline
from mlmodelscope.core.store import Store
from mlmodelscope.evaluation import Context, evaluate_plans
from mlmodelscope.forecast import expected_record, find_answer, plan_key
from mlmodelscope.suite.progress import SuiteProgress, SuiteRow
from mlmodelscope.suite.read import Suite

__all__ = ["Outcome", "carry_out", "run_suite", "sweep_requests"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The record that answers a plan. `is_reused`: an earlier one, identical in all that is known before a run."""

    record: Record
    is_reused: bool


def carry_out(plans: Sequence[EvaluationPlan], context: Context) -> list[Outcome]:
    """One outcome per plan, in order. A plan whose request says `reuse` is answered from history if it can be."""
    answers = [_answer(plan, context) if plan.request.reuse else None for plan in plans]
    waiting = [plan for plan, answer in zip(plans, answers, strict=True) if answer is None]
    evaluated = iter(evaluate_plans(waiting, context) if waiting else [])
    return [Outcome(answer or next(evaluated), is_reused=answer is not None) for answer in answers]


def sweep_requests(request: EvaluationRequest, batch_sizes: Sequence[int]) -> list[EvaluationRequest]:
    """The request once per batch size: offline stays offline, every other load becomes batched."""
    scenario = request.scenario
    if isinstance(scenario, Offline):
        variants: list[Batched | Offline] = [scenario.model_copy(update={"batch_size": size}) for size in batch_sizes]
    else:
        load = scenario.model_dump(exclude={"type", "batch_size"})
        variants = [Batched(**load, batch_size=size) for size in batch_sizes]
    return [request.model_copy(update={"scenario": variant}) for variant in variants]


def run_suite(
    suite: Suite,
    context: Context,
    make_plans: Callable[[EvaluationRequest], list[EvaluationPlan]],
    *,
    is_fresh: bool = False,
) -> list[SuiteRow]:
    """A row per evaluation, in the order of the suite; what an earlier run finished is not repeated unless `is_fresh`.

    Finished means succeeded: what failed, or was interrupted, is tried again. What is known of a group is kept before
    the next one starts.
    """
    progress = SuiteProgress(context.home, suite.path)
    rows: list[SuiteRow] = []
    for group in suite.groups:
        planned = [_plan(request, make_plans) for request in group]
        keys = [plan_key(plan, context.assets) if isinstance(plan, EvaluationPlan) else "" for plan in planned]
        earlier = [None if is_fresh else _finished(progress.record_of(key), context.store()) for key in keys]
        waiting = [
            plan
            for plan, record in zip(planned, earlier, strict=True)
            if record is None and isinstance(plan, EvaluationPlan)
        ]
        done = iter(evaluate_plans(waiting, context) if waiting else [])
        made = [
            _row(request, plan, record, done) for request, plan, record in zip(group, planned, earlier, strict=True)
        ]
        progress.add({key: row.record.id for key, row in zip(keys, made, strict=True) if row.record is not None})
        rows += made
    return rows


def _answer(plan: EvaluationPlan, context: Context) -> Record | None:
    expected = expected_record(plan, context.assets, context.home)
    return find_answer(context.store(), expected) if expected is not None else None


def _plan(
    request: EvaluationRequest, make_plans: Callable[[EvaluationRequest], list[EvaluationPlan]]
) -> EvaluationPlan | MLModelScopeError:
    try:
        (plan,) = make_plans(request)
    except MLModelScopeError as error:
        return error
    return plan


def _finished(record_id: str | None, store: Store) -> Record | None:
    if record_id is None:
        return None
    try:
        record = store.get(record_id)
    except UnknownNameError:
        return None
    return record if record.status == "succeeded" else None


def _row(
    request: EvaluationRequest,
    plan: EvaluationPlan | MLModelScopeError,
    earlier: Record | None,
    evaluated: Iterator[Record],
) -> SuiteRow:
    if isinstance(plan, MLModelScopeError):
        return SuiteRow.refused(request, plan)
    if earlier is not None:
        return SuiteRow(request, earlier, is_earlier=True)
    return SuiteRow(request, next(evaluated))
