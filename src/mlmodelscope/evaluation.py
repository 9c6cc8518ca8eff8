"""Joins the stages for plans: provision, launch, summarise, store; one stored record per plan, whatever happens.

Launches of several plans are interleaved (first launch of each, then the second of each, ...), because machines drift:
results that were measured side by side may be compared, results measured one after the other may lie.
"""

from __future__ import annotations

import gzip
import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mlmodelscope.analyse.accuracy import score
from mlmodelscope.analyse.comparison import Evidence
from mlmodelscope.analyse.summary import latencies, summarise
from mlmodelscope.core.answer import Prediction
from mlmodelscope.core.asset import Asset, FetchedAsset
from mlmodelscope.core.errors import HostError, Interrupted, MLModelScopeError, from_fields
from mlmodelscope.core.events import EvaluationEvent
from mlmodelscope.core.ids import new_id
from mlmodelscope.core.manifest import DatasetManifest, ModelManifest
from mlmodelscope.core.plugins import predictors
from mlmodelscope.core.record import (
    Accuracy,
    Artifact,
    AssetFacts,
    AssetRole,
    DatasetFacts,
    EffectiveExecution,
    Failure,
    LaunchFacts,
    ModelFacts,
    Performance,
    Record,
    Software,
    Stage,
)
from mlmodelscope.core.request import EvaluationPlan
from mlmodelscope.core.settings import worker_environment
from mlmodelscope.core.store import Store
from mlmodelscope.core.system import SystemFacts
from mlmodelscope.core.value import Frozen
from mlmodelscope.manifest import step_facts
from mlmodelscope.measure.software import read_software
from mlmodelscope.measure.system import read_system
from mlmodelscope.provision import Assets, Progress
from mlmodelscope.worker.folder import RunFolder
from mlmodelscope.worker.job import Job, asset_key
from mlmodelscope.worker.launch import LaunchFailed, WorkerEvent, launch

__all__ = ["Context", "evaluate_plans", "predict_inputs", "read_evidence"]

LATENCIES = "latencies.npz"
PREDICTIONS = "predictions.jsonl.gz"


@dataclass(frozen=True)
class Context:
    """Where things are and who listens. `progress` draws downloads, `on_event` everything else.

    `store` opens the store when it is first needed: a prediction needs none.
    """

    home: Path
    store: Callable[[], Store]
    assets: Assets
    on_event: Callable[[EvaluationEvent], None] = lambda event: None
    progress: Progress | None = None


def evaluate_plans(plans: Sequence[EvaluationPlan], context: Context) -> list[Record]:
    """One stored record per plan, in the order of the plans. Raises Interrupted after storing what was cut off."""
    runs = [_Run(plan, context) for plan in plans]
    try:
        for run in runs:
            run.provision()
        for index in range(max(run.launches for run in runs)):
            for run in runs:
                run.launch(index)
        return [run.finish() for run in runs]
    except (KeyboardInterrupt, Interrupted):
        for run in runs:
            run.interrupt()
        raise Interrupted from None
    finally:
        for run in runs:
            run.clean()


def predict_inputs(plan: EvaluationPlan, context: Context) -> list[Prediction]:
    """The answers for the plan's inputs, through the same path; nothing is stored, and a failure is raised."""
    run = _Run(plan, context)
    try:
        run.provision()
        run.launch(0)
        return run.answers()
    finally:
        run.clean()


@dataclass
class _Files:
    """The local path of every asset of a plan, and the facts about them that the record keeps."""

    paths: dict[str, str] = field(default_factory=dict)
    model: list[AssetFacts] = field(default_factory=list)
    dataset: list[AssetFacts] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)


