"""Turns a plan, its files and what its workers said into the record that is stored, succeeded or failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlmodelscope.core.needs import model_assets
from mlmodelscope.core.record import (
    Accuracy,
    Artifact,
    AssetFacts,
    DatasetFacts,
    EffectiveExecution,
    Failure,
    LaunchFacts,
    ModelFacts,
    Performance,
    Record,
    Software,
    TraceFacts,
)
from mlmodelscope.core.request import EvaluationPlan
from mlmodelscope.core.system import SystemFacts
from mlmodelscope.manifest import step_facts
from mlmodelscope.measure.software import read_software
from mlmodelscope.measure.system import read_system
from mlmodelscope.provisioning import PlannedFiles

__all__ = ["Outcome", "dataset_facts", "launch_facts", "make_record", "model_facts"]

_EXECUTION = ("threads", "provider", "device", "library", "optimization", "precision", "inputs", "outputs")


@dataclass(frozen=True)
class Outcome:
    """All that is known at the end of a run. `results` holds one worker's answer per launch that succeeded."""

    id: str
    created_at: str
    finished_at: str
    plan: EvaluationPlan
    files: PlannedFiles
    results: tuple[Mapping[str, Any], ...]
    failure: Failure | None
    performance: Performance | None
    accuracy: Accuracy | None
    trace: TraceFacts | None
    artifacts: tuple[Artifact, ...]
    notes: tuple[str, ...]

    @property
    def first(self) -> Mapping[str, Any] | None:
        return self.results[0] if self.results else None


def launch_facts(results: Iterable[Mapping[str, Any]]) -> tuple[LaunchFacts, ...]:
    return tuple(LaunchFacts.model_validate(result["launch"]) for result in results)


def make_record(outcome: Outcome) -> Record:
    """Reads this machine where no worker lived to describe it."""
    plan, first = outcome.plan, outcome.first
    return Record(
        id=outcome.id,
        status="failed" if outcome.failure else "succeeded",
        created_at=outcome.created_at,
        finished_at=outcome.finished_at,
        request=plan.request,
        model=model_facts(plan, outcome.files.model),
        dataset=dataset_facts(plan, outcome.files.dataset, first),
        software=_software(plan, first),
        # in the sandbox the worker does not see the machine as it is
        system=SystemFacts.model_validate(first["system"]) if first and plan.is_trusted else read_system(),
        scenario=plan.scenario,
        limits=plan.request.limits,
        seed=plan.request.seed,
        execution=_execution(plan, first),
        launches=launch_facts(outcome.results),
        performance=outcome.performance,
        accuracy=outcome.accuracy,
        trace=outcome.trace,
        artifacts=outcome.artifacts,
        failure=outcome.failure,
        is_trusted=plan.is_trusted,
        warnings=(*_warnings(plan), *outcome.notes),
    )


def _software(plan: EvaluationPlan, first: Mapping[str, Any] | None) -> Software:
    if first is None:
        return _planned_software(plan)
    # where it ran is our word, not the worker's
    return Software.model_validate(first["software"]).model_copy(update={"environment": plan.environment})


def _planned_software(plan: EvaluationPlan) -> Software:
    """What would have run, for a record whose worker did not live to say it: `local` is this very interpreter."""
    ours = read_software(
        framework=plan.framework.name,
        framework_version=plan.framework.version,
        distribution=plan.framework.distribution,
        environment=plan.environment,
    )
    if plan.environment.kind == "local":
        return ours
    stack = plan.environment.stack
    packages = {package.name: package.version for package in stack.packages} if stack else {}
    elsewhere = {"packages": packages, "pipeline_packages": ours.packages}
    return ours.model_copy(update=elsewhere | {"python": stack.python if stack else "unknown"})


def model_facts(plan: EvaluationPlan, assets: Sequence[AssetFacts]) -> ModelFacts:
    model = plan.model
    weights = [item.sha256 for item in assets if item.role in ("graph", "weights")]
    return ModelFacts(
        name=model.name,
        version=model.version,
        task=model.task,
        license=model.license,
        manifest=plan.model_manifest,
        steps=step_facts(model),
        weights_digest="+".join(weights) or None,
        assets=tuple(assets),
    )


def dataset_facts(
    plan: EvaluationPlan, assets: Sequence[AssetFacts], first: Mapping[str, Any] | None = None
) -> DatasetFacts:
    """What no worker has said yet (`first`) is empty."""
    dataset = plan.dataset
    return DatasetFacts(
        name=dataset.name if dataset else "inputs",
        version=dataset.version if dataset else "",
        split=dataset.split if dataset else "",
        manifest=plan.dataset_manifest,
        sample_count=first["sample_count"] if first else 0,
        sample_ids_digest=first["sample_ids_digest"] if first else "",
        performance_set=tuple(first["performance_set"]) if first else (),
        assets=tuple(assets),
    )


def _execution(plan: EvaluationPlan, first: Mapping[str, Any] | None) -> EffectiveExecution | None:
    if first is None:
        return None
    facts = first["execution"]
    # a predictor of a third party may say less of itself than ours do
    told = {name: facts[name] for name in _EXECUTION if name in facts}
    return EffectiveExecution(batch_size=plan.scenario.batch_size, **told)


def _warnings(plan: EvaluationPlan) -> list[str]:
    assets = dict(model_assets(plan.model))
    unchecked = [role for role, asset in assets.items() if asset.checksum is None]
    boxes = any(step.step == "boxes" for output in plan.model.outputs for step in output.steps)
    unscored = boxes and plan.request.measure != "performance"
    return [
        *(f"the manifest gives no checksum for its {role}" for role in unchecked),
        *(["boxes are stored as predictions, without accuracy: detection is not scored"] if unscored else []),
    ]
