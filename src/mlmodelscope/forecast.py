"""Turns a plan into what can be known before it runs: files, sizes, licenses, time, and the record it would make."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from mlmodelscope.analyse.reuse import obstacles
from mlmodelscope.core.asset import Asset
from mlmodelscope.core.forecast import AssetOwner, ExpectedAsset, Forecast
from mlmodelscope.core.ids import new_id
from mlmodelscope.core.needs import dataset_assets, model_assets
from mlmodelscope.core.plugins import predictors
from mlmodelscope.core.record import AssetFacts, AssetRole, EffectiveExecution, Record
from mlmodelscope.core.request import EvaluationPlan, Offline
from mlmodelscope.core.settings import worker_environment
from mlmodelscope.core.store import HistoryQuery, Store
from mlmodelscope.core.value import digest_of
from mlmodelscope.measure.software import read_software
from mlmodelscope.measure.system import read_system
from mlmodelscope.provision import Assets
from mlmodelscope.provision.convert import converter
from mlmodelscope.recording import dataset_facts, model_facts

__all__ = ["expected_record", "find_answer", "foresee", "plan_key"]

_PAGE = 200


def foresee(plan: EvaluationPlan, assets: Assets) -> Forecast:
    """Nothing is downloaded, started or stored."""
    dataset, scenario = plan.dataset, plan.scenario
    is_timed = plan.request.measure != "accuracy"
    seconds = 0.0 if isinstance(scenario, Offline) or not is_timed else scenario.min_duration_ns / 1e9
    return Forecast(
        model=f"{plan.model.name} {plan.model.version}",
        framework=f"{plan.framework.name} {plan.framework.version}",
        dataset=f"{dataset.name} {dataset.version}" if dataset else f"{len(plan.request.inputs)} inputs",
        scenario=scenario.model_dump(mode="json"),
        threads=plan.threads,
        launches=scenario.launches if is_timed else 1,
        least_seconds=seconds,
        assets=tuple(_expected(plan, assets)),
    )


def expected_record(plan: EvaluationPlan, assets: Assets, home: Path) -> Record | None:
    """The record that a run of the plan would make, as far as it is known before; None if a file's digest is not."""
    found = list(_expected(plan, assets))
    if any(asset.sha256 is None for asset in found):
        return None
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    predictor = predictors().get(plan.framework.name)
    variables = worker_environment(home, plan.threads, predictor.environment)
    return Record(
        id=new_id(),
        status="succeeded",
        created_at=now,
        finished_at=now,
        request=plan.request,
        model=model_facts(plan, _facts(plan, found, ("model",))),
        dataset=dataset_facts(plan, _facts(plan, found, ("data set", "input"))),
        software=read_software(
            framework=plan.framework.name,
            framework_version=plan.framework.version,
            distribution=plan.framework.distribution,
            environment=plan.environment,
            variables=variables,
        ),
        system=read_system(),
        scenario=plan.scenario,
        limits=plan.request.limits,
        seed=plan.request.seed,
        execution=EffectiveExecution(
            threads=plan.threads, batch_size=plan.scenario.batch_size, provider="", optimization="", precision=""
        ),
        is_trusted=plan.is_trusted,
    )


def find_answer(store: Store, expected: Record) -> Record | None:
    """The newest stored record that is identical in every factor known before a run."""
    software = expected.software
    query = HistoryQuery(
        model=expected.model.name,
        framework=software.framework if software else None,
        dataset=expected.dataset.name if expected.dataset else None,
        scenario=expected.scenario.type,
        status="succeeded",
    )
    after: str | None = None
    while True:
        page = store.history(query, limit=_PAGE, after=after)
        for row in page.rows:
            if row.batch_size != expected.scenario.batch_size or row.model_version != expected.model.version:
                continue
            record = store.get(row.id)
            if not obstacles(expected, record):
                return record
        after = page.after
        if after is None:
            return None


def plan_key(plan: EvaluationPlan, assets: Assets) -> str:
    """A digest of what was asked and what it means here: the request, the manifests, the files, the framework."""
    return digest_of(
        {
            "request": plan.request.model_dump(mode="json", exclude={"reuse", "limits"}),
            "model": plan.model_manifest.digest,
            "dataset": plan.dataset_manifest.digest if plan.dataset_manifest else None,
            "framework": plan.framework.model_dump(mode="json"),
            "environment": plan.environment.model_dump(mode="json"),
            "scenario": plan.scenario.model_dump(mode="json"),
            "threads": plan.threads,
            # of pinned files the manifest already tells; of the others only the content does
            "files": [asset.sha256 for asset, pinned in _unpinned(plan, assets) if not pinned],
        }
    )


def _unpinned(plan: EvaluationPlan, assets: Assets) -> Iterator[tuple[ExpectedAsset, bool]]:
    for (_, _, asset, _, _), expected in zip(_needs(plan), _expected(plan, assets), strict=True):
        yield expected, asset.checksum is not None


def _needs(plan: EvaluationPlan) -> Iterator[tuple[AssetOwner, AssetRole, Asset, str, str]]:
    """Owner, role, asset, the folder that relative paths start from, license."""
    model, dataset = plan.model, plan.dataset
    for role, asset in model_assets(model):
        yield "model", role, asset, plan.model_manifest.base, model.license
    if dataset is not None and plan.dataset_manifest is not None:
        for role, asset in dataset_assets(dataset):
            yield "data set", role, asset, plan.dataset_manifest.base, dataset.license
    for text in plan.request.inputs:
        yield "input", "data", Asset(locations=(text,)), str(Path.cwd()), ""


def _expected(plan: EvaluationPlan, assets: Assets) -> Iterator[ExpectedAsset]:
    for owner, role, asset, base, license_ in _needs(plan):
        state = assets.describe(asset, base=Path(base).expanduser())
        promised = asset.checksum.sha256 if asset.checksum else None
        told = plan.model.attributes.get("size_bytes") if (owner, role) == ("model", "graph") else None
        yield ExpectedAsset(
            owner=owner,
            role=role,
            location=state.location or asset.locations[0],
            license=license_,
            is_present=state.is_present,
            needs_download=state.needs_download,
            size_bytes=state.size_bytes if state.size_bytes is not None else told if isinstance(told, int) else None,
            sha256=state.sha256 or promised,
        )


def _facts(plan: EvaluationPlan, found: list[ExpectedAsset], owners: tuple[AssetOwner, ...]) -> tuple[AssetFacts, ...]:
    facts = []
    for (owner, role, asset, _, _), expected in zip(_needs(plan), found, strict=True):
        if owner not in owners:
            continue
        assert expected.sha256 is not None
        conversion = asset.conversion
        facts.append(
            AssetFacts(
                role=role,
                location=expected.location,
                sha256=expected.sha256,
                size_bytes=expected.size_bytes or 0,
                converter=conversion.name if conversion else None,
                converter_digest=converter(conversion.name).digest() if conversion else None,
            )
        )
    return tuple(facts)
