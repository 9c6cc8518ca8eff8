"""The library: everything the command line can do, as typed calls that print nothing.

    import mlmodelscope as ms
    record = ms.evaluate("ResNet50", dataset="imagenet-photos")
    print(record.performance.latency_median_ns.value, record.accuracy.top1)

Module functions work in the default home (`MLMODELSCOPE_HOME`); a `Workspace` works in any.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.errors import UnknownNameError, UsageError
from mlmodelscope.core.events import EvaluationEvent
from mlmodelscope.core.manifest import DatasetManifest, ModelManifest
from mlmodelscope.core.request import EvaluationPlan, EvaluationRequest
from mlmodelscope.core.settings import home as default_home
from mlmodelscope.core.storage import PRUNED, StorageItem, StorageKind
from mlmodelscope.core.store import HistoryPage, HistoryQuery, Store
from mlmodelscope.facts import frameworks, read_facts
from mlmodelscope.request import make_request
from mlmodelscope.resolve.plans import find_framework, make_plan
from mlmodelscope.resolve.system import parse_requirements, parse_size
from mlmodelscope.zoo.catalogue import Catalogue, Entry

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mlmodelscope.analyse.comparison import Comparison
    from mlmodelscope.analyse.regression import RegressionCheck
    from mlmodelscope.analyse.reproduction import Reproduction
    from mlmodelscope.conducting import Outcome
    from mlmodelscope.core.answer import Prediction
    from mlmodelscope.core.factors import FactorGroup
    from mlmodelscope.core.forecast import Forecast
    from mlmodelscope.core.record import Record
    from mlmodelscope.core.span import Trace
    from mlmodelscope.evaluation import Context
    from mlmodelscope.exchange.assets import Wanted
    from mlmodelscope.provision import Assets, Progress
    from mlmodelscope.provision.bundles import BundledAsset
    from mlmodelscope.show.report.data import ReportData
    from mlmodelscope.suite.progress import SuiteRow
    from mlmodelscope.suite.read import Suite

__all__ = [
    "Workspace",
    "compare",
    "evaluate",
    "frameworks",
    "get",
    "history",
    "make_request",
    "predict",
    "read_facts",
    "reproduce",
]


class Workspace:
    """One home: its history, its cache, its manifests. Use it as a context manager, or `close` it.

    `on_event` and `progress` are told what happens; nothing is printed. `may_install` is asked, with a size in bytes,
    before a framework's environment of more than 1 GB is made. Not thread-safe; several processes may share a
    home.
    """

    def __init__(
        self,
        home: Path | None = None,
        *,
        on_event: Callable[[EvaluationEvent], None] = lambda event: None,
        progress: Progress | None = None,
        may_install: Callable[[int], bool] = lambda size: False,
    ) -> None:
        self.home = home or default_home()
        self.catalogue = Catalogue(self.home)
        self._on_event, self._progress, self._may_install = on_event, progress, may_install
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
        # a data set known by name is the user's or the zoo's; a file may have come with the stranger's model
        is_own = request.is_trusted or dataset is None or dataset in self.catalogue.datasets()
        return [
            make_plan(
                request.model_copy(update={"models": (text,)}),
                entry.manifest,
                entry.pinned,
                dataset.manifest if dataset else None,
                dataset.pinned if dataset else None,
                facts,
                is_dataset_own=is_own,
                is_model_builtin=entry.is_builtin,
            )
            for text, entry in zip(request.models, found, strict=True)
        ]

    def evaluate(self, request: EvaluationRequest) -> list[Record]:
        """One stored record per model, in order; a failed evaluation is a record too. Launches are interleaved."""
        return [outcome.record for outcome in self.carry_out(self.plans(request))]

    def carry_out(self, plans: Sequence[EvaluationPlan]) -> list[Outcome]:
        """One outcome per plan, in order: evaluated, or from history where the request says `reuse`."""
        from mlmodelscope.conducting import carry_out

        return carry_out(plans, self._context())

    def sweep_plans(self, request: EvaluationRequest, batch_sizes: Sequence[int]) -> list[EvaluationPlan]:
        """The plans of the request for every batch size, the sizes of one model after each other."""
        from mlmodelscope.conducting import sweep_requests

        by_size = [self.plans(one) for one in sweep_requests(request, batch_sizes)]
        return [plan for of_model in zip(*by_size, strict=True) for plan in of_model]

    def forecast(self, plans: Sequence[EvaluationPlan]) -> list[Forecast]:
        """What each plan will fetch and how long it takes at least; nothing is downloaded, started or stored."""
        from mlmodelscope.forecast import foresee

        assets = self._context().assets
        return [foresee(plan, assets) for plan in plans]

    def run_suite(self, path: Path, *, is_fresh: bool = False) -> list[SuiteRow]:
        """Every evaluation of a suite file; those that an earlier run finished are not repeated unless `is_fresh`."""
        from mlmodelscope.conducting import run_suite

        return run_suite(self.read_suite(path), self._context(), self.plans, is_fresh=is_fresh)

    def read_suite(self, path: Path) -> Suite:
        """The evaluations that a suite file asks for; ManifestError tells every problem with its line and column."""
        from mlmodelscope.suite.read import read_suite

        facts = read_facts()
        return read_suite(
            path,
            {
                "model": self.catalogue.model,
                "dataset": self.catalogue.dataset,
                "framework": lambda text: find_framework(text, facts),
                "system": parse_requirements,
                "size": parse_size,
            },
        )

    def check(
        self,
        record_id: str,
        baseline_id: str,
        *,
        max_slowdown: float | None = 0.05,
        max_accuracy_loss: float | None = 0.005,
        allowed: Collection[FactorGroup] = (),
    ) -> RegressionCheck:
        """Whether the record is proven to be worse than the baseline; limits are shares, None leaves one out."""
        from mlmodelscope.analyse.regression import check
        from mlmodelscope.evidence import read_evidence

        baseline, candidate = (read_evidence(self.store, self.get(each)) for each in (baseline_id, record_id))
        return check(
            baseline, candidate, max_slowdown=max_slowdown, max_accuracy_loss=max_accuracy_loss, allowed=allowed
        )

    def predict(
        self,
        model: str,
        inputs: Sequence[str],
        *,
        framework: str | None = None,
        environment: str | None = None,
        threads: int | None = None,
        options: dict[str, Any] | None = None,
        is_trusted: bool = True,
    ) -> list[Prediction]:
        """The model's answers for files or URLs, in order; nothing is stored."""
        from mlmodelscope.evaluation import predict_inputs

        where = {"framework": framework, "environment": environment, "threads": threads, "options": options or {}}
        return predict_inputs(self._plan(model, inputs, **where, is_trusted=is_trusted), self._context())

    def reveal(self, model: str, inputs: Sequence[str], layers: Sequence[str], **where: Any) -> dict[str, NDArray[Any]]:
        """What the named layers inside the model compute for each file or URL alone, by `<input>/<layer>`.

        The input goes by its file's name, a second one of that name by `name#2`. `where` are the options of `predict`.
        UsageError: the framework cannot show it. UnknownNameError: the model has no such layer.
        """
        from mlmodelscope.evaluation import reveal_layers

        if not layers:
            raise UsageError("no layer was named", hint="layer_names() and --layers list name those of the model")
        return reveal_layers(self._plan(model, inputs, **where), self._context(), layers)

    def layer_names(self, model: str, **where: Any) -> list[str]:
        """The layers that `reveal` can be asked for, in the order of execution where the framework has one."""
        from mlmodelscope.evaluation import list_layers

        # a plan is about data, but names are told before any is read
        with tempfile.NamedTemporaryFile(prefix="mlmodelscope-") as unread:
            return list_layers(self._plan(model, [unread.name], **where), self._context())

    def _plan(self, model: str, inputs: Sequence[str], **where: Any) -> EvaluationPlan:
        (plan,) = self.plans(make_request(models=(model,), inputs=tuple(inputs), measure="accuracy", **where))
        return plan

    def read_input(self, text: str) -> bytes:
        """The bytes of a file or URL that `predict` was asked about."""
        (located,) = make_request(models=("any",), inputs=(text,)).inputs
        fetched = self._context().assets.fetch(Asset(locations=(located,)), base=Path.cwd(), progress=self._progress)
        return fetched.path.read_bytes()

    def get(self, record_id: str) -> Record:
        return self.store.get(record_id)

    def history(self, query: HistoryQuery | None = None, *, limit: int = 50, after: str | None = None) -> HistoryPage:
        return self.store.history(query or HistoryQuery(), limit=limit, after=after)

    def compare(self, record_ids: Sequence[str]) -> list[Comparison]:
        """Every further record against the first."""
        from mlmodelscope.analyse.comparison import compare
        from mlmodelscope.evidence import read_evidence

        if len(record_ids) < 2:
            raise UsageError("a comparison needs two records or more")
        evidence = [read_evidence(self.store, self.get(record_id)) for record_id in record_ids]
        return [compare(evidence[0], other) for other in evidence[1:]]

    def report(self, record_ids: Sequence[str]) -> ReportData:
        """Everything a report of these records shows, in their order; `show.report` makes a page of it."""
        from mlmodelscope.provision import Assets
        from mlmodelscope.reporting import gather

        if not record_ids:
            raise UsageError("a report needs a record")
        records = {record.id: record for record in map(self.get, record_ids)}
        return gather(self.store, list(records.values()), Assets(self.home), self.home / "cache")

    def trace(self, record_id: str) -> Trace:
        """The spans of a record that was evaluated with a trace level; UsageError if it has none."""
        from mlmodelscope.evidence import read_trace

        return read_trace(self.store, self.get(record_id))

    def export_trace(self, record_id: str, form: str = "chrome") -> bytes:
        """The trace as Chrome's JSON or as Perfetto's own format."""
        from mlmodelscope.trace.chrome import format_chrome
        from mlmodelscope.trace.perfetto import format_perfetto

        forms = {"chrome": format_chrome, "perfetto": format_perfetto}
        if form not in forms:
            raise UnknownNameError("trace format", form, forms)
        record = self.get(record_id)
        software = record.software
        framework = f" on {software.framework} {software.framework_version}" if software else ""
        return forms[form](self.trace(record.id), f"{record.model.name} {record.model.version}{framework}")

    def reproduce(self, record_id: str) -> tuple[Record, Reproduction | None]:
        """Runs the record's evaluation again from what the record holds; no verdict if either of the two failed."""
        from mlmodelscope.analyse.reproduction import judge
        from mlmodelscope.evaluation import evaluate_plans
        from mlmodelscope.evidence import read_evidence
        from mlmodelscope.repetition import plan_again

        original = self.get(record_id)
        (repeated,) = evaluate_plans([plan_again(original, self.catalogue, self.home)], self._context())
        if "failed" in (original.status, repeated.status):
            return repeated, None
        return repeated, judge(read_evidence(self.store, original), read_evidence(self.store, repeated))

    def export_record(self, record_id: str, target: Path) -> Record:
        """Writes one file with everything a stranger needs to check and repeat the record."""
        from mlmodelscope.exchange import export_record

        return export_record(self.store, record_id, target)

    def import_record(self, source: Path, *, is_trusted: bool = False) -> tuple[Record, bool]:
        """Takes a stranger's record in after verifying all of it; whether it is new here. See `exchange/records.py`."""
        from mlmodelscope.exchange import import_record

        return import_record(self.store, source, is_trusted=is_trusted)

    def export_assets(self, names: Sequence[str], target: Path) -> list[BundledAsset]:
        """Packs the original files of models, data sets and records, fetched where needed, into a tar or a folder."""
        from mlmodelscope.exchange.assets import collect, wanted_by_manifest, wanted_by_record
        from mlmodelscope.provision.bundles import write_bundle

        wanted: list[Wanted] = []
        for name in names:
            entry = self._named(name)
            if isinstance(entry, Entry):
                wanted += wanted_by_manifest(entry.manifest, entry.pinned.base)
            else:
                wanted += wanted_by_record(entry)
        return write_bundle(collect(wanted, self.assets, self._progress), target)

    def import_assets(self, source: Path) -> list[BundledAsset]:
        """Takes the assets of a bundle (tar or folder) into the cache, all or none."""
        from mlmodelscope.provision.bundles import import_bundle

        return import_bundle(source, self.assets.cache)

    def storage(self) -> list[StorageItem]:
        """Everything that takes up space in this home."""
        from mlmodelscope.exchange.storage import list_storage

        return list_storage(self.home, self.store, self.assets)

    def prune(
        self,
        kinds: Sequence[StorageKind] = PRUNED,
        *,
        older_than_seconds: float = 86_400.0,
        max_bytes: int | None = None,
        also_needed: bool = False,
        is_dry: bool = False,
    ) -> list[StorageItem]:
        """Removes what was not used for that long, longest unused first; see `exchange/storage.py` for the rules."""
        from mlmodelscope.exchange.storage import prune_storage

        return prune_storage(
            self.home,
            self.store,
            self.assets,
            kinds=kinds,
            older_than_seconds=older_than_seconds,
            max_bytes=max_bytes,
            also_needed=also_needed,
            is_dry=is_dry,
        )

    @property
    def assets(self) -> Assets:
        """The cache of assets of this home."""
        from mlmodelscope.provision import Assets

        return Assets(self.home)

    def _named(self, name: str) -> Record | Entry[ModelManifest] | Entry[DatasetManifest]:
        """A model, else a data set, else a record; the first error is of what the name looks like."""
        try:
            return self.catalogue.model(name)
        except (UnknownNameError, UsageError) as error:
            with suppress(UnknownNameError, UsageError):
                return self.catalogue.dataset(name)
            with suppress(UnknownNameError):
                return self.get(name)
            if isinstance(error, UnknownNameError) and error.fields["kind"] == "model":
                known = [entry.manifest.name for entry in self.catalogue.models()]
                known += [entry.manifest.name for entry in self.catalogue.datasets()]
                raise UnknownNameError("model, data set or record", name, known) from None
            raise

    def _context(self) -> Context:
        from mlmodelscope.evaluation import Context
        from mlmodelscope.provision import Assets

        assets = Assets(self.home)
        return Context(self.home, lambda: self.store, assets, self._on_event, self._progress, self._may_install)


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
