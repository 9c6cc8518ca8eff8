"""Manifests and records -> the original files of their assets; whatever cannot be had is told all at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.errors import DownloadError, MLModelScopeError
from mlmodelscope.core.manifest import DatasetManifest, ModelManifest
from mlmodelscope.core.needs import dataset_assets, model_assets
from mlmodelscope.core.record import AssetFacts, Record
from mlmodelscope.core.request import PinnedManifest
from mlmodelscope.manifest import load_manifest
from mlmodelscope.provision import Assets, Progress
from mlmodelscope.provision.bundles import AssetContent

__all__ = ["Wanted", "collect", "wanted_by_manifest", "wanted_by_record"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """An asset, the folder its relative paths start from, and whether those are paths of this machine."""

    asset: Asset
    base: Path
    reads_paths: bool = True


def wanted_by_manifest(manifest: ModelManifest | DatasetManifest, base: str) -> Iterator[Wanted]:
    named = model_assets(manifest) if isinstance(manifest, ModelManifest) else dataset_assets(manifest)
    yield from (Wanted(asset, Path(base).expanduser()) for _, asset in named)


def wanted_by_record(record: Record) -> Iterator[Wanted]:
    """The assets as the record has them: a file that changed since is not the one."""
    is_here = record.origin == "local" and record.is_trusted
    yield from _pinned(record.model.manifest, record.model.assets, is_here)
    if record.dataset is None:
        return
    if record.dataset.manifest is not None:
        yield from _pinned(record.dataset.manifest, record.dataset.assets, is_here)
        return
    for text, facts in zip(record.request.inputs, record.dataset.assets, strict=False):
        asset = Asset(locations=(str(Path(text).expanduser()) if text.startswith("~/") else text,))
        yield Wanted(asset.pinned(facts.sha256), Path.cwd(), is_here)


def collect(wanted: Iterable[Wanted], assets: Assets, progress: Progress | None = None) -> list[AssetContent]:
    """Every asset once, fetched where it is not here. Raises the one failure, or a DownloadError that lists all."""
    found: dict[str, AssetContent] = {}
    failures: list[MLModelScopeError] = []
    for item in wanted:
        try:
            content = assets.content(item.asset, base=item.base, progress=progress, reads_paths=item.reads_paths)
        except MLModelScopeError as error:
            failures.append(error)
        else:
            found[content.sha256] = content
    if len(failures) == 1:
        raise failures[0]
    if failures:
        listed = "".join(f"\n  {error.message}" for error in failures)
        raise DownloadError(f"{len(failures)} assets cannot be had:{listed}", hint=failures[0].hint)
    return list(found.values())


def _pinned(pinned: PinnedManifest, facts: Sequence[AssetFacts], is_here: bool) -> Iterator[Wanted]:
    manifest = load_manifest(pinned.text, origin=pinned.origin)
    assert isinstance(manifest, ModelManifest | DatasetManifest)
    for index, item in enumerate(wanted_by_manifest(manifest, pinned.base)):
        asset = item.asset.pinned(facts[index].sha256) if index < len(facts) else item.asset
        yield Wanted(asset, item.base, is_here)
