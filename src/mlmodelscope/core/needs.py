"""A manifest -> the assets that it names, each with its role, in the order in which they are fetched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.manifest import DatasetManifest, ModelManifest
from mlmodelscope.core.record import AssetRole
from mlmodelscope.core.value import Frozen

__all__ = ["dataset_assets", "model_assets"]


def model_assets(model: ModelManifest) -> Iterator[tuple[AssetRole, Asset]]:
    if model.source is not None:
        yield "graph", model.source.graph
        if model.source.weights is not None:
            yield "weights", model.source.weights
    for output in model.outputs:
        yield from (("labels", asset) for asset in _assets_in(output))


def dataset_assets(dataset: DatasetManifest) -> Iterator[tuple[AssetRole, Asset]]:
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
