"""The library: everything the command line can do, as typed calls that print nothing.

    import mlmodelscope as ms
    record = ms.evaluate("ResNet50", dataset="imagenet-photos")
    print(record.performance.latency_median_ns.value, record.accuracy.top1)

Module functions work in the default home (`MLMODELSCOPE_HOME`); a `Workspace` works in any.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from mlmodelscope import __version__
from mlmodelscope.core.asset import parse_location
from mlmodelscope.core.errors import InputError, UnknownNameError, UsageError
from mlmodelscope.core.events import EvaluationEvent
from mlmodelscope.core.manifest import DatasetManifest, ModelManifest
from mlmodelscope.core.plugins import installed_version, predictors
from mlmodelscope.core.request import EvaluationPlan, EvaluationRequest, PinnedManifest
from mlmodelscope.core.settings import home as default_home
from mlmodelscope.core.store import HistoryPage, HistoryQuery, Store
from mlmodelscope.resolve.plans import Facts, InstalledFramework, make_plan
from mlmodelscope.zoo.catalogue import Catalogue

if TYPE_CHECKING:
    from mlmodelscope.analyse.comparison import Comparison
    from mlmodelscope.analyse.reproduction import Reproduction
    from mlmodelscope.core.answer import Prediction
    from mlmodelscope.core.record import Record
    from mlmodelscope.evaluation import Context
    from mlmodelscope.provision import Progress

__all__ = ["Workspace", "compare", "evaluate", "frameworks", "get", "history", "predict", "reproduce"]


class Workspace:
    """One home: its history, its cache, its manifests. Use it as a context manager, or `close` it.

    `on_event` and `progress` are told what happens; nothing is printed. Not thread-safe; several processes may share a
    home.
    """

    def __init__(
        self,
        home: Path | None = None,
        *,
        on_event: Callable[[EvaluationEvent], None] = lambda event: None,
        progress: Progress | None = None,
    ) -> None:
        self.home = home or default_home()
        self.catalogue = Catalogue(self.home)
        self._on_event, self._progress = on_event, progress
        self._store: Store | None = None

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    @property
    def store(self) -> Store:
        """The evaluation database, opened when first needed."""
        if self._store is None:
            from mlmodelscope.store import open_store

            self._store = open_store(self.home)
        return self._store

    def plans(self, request: EvaluationRequest) -> list[EvaluationPlan]:
        """What the request means here: one plan per model, everything pinned."""
        facts = read_facts()
        dataset = self.catalogue.dataset(request.dataset) if request.dataset else None
        found = [self.catalogue.model(text) for text in request.models]
        return [
            make_plan(
                request.model_copy(update={"models": (text,)}),
                entry.manifest,
                entry.pinned,
                dataset.manifest if dataset else None,
                dataset.pinned if dataset else None,
                facts,
            )
            for text, entry in zip(request.models, found, strict=True)
        ]

    def evaluate(self, request: EvaluationRequest) -> list[Record]:
        """One stored record per model, in order; a failed evaluation is a record too. Launches are interleaved."""
        from mlmodelscope.evaluation import evaluate_plans

        return evaluate_plans(self.plans(request), self._context())

    def predict(
        self,
        model: str,
        inputs: Sequence[str],
        *,
        framework: str | None = None,
        threads: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> list[Prediction]:
        """The model's answers for files or URLs, in order; nothing is stored."""
        from mlmodelscope.evaluation import predict_inputs

        request = make_request(
            models=(model,),
            framework=framework,
            inputs=tuple(inputs),
            threads=threads,
            options=options or {},
            measure="accuracy",
        )
        (plan,) = self.plans(request)
        return predict_inputs(plan, self._context())

    def get(self, record_id: str) -> Record:
        return self.store.get(record_id)

    def history(self, query: HistoryQuery | None = None, *, limit: int = 50, after: str | None = None) -> HistoryPage:
        return self.store.history(query or HistoryQuery(), limit=limit, after=after)

    def compare(self, record_ids: Sequence[str]) -> list[Comparison]:
        """Every further record against the first."""
        from mlmodelscope.analyse.comparison import compare
        from mlmodelscope.evaluation import read_evidence

        if len(record_ids) < 2:
            raise UsageError("a comparison needs two records or more")
        evidence = [read_evidence(self.store, self.get(record_id)) for record_id in record_ids]
        return [compare(evidence[0], other) for other in evidence[1:]]

    def reproduce(self, record_id: str) -> tuple[Record, Reproduction | None]:
        """Runs the record's evaluation again from what the record holds; no verdict if either of the two failed."""
        from mlmodelscope.analyse.reproduction import judge
        from mlmodelscope.evaluation import evaluate_plans, read_evidence

        original = self.get(record_id)
        (repeated,) = evaluate_plans([self._plan_again(original)], self._context())
        if "failed" in (original.status, repeated.status):
            return repeated, None
        return repeated, judge(read_evidence(self.store, original), read_evidence(self.store, repeated))

    def _plan_again(self, record: Record) -> EvaluationPlan:
        model = _parse_pinned(record.model.manifest)
        assert isinstance(model, ModelManifest)
        pinned_dataset = record.dataset.manifest if record.dataset else None
        dataset = _parse_pinned(pinned_dataset) if pinned_dataset else None
        assert dataset is None or isinstance(dataset, DatasetManifest)
        return make_plan(record.request, model, record.model.manifest, dataset, pinned_dataset, read_facts())

    def _context(self) -> Context:
        from mlmodelscope.evaluation import Context
        from mlmodelscope.provision import Assets

        return Context(self.home, lambda: self.store, Assets(self.home), self._on_event, self._progress)


