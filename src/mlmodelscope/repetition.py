"""A stored record -> the plan that repeats it from what the record holds; a stranger's record chooses nothing here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlmodelscope.core.asset import parse_location
from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.manifest import DatasetManifest, ModelManifest
from mlmodelscope.core.record import Record
from mlmodelscope.core.request import EvaluationPlan, EvaluationRequest, PinnedManifest
from mlmodelscope.facts import read_facts
from mlmodelscope.manifest import load_manifest
from mlmodelscope.resolve.plans import make_plan
from mlmodelscope.zoo.catalogue import Catalogue

__all__ = ["plan_again"]


@dataclass(frozen=True, slots=True)
class _Source:
    """A manifest of the record, where its relative paths start, and whether this home vouches for it."""

    pinned: PinnedManifest
    is_known: bool


def plan_again(record: Record, catalogue: Catalogue, home: Path) -> EvaluationPlan:
    """The record's own manifests and request, on the frameworks of this machine.

    A local record is repeated as it was. On another machine a path means nothing and a name may mean something else,
    so an imported record pins every file by digest. An untrusted one keeps its manifests in the sandbox, whatever the
    request in it says, and must not choose the folder that its relative paths start from.
    """
    model = load_manifest(record.model.manifest.text, origin=record.model.manifest.origin)
    assert isinstance(model, ModelManifest)
    request = record.request.model_copy(update={"is_trusted": record.is_trusted, "environment": _environment(record)})
    model_source = _model_source(record, model, catalogue, home)
    dataset, dataset_source = _dataset_source(record, catalogue, home)
    is_dataset_own = dataset_source.is_known if dataset_source else record.is_trusted
    plan = make_plan(
        request,
        model,
        model_source.pinned,
        dataset,
        dataset_source.pinned if dataset_source else None,
        read_facts(),
        is_dataset_own=is_dataset_own,
        is_model_builtin=model_source.is_known,
    )
    plan = _in_its_environment(plan, record)
    if record.origin == "local":
        return plan
    files = record.dataset.assets if record.dataset and (record.is_trusted or not is_dataset_own) else ()
    if not record.is_trusted:
        _refuse_local_inputs(request, len(files))
    model_digests = () if model_source.is_known else tuple(asset.sha256 for asset in record.model.assets)
    return plan.model_copy(
        update={"model_digests": model_digests, "dataset_digests": tuple(asset.sha256 for asset in files)}
    )


def _environment(record: Record) -> str | None:
    """Where the record's framework lived: chosen again only if nobody chose and it was this interpreter."""
    found = record.software.environment if record.software else None
    if found is None or found.kind == "local":
        return record.request.environment
    return f"container={found.image}" if found.kind == "container" else "venv"


def _in_its_environment(plan: EvaluationPlan, record: Record) -> EvaluationPlan:
    """The very stack or image of the record, where it has one: not what the same words would mean today."""
    found = record.software.environment if record.software else None
    if found is None or found.kind == "local" or found.kind != plan.environment.kind:
        return plan
    return plan.model_copy(
        update={"environment": plan.environment.model_copy(update={"digest": found.digest, "stack": found.stack})}
    )


def _model_source(record: Record, model: ModelManifest, catalogue: Catalogue, home: Path) -> _Source:
    entries = (entry for entry in catalogue.models() if entry.is_builtin)
    builtin = next((entry for entry in entries if entry.manifest.digest == model.digest), None)
    if builtin is not None and record.origin != "local":
        return _Source(builtin.pinned, is_known=True)
    return _Source(_rebased(record.model.manifest, record, home), is_known=builtin is not None)


def _dataset_source(record: Record, catalogue: Catalogue, home: Path) -> tuple[DatasetManifest | None, _Source | None]:
    pinned = record.dataset.manifest if record.dataset else None
    if pinned is None:
        return None, None
    dataset = load_manifest(pinned.text, origin=pinned.origin)
    assert isinstance(dataset, DatasetManifest)
    if record.is_trusted:
        return dataset, _Source(pinned, is_known=True)
    known = next((entry for entry in catalogue.datasets() if entry.manifest.digest == dataset.digest), None)
    if known is not None:
        return dataset, _Source(known.pinned, is_known=True)
    return dataset, _Source(_rebased(pinned, record, home), is_known=False)


def _rebased(pinned: PinnedManifest, record: Record, home: Path) -> PinnedManifest:
    if record.is_trusted or record.origin == "local":
        return pinned
    return pinned.model_copy(update={"base": str(home / "imports" / record.id)})


def _refuse_local_inputs(request: EvaluationRequest, known: int) -> None:
    """The inputs of a stranger's record were files of the stranger's machine: here the same names mean other files.

    The first `known` have digests in the record, and are taken by digest.
    """
    for text in request.inputs[known:]:
        if parse_location(text).kind == "path":
            raise UsageError(
                f"the untrusted record names a file of this machine as its input: {text}",
                hint="evaluate its model on inputs of yours: mlmodelscope evaluate --untrusted MODEL --inputs FILE",
                input=text,
            )
