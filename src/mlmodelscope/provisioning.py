"""Turns a plan into the files it needs: every asset fetched, and the facts about them that the record keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import TypeVar

from mlmodelscope.core.asset import Asset, parse_location
from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.needs import dataset_assets, model_assets
from mlmodelscope.core.record import AssetFacts, AssetRole
from mlmodelscope.core.request import EvaluationPlan
from mlmodelscope.provision import Assets, Progress
from mlmodelscope.worker.job import asset_key

__all__ = ["PlannedFiles"]

T = TypeVar("T")


@dataclass
class PlannedFiles:
    """The local path of every asset of a plan, by `asset_key`; what was fetched before a failure stays known."""

    paths: dict[str, str] = field(default_factory=dict)
    model: list[AssetFacts] = field(default_factory=list)
    dataset: list[AssetFacts] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)

    def fetch(
        self, plan: EvaluationPlan, assets: Assets, progress: Progress | None, say: Callable[[str], None]
    ) -> None:
        """Model, then data set, then inputs. `say` is told before each: fetching may take long."""

        def one(role: AssetRole, asset: Asset, base: str, sha256: str | None) -> AssetFacts:
            say("provision")
            # a digest means that a stranger's record says what the asset was: its paths are of another machine
            fetched = assets.fetch(
                asset if sha256 is None else asset.pinned(sha256),
                base=Path(base).expanduser(),
                progress=progress,
                reads_paths=plan.is_trusted or sha256 is None,
            )
            self.paths[asset_key(asset)] = str(fetched.path)
            return AssetFacts.of(role, fetched)

        for (role, asset), sha256 in _with_digests(model_assets(plan.model), plan.model_digests):
            if not (plan.is_trusted or plan.is_model_builtin) and sha256 is None:
                _refuse_outside(asset, plan.model_manifest.base)
            self.model.append(one(role, asset, plan.model_manifest.base, sha256))
        if plan.dataset is not None and plan.dataset_manifest is not None:
            for (role, asset), sha256 in _with_digests(dataset_assets(plan.dataset), plan.dataset_digests):
                if not plan.is_dataset_trusted and sha256 is None:
                    _refuse_outside(asset, plan.dataset_manifest.base)
                self.dataset.append(one(role, asset, plan.dataset_manifest.base, sha256))
        for text, sha256 in _with_digests(plan.request.inputs, plan.dataset_digests):
            # a stored request has lost the name of the home folder
            asset = Asset(locations=(str(Path(text).expanduser()) if text.startswith("~/") else text,))
            self.dataset.append(one("data", asset, str(Path.cwd()), sha256))
            self.inputs.append(self.paths[asset_key(asset)])


def _refuse_outside(asset: Asset, base: str) -> None:
    """A stranger's manifest may name files below its own folder, and no others of this machine."""
    folder = Path(base).expanduser().resolve()
    for text in asset.locations:
        location = parse_location(text)
        if location.kind == "path" and not (folder / location.target).resolve().is_relative_to(folder):
            raise UsageError(
                f"the untrusted manifest names {location.target}, which lies outside its own folder",
                hint="put the file beside the manifest, or trust the manifest",
                location=location.target,
            )


def _with_digests(items: Iterable[T], digests: Sequence[str]) -> Iterator[tuple[T, str | None]]:
    """Each item with its digest; None behind the last that is known."""
    yield from zip(items, chain(digests, repeat(None)), strict=False)