def read_facts() -> Facts:
    """This machine: its hardware and the frameworks that are registered and installed."""
    from mlmodelscope.measure.system import read_system

    registry = predictors()
    system = read_system()

    def canonical(name: str) -> str | None:
        try:
            return registry.canonical(name)
        except UnknownNameError:
            return None

    found = {framework.name: framework for framework in frameworks()}
    return Facts(system=system, frameworks=found, canonical=canonical, usable_cpus=system.usable_cpus)


def frameworks() -> list[InstalledFramework]:
    """Every registered predictor with the version of its framework that is installed here; imports no framework."""
    registry = predictors()
    found: list[InstalledFramework] = []
    for name in registry.names():
        predictor = registry.get(name)
        # a predictor without a framework of its own (null) is as old as we are
        installed = installed_version(predictor) if predictor.packages else ("mlmodelscope", __version__)
        found.append(
            InstalledFramework(
                name=name,
                entry_point=f"{predictor.__module__}:{predictor.__qualname__}",
                distribution=installed[0] if installed else None,
                version=installed[1] if installed else None,
                install_hint=f"pip install 'mlmodelscope[{name}]'",
            )
        )
    return found


def make_request(**fields: Any) -> EvaluationRequest:
    """A request from plain values; a UsageError says which field cannot be, an InputError which input is not there."""
    try:
        request = EvaluationRequest(**fields)
    except ValidationError as error:
        raise UsageError("; ".join(_problem(item) for item in error.errors())) from None
    return request.model_copy(update={"inputs": tuple(_locate(text) for text in request.inputs)})


def _problem(item: Mapping[str, Any]) -> str:
    message = str(item["msg"]).removeprefix("Value error, ")
    return ": ".join(filter(None, (".".join(map(str, item["loc"])), message)))


def _locate(text: str) -> str:
    """The location of an input; of a file here the whole path, so that the record can be repeated from any folder."""
    file = Path(text).absolute()
    if os.path.isfile(file):  # noqa: PTH113 - a name that no file can have is no error here
        # a name may hold what has a meaning in a location: '!', a blank at its end
        return str(file) if re.fullmatch(r"[^!\x00-\x1f]*\S", str(file)) else file.as_uri()
    try:
        location = parse_location(text)
    except ValueError as error:
        raise UsageError(f"the input {text!r} cannot be: {error}") from None
    if location.kind != "path":
        return text
    if location.member is None:
        reason = "is a folder" if file.is_dir() else "is not there"
        raise InputError(f"the input {text} {reason}", hint="give a file or a URL", input=text)
    return f"{Path(location.target).absolute()}!{location.member}"


def _parse_pinned(pinned: PinnedManifest) -> object:
    from mlmodelscope.manifest import load_manifest

    return load_manifest(pinned.text, origin=pinned.origin)


@contextmanager
def _default() -> Iterator[Workspace]:
    with Workspace() as workspace:
        yield workspace


def evaluate(model: str, **fields: Any) -> Record:
    """Evaluates one model and returns the stored record. `fields` are those of `EvaluationRequest`."""
    with _default() as workspace:
        return workspace.evaluate(make_request(models=(model,), **fields))[0]


def predict(model: str, *inputs: str, **options: Any) -> list[Prediction]:
    """The model's answers for files or URLs. `options` are those of `Workspace.predict`."""
    with _default() as workspace:
        return workspace.predict(model, inputs, **options)


def get(record_id: str) -> Record:
    with _default() as workspace:
        return workspace.get(record_id)


def history(query: HistoryQuery | None = None, *, limit: int = 50, after: str | None = None) -> HistoryPage:
    with _default() as workspace:
        return workspace.history(query, limit=limit, after=after)


def compare(*record_ids: str) -> list[Comparison]:
    with _default() as workspace:
        return workspace.compare(record_ids)


def reproduce(record_id: str) -> tuple[Record, Reproduction | None]:
    with _default() as workspace:
        return workspace.reproduce(record_id)