class _Run:
    """One plan on its way to a record. After a failure every further call does nothing."""

    def __init__(self, plan: EvaluationPlan, context: Context) -> None:
        self._plan, self._context = plan, context
        self._id, self._created_at = new_id(), _now()
        self._run_folder = RunFolder(context.home / "runs" / self._id)
        self._folder = self._run_folder.path
        self._files = _Files()
        self._results: list[dict[str, Any]] = []
        self._failure: Failure | None = None
        self._record: Record | None = None
        self._stage: Stage = "provision"

    @property
    def launches(self) -> int:
        """One launch is enough when nothing is timed."""
        return 1 if self._plan.request.measure == "accuracy" else self._plan.scenario.launches

    def provision(self) -> None:
        with self._failing():
            self._run_folder.make()
            model, dataset, request = self._plan.model, self._plan.dataset, self._plan.request
            for role, asset in _model_assets(model):
                self._files.model.append(self._fetch(role, asset, self._plan.model_manifest.base))
            if dataset is not None and self._plan.dataset_manifest is not None:
                for role, asset in _dataset_assets(dataset):
                    self._files.dataset.append(self._fetch(role, asset, self._plan.dataset_manifest.base))
            for text in request.inputs:
                # a stored request has lost the name of the home folder
                asset = Asset(locations=(str(Path(text).expanduser()) if text.startswith("~/") else text,))
                self._files.dataset.append(self._fetch("data", asset, str(Path.cwd())))
                self._files.inputs.append(self._files.paths[asset_key(asset)])

    def _fetch(self, role: AssetRole, asset: Asset, base: str) -> AssetFacts:
        self._say("provision")
        folder = Path(base).expanduser()
        fetched: FetchedAsset = self._context.assets.fetch(asset, base=folder, progress=self._context.progress)
        self._files.paths[asset_key(asset)] = str(fetched.path)
        return AssetFacts.of(role, fetched)

    def launch(self, index: int) -> None:
        if self._failure is not None or index >= self.launches:
            return
        plan = self._plan
        with self._failing(index):
            self._stage = "start"
            predictor = predictors().get(plan.framework.name)
            environment = worker_environment(self._context.home, plan.threads, predictor.environment)
            on_event = self._forward(index)
            self._results.append(launch(self._job(index), plan.request.limits, environment, on_event))

    def _job(self, index: int) -> Job:
        plan = self._plan
        return Job(
            index=index,
            model=plan.model,
            dataset=plan.dataset,
            inputs=tuple(self._files.inputs),
            samples=plan.request.samples,
            files=self._files.paths,
            framework=plan.framework,
            environment=plan.environment,
            options=plan.request.options,
            scenario=plan.scenario,
            measure=plan.request.measure,
            is_first=index == 0,
            threads=plan.threads,
            seed=plan.request.seed,
            run_folder=str(self._folder),
            cache_folder=str(self._context.home / "cache"),
            spawned_ns=time.monotonic_ns(),
        )

    def finish(self) -> Record:
        """The stored record, succeeded or failed."""
        if self._record is None:
            performance: Performance | None = None
            accuracy: Accuracy | None = None
            artifacts: tuple[Artifact, ...] = ()
            if self._failure is None:
                with self._failing():
                    self._stage = "store"
                    self._say("store")
                    performance, accuracy, artifacts = self._summarise()
            self._record = self._context.store().add(self._make_record(performance, accuracy, artifacts))
        return self._record

    def answers(self) -> list[Prediction]:
        if self._failure is not None:
            raise from_fields(self._failure.model_dump(mode="json"))
        return _parse_predictions((self._folder / "predictions.jsonl").read_bytes())

    def interrupt(self) -> None:
        if self._record is None:
            if self._failure is None:
                self._failure = Failure(stage=self._stage, code="interrupted", message="the user stopped the run")
            self.finish()

    def clean(self) -> None:
        self._run_folder.remove()

    def _summarise(self) -> tuple[Performance | None, Accuracy | None, tuple[Artifact, ...]]:
        import numpy as np

        facts = self._launch_facts()
        artifacts: list[Artifact] = []
        performance, accuracy = None, None
        if self._plan.request.measure != "accuracy":
            tables = [np.load(self._folder / f"stamps-{item.index}.npy") for item in facts]
            performance = summarise(tables, facts, self._plan.scenario.batch_size)
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **{f"launch_{i}": table for i, table in enumerate(tables)})
            artifacts.append(self._put(buffer.getvalue(), LATENCIES, "application/x-npz"))
        if self._plan.request.measure != "performance":
            text = (self._folder / "predictions.jsonl").read_bytes()
            accuracy = score(_parse_predictions(text))
            artifacts.append(self._put(gzip.compress(text, mtime=0), PREDICTIONS, "application/gzip"))
        return performance, accuracy, tuple(artifacts)

    def _put(self, data: bytes, name: str, media_type: str) -> Artifact:
        return self._context.store().put_artifact(data, name, media_type)

    def _launch_facts(self) -> tuple[LaunchFacts, ...]:
        return tuple(LaunchFacts.model_validate(result["launch"]) for result in self._results)

    def _make_record(
        self, performance: Performance | None, accuracy: Accuracy | None, artifacts: tuple[Artifact, ...]
    ) -> Record:
        plan = self._plan
        first = self._results[0] if self._results else None
        return Record(
            id=self._id,
            status="failed" if self._failure else "succeeded",
            created_at=self._created_at,
            finished_at=_now(),
            request=plan.request,
            model=self._model_facts(),
            dataset=self._dataset_facts(first),
            software=Software.model_validate(first["software"]) if first else self._planned_software(),
            system=SystemFacts.model_validate(first["system"]) if first else read_system(),
            scenario=plan.scenario,
            limits=plan.request.limits,
            seed=plan.request.seed,
            execution=_execution(first, plan),
            launches=self._launch_facts(),
            performance=performance,
            accuracy=accuracy,
            artifacts=artifacts,
            failure=self._failure,
            is_trusted=plan.is_trusted,
            warnings=self._warnings(),
        )

    def _planned_software(self) -> Software:
        """What would have run, for a record whose worker did not live to say it: `local` is this very interpreter."""
        plan = self._plan
        return read_software(
            framework=plan.framework.name,
            framework_version=plan.framework.version,
            distribution=plan.framework.distribution,
            environment=plan.environment,
        )

    def _model_facts(self) -> ModelFacts:
        model = self._plan.model
        weights = [item.sha256 for item in self._files.model if item.role in ("graph", "weights")]
        return ModelFacts(
            name=model.name,
            version=model.version,
            task=model.task,
            license=model.license,
            manifest=self._plan.model_manifest,
            steps=step_facts(model),
            weights_digest="+".join(weights) or None,
            assets=tuple(self._files.model),
        )

    def _dataset_facts(self, first: dict[str, Any] | None) -> DatasetFacts | None:
        dataset = self._plan.dataset
        return DatasetFacts(
            name=dataset.name if dataset else "inputs",
            version=dataset.version if dataset else "",
            split=dataset.split if dataset else "",
            manifest=self._plan.dataset_manifest,
            sample_count=first["sample_count"] if first else 0,
            sample_ids_digest=first["sample_ids_digest"] if first else "",
            performance_set=tuple(first["performance_set"]) if first else (),
            assets=tuple(self._files.dataset),
        )

    def _warnings(self) -> tuple[str, ...]:
        assets = dict(_model_assets(self._plan.model))
        unchecked = [role for role, asset in assets.items() if asset.checksum is None]
        return tuple(f"the manifest gives no checksum for its {role}" for role in unchecked)

    @contextmanager
    def _failing(self, index: int | None = None) -> Iterator[None]:
        """Keeps an expected failure as a value; a bug still propagates."""
        try:
            yield
        except LaunchFailed as failed:
            self._fail(failed.error, failed.stage, index, failed.log_tail)
        except MLModelScopeError as error:
            self._fail(error, self._stage, index)
        except OSError as error:
            name = f" ({error.filename})" if error.filename else ""
            self._fail(HostError(f"{error.strerror or error}{name}"), self._stage, index)

    def _fail(self, error: MLModelScopeError, stage: str, index: int | None, log_tail: str = "") -> None:
        values = {**error.to_fields(), "stage": stage, "launch": index, "log_tail": log_tail}
        self._failure = Failure.model_validate(values)

    def _say(self, stage: str) -> None:
        self._context.on_event(EvaluationEvent(self._plan.model.name, stage))

    def _forward(self, index: int) -> Callable[[WorkerEvent], None]:
        def forward(event: WorkerEvent) -> None:
            self._context.on_event(
                EvaluationEvent(self._plan.model.name, event.stage, index, self.launches, event.done, event.total)
            )

        return forward


