"""Joins the stages for plans: provision, launch, summarise, store; one stored record per plan, whatever happens.

Launches of several plans are interleaved (first launch of each, then the second of each, ...), because machines drift:
results that were measured side by side may be compared, results measured one after the other may lie.
"""

from __future__ import annotations

import errno
import gzip
import io
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mlmodelscope.analyse.accuracy import score
from mlmodelscope.analyse.summary import summarise, summarise_offline
from mlmodelscope.core.answer import Prediction
from mlmodelscope.core.errors import (
    HostError,
    Interrupted,
    MLModelScopeError,
    UsageError,
    WorkerCrashError,
    from_fields,
)
from mlmodelscope.core.events import EvaluationEvent
from mlmodelscope.core.ids import id_hex, new_id
from mlmodelscope.core.plugins import predictors
from mlmodelscope.core.predictor import Reveals
from mlmodelscope.core.record import (
    Accuracy,
    Artifact,
    Failure,
    LaunchFacts,
    Performance,
    Record,
    Stage,
    TraceFacts,
)
from mlmodelscope.core.request import EvaluationPlan, Offline
from mlmodelscope.core.settings import sandbox_environment, worker_environment
from mlmodelscope.core.span import TraceLevel
from mlmodelscope.core.store import Store
from mlmodelscope.evidence import LATENCIES, PREDICTIONS, TRACE
from mlmodelscope.hosting import Host, Preparation, prepare_host
from mlmodelscope.provision import Assets, Progress
from mlmodelscope.provision.durable import storage_error
from mlmodelscope.provisioning import PlannedFiles
from mlmodelscope.recording import Outcome, launch_facts, make_record
from mlmodelscope.trace.file import LIMIT_BYTES, decode_trace
from mlmodelscope.worker.folder import RunFolder
from mlmodelscope.worker.job import FrameworkHost, Job, asset_key
from mlmodelscope.worker.launch import LaunchFailed, WorkerEvent, launch
from mlmodelscope.worker.layers import ARRAYS_FILE, NAMES_FILE, read_arrays, read_names
from mlmodelscope.worker.results import (
    MOST_BYTES,
    MOST_UNTRUSTED_BYTES,
    read_predictions,
    read_result,
    read_stamps,
    read_table,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Context", "evaluate_plans", "list_layers", "predict_inputs", "reveal_layers"]


_Inside = TypeVar("_Inside", list[str], "dict[str, NDArray[Any]]")

_STORAGE_ERRORS = (errno.EACCES, errno.EDQUOT, errno.ENOSPC, errno.ENOTDIR, errno.EPERM, errno.EROFS)


@dataclass(frozen=True)
class Context:
    """Where things are and who listens. `progress` draws downloads, `on_event` everything else; `may_install` is asked
    before more than 1 GB (a size in bytes) is installed for a framework.

    `store` opens the store when it is first needed: a prediction needs none.
    """

    home: Path
    store: Callable[[], Store]
    assets: Assets
    on_event: Callable[[EvaluationEvent], None] = lambda event: None
    progress: Progress | None = None
    may_install: Callable[[int], bool] = lambda size: False


def evaluate_plans(plans: Sequence[EvaluationPlan], context: Context) -> list[Record]:
    """One stored record per plan, in the order of the plans. Raises Interrupted after storing what was cut off."""
    # hours of measuring must not end at a database that could never have been used
    context.store()
    runs = [_Run(plan, context) for plan in plans]
    try:
        for run in runs:
            run.provision()
        for index in range(max(run.launches for run in runs)):
            for run in runs:
                run.launch(index)
        for run in runs:
            run.trace()
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


def list_layers(plan: EvaluationPlan, context: Context) -> list[str]:
    """The names of the layers whose outputs `reveal_layers` can give."""
    return _look_inside(plan, context, (), lambda run: run.layer_names())


def reveal_layers(plan: EvaluationPlan, context: Context, layers: Sequence[str]) -> dict[str, NDArray[Any]]:
    """What the named layers compute for each of the plan's inputs alone, by `<input>/<layer>`; nothing is stored.

    UsageError: the framework cannot show what is inside a model. UnknownNameError: the model has no such layer.
    """
    return _look_inside(plan, context, layers, lambda run: run.revealed())


def _look_inside(
    plan: EvaluationPlan, context: Context, layers: Sequence[str], result: Callable[[_Run], _Inside]
) -> _Inside:
    name = plan.framework.name
    if not issubclass(predictors().get(name), Reveals):
        raise UsageError(
            f"{name} cannot show what the layers inside a model compute",
            hint="choose one that can with --framework, onnxruntime for example",
            framework=name,
        )
    run = _Run(plan, context, tuple(dict.fromkeys(layers)))
    try:
        run.provision()
        run.launch(0)
        return result(run)
    finally:
        run.clean()


class _Run:
    """One plan on its way to a record. After a failure every further call does nothing.

    With `layers` it is on its way to the outputs of those layers (empty: to the names of all) and to no record.
    """

    def __init__(self, plan: EvaluationPlan, context: Context, layers: tuple[str, ...] | None = None) -> None:
        self._plan, self._context = plan, context
        self._layers = layers
        self._id, self._created_at = new_id(), _now()
        self._run_folder = RunFolder(context.home / "runs" / self._id)
        self._folder = self._run_folder.path
        self._files = PlannedFiles()
        self._host: Host | None = None
        self._results: list[dict[str, Any]] = []
        self._failure: Failure | None = None
        self._record: Record | None = None
        self._stage: Stage = "provision"
        self._trace: TraceFacts | None = None
        self._traced: Artifact | None = None
        self._notes: list[str] = []

    @property
    def launches(self) -> int:
        """One launch is enough when nothing is timed."""
        return 1 if self._plan.request.measure == "accuracy" else self._plan.scenario.launches

    def provision(self) -> None:
        with self._failing():
            self._run_folder.make()
            self._files.fetch(self._plan, self._context.assets, self._context.progress, self._say)
            preparation = Preparation(
                self._context.home, self._context.may_install, lambda text: self._say(f"environment: {text}")
            )
            self._plan, self._host = prepare_host(self._plan, preparation)

    def launch(self, index: int) -> None:
        if self._failure is not None or index >= self.launches:
            return
        with self._failing(index):
            self._results.append(self._start_worker(index))

    def trace(self) -> None:
        """One launch behind the measured ones, none of whose times counts. If it fails, only the trace is missing."""
        if self._failure is not None or self._plan.request.trace_level == TraceLevel.NONE:
            return
        try:
            self._keep_trace(self._start_worker(self.launches))
        except LaunchFailed as failed:
            self._notes.append(f"there is no trace: {failed.error.message} ({failed.error.code})")
        except MLModelScopeError as error:
            self._notes.append(f"there is no trace: {error.message} ({error.code})")
        except OSError as error:
            self._notes.append(f"there is no trace: {_host_error(error, self._folder).message}")

    def _keep_trace(self, result: dict[str, Any]) -> None:
        said, asked = result.get("trace") or {}, self._plan.request.trace_level
        content = read_result(self._folder / TRACE, LIMIT_BYTES)
        trace = decode_trace(content)
        self._traced = self._put(content, TRACE, "application/x-npz")
        self._trace = TraceFacts(
            level=trace.level,
            spans=len(trace.spans),
            is_truncated=trace.left_out > 0 or bool(said.get("is_truncated")),
            artifact=TRACE,
            clock=result["launch"]["clock"],
            queries=self._plan.request.trace_queries,
            launch=LaunchFacts.model_validate(result["launch"]),
        )
        if trace.level < asked:
            why = said.get("reason") or f"{self._plan.framework.name} has no layer profile here"
            self._notes.append(f"{why}: the trace ends at level {trace.level.name.lower()}")

    def _start_worker(self, index: int) -> dict[str, Any]:
        self._stage = "start"
        plan = self._plan
        predictor = predictors().get(plan.framework.name)
        if plan.is_trusted:
            environment = worker_environment(self._context.home, plan.threads, predictor.environment)
        else:
            environment = sandbox_environment(plan.threads, predictor.environment, self._folder)
        assert self._host is not None
        with self._host.opened(self._folder, self._model_paths()) as host:
            return launch(self._job(index, host), plan.request.limits, environment, self._forward(index))

    def _model_paths(self) -> list[str]:
        """The files that the framework itself opens."""
        source = self._plan.model.source
        assets = [] if source is None else [source.graph, *([source.weights] if source.weights else [])]
        return [self._files.paths[asset_key(asset)] for asset in assets]

    def _job(self, index: int, host: FrameworkHost | None) -> Job:
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
            host=host,
            options=plan.request.options,
            scenario=plan.scenario,
            measure=plan.request.measure,
            is_first=index == 0,
            threads=plan.threads,
            seed=plan.request.seed,
            run_folder=str(self._folder),
            # untrusted code must not leave a decoded data set for others to find
            cache_folder=str((self._context.home if plan.is_trusted else self._folder) / "cache"),
            spawned_ns=time.monotonic_ns(),
            trace_level=plan.request.trace_level if index == self.launches else TraceLevel.NONE,
            trace_queries=plan.request.trace_queries,
            trace_id=id_hex(self._id),
            layers=self._layers,
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
            if self._failure is not None:
                # on a full disk this makes the room in which the failure is told
                self.clean()
            self._record = self._context.store().add(make_record(self._outcome(performance, accuracy, artifacts)))
        return self._record

    def layer_names(self) -> list[str]:
        self._raise_failure()
        return read_names(self._folder / NAMES_FILE, self._most_bytes)

    def revealed(self) -> dict[str, NDArray[Any]]:
        self._raise_failure()
        arrays = read_arrays(self._folder / ARRAYS_FILE, self._most_bytes)
        wanted = len(self._files.inputs) * len(self._layers or ())
        if len(arrays) != wanted:
            raise WorkerCrashError(f"the worker gave {len(arrays)} arrays instead of {wanted}")
        return arrays

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise from_fields(self._failure.model_dump(mode="json"))

    def answers(self) -> list[Prediction]:
        self._raise_failure()
        answers = read_predictions(self._folder / "predictions.jsonl", self._most_bytes)[1]
        if len(answers) != len(self._files.inputs):
            raise WorkerCrashError(f"the worker gave {len(answers)} answers for {len(self._files.inputs)} inputs")
        return answers

    @property
    def _most_bytes(self) -> int:
        return MOST_BYTES if self._plan.is_trusted else MOST_UNTRUSTED_BYTES

    def interrupt(self) -> None:
        if self._record is None:
            if self._failure is None:
                self._failure = Failure(stage=self._stage, code="interrupted", message="the user stopped the run")
            self.finish()

    def clean(self) -> None:
        self._run_folder.remove()
        if self._host is not None:
            self._host.close()

    def _summarise(self) -> tuple[Performance | None, Accuracy | None, tuple[Artifact, ...]]:
        import numpy as np

        facts = launch_facts(self._results)
        artifacts: list[Artifact] = []
        performance, accuracy = None, None
        if self._plan.request.measure != "accuracy":
            tables = [read_stamps(self._folder / f"stamps-{item.index}.npy", self._most_bytes) for item in facts]
            arrays: dict[str, Any] = {f"launch_{i}": table for i, table in enumerate(tables)}
            if isinstance(self._plan.scenario, Offline):
                work = [read_table(self._folder / f"work-{item.index}.npy", self._most_bytes) for item in facts]
                performance = summarise_offline(tables, work, facts)
                arrays |= {f"work_{i}": table for i, table in enumerate(work)}
            else:
                performance = summarise(tables, facts, self._plan.scenario.batch_size)
            buffer = io.BytesIO()
            np.savez_compressed(buffer, **arrays)
            artifacts.append(self._put(buffer.getvalue(), LATENCIES, "application/x-npz"))
        if self._plan.request.measure != "performance":
            text, predictions = read_predictions(self._folder / "predictions.jsonl", self._most_bytes)
            accuracy = score(predictions)
            artifacts.append(self._put(gzip.compress(text, mtime=0), PREDICTIONS, "application/gzip"))
        return performance, accuracy, tuple(artifacts)

    def _put(self, data: bytes, name: str, media_type: str) -> Artifact:
        return self._context.store().put_artifact(data, name, media_type)

    def _outcome(
        self, performance: Performance | None, accuracy: Accuracy | None, artifacts: tuple[Artifact, ...]
    ) -> Outcome:
        return Outcome(
            id=self._id,
            created_at=self._created_at,
            finished_at=_now(),
            plan=self._plan,
            files=self._files,
            results=tuple(self._results),
            failure=self._failure,
            performance=performance,
            accuracy=accuracy,
            trace=self._trace,
            artifacts=artifacts + ((self._traced,) if self._traced else ()),
            notes=tuple(self._notes),
        )

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
            self._fail(_host_error(error, self._folder), self._stage, index)

    def _fail(self, error: MLModelScopeError, stage: str, index: int | None, log_tail: str = "") -> None:
        values = {**error.to_fields(), "stage": stage, "launch": index, "log_tail": log_tail}
        self._failure = Failure.model_validate(values)

    def _say(self, stage: str) -> None:
        self._context.on_event(EvaluationEvent(self._plan.model.name, stage))

    def _forward(self, index: int) -> Callable[[WorkerEvent], None]:
        launches = self.launches + (self._plan.request.trace_level > TraceLevel.NONE)

        def forward(event: WorkerEvent) -> None:
            self._stage = event.stage
            self._context.on_event(
                EvaluationEvent(self._plan.model.name, event.stage, index, launches, event.done, event.total)
            )

        return forward


def _host_error(error: OSError, folder: Path) -> HostError:
    if error.errno in _STORAGE_ERRORS:
        return storage_error(error, folder)
    name = f" ({error.filename})" if error.filename else ""
    return HostError(f"{error.strerror or error}{name}")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