def read_evidence(store: Store, record: Record) -> Evidence:
    """A record with its raw data: latencies in nanoseconds per launch, and predictions."""
    return Evidence(record, _read_latencies(store, record), _read_predictions(store, record))


def _read_latencies(store: Store, record: Record) -> list[list[float]]:
    import numpy as np

    artifact = record.artifact(LATENCIES)
    if artifact is None:
        return []
    with np.load(io.BytesIO(store.read_artifact(artifact))) as tables:
        return [latencies(tables[f"launch_{i}"]) for i in range(len(tables.files))]


def _read_predictions(store: Store, record: Record) -> list[Prediction]:
    artifact = record.artifact(PREDICTIONS)
    return _parse_predictions(gzip.decompress(store.read_artifact(artifact))) if artifact else []


def _parse_predictions(text: bytes) -> list[Prediction]:
    return [Prediction.model_validate(json.loads(line)) for line in text.splitlines()]


def _model_assets(model: ModelManifest) -> Iterator[tuple[AssetRole, Asset]]:
    if model.source is not None:
        yield "graph", model.source.graph
        if model.source.weights is not None:
            yield "weights", model.source.weights
    for output in model.outputs:
        yield from (("labels", asset) for asset in _assets_in(output))


def _dataset_assets(dataset: DatasetManifest) -> Iterator[tuple[AssetRole, Asset]]:
    yield from (("data", asset) for asset in _assets_in(dataset.layout))
    if dataset.labels is not None:
        yield "labels", dataset.labels


def _assets_in(value: Any) -> Iterator[Asset]:
    """Every asset inside a frozen value, in field order."""
    if isinstance(value, Asset):
        yield value
    elif isinstance(value, Frozen):
        for name in type(value).model_fields:
            yield from _assets_in(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _assets_in(item)


def _execution(first: dict[str, Any] | None, plan: EvaluationPlan) -> EffectiveExecution | None:
    if first is None:
        return None
    facts = first["execution"]
    names = ("threads", "provider", "optimization", "precision", "inputs", "outputs")
    return EffectiveExecution(batch_size=plan.scenario.batch_size, **{name: facts[name] for name in names})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
