"""The job of one launch: what the parent hands to the worker, as plain JSON with every file already in place."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.errors import InputError
from mlmodelscope.core.manifest import DatasetManifest, ModelManifest
from mlmodelscope.core.request import Measure, Scenario
from mlmodelscope.core.sample import Dataset
from mlmodelscope.core.value import Frozen, digest_of

__all__ = ["Job", "asset_key"]


def asset_key(asset: Asset) -> str:
    """The name under which a job lists the local path of an asset."""
    return digest_of(asset)


class Job(Frozen):
    """`files` maps `asset_key` to the verified local path; `inputs` are files to run when there is no data set."""

    index: int
    model: ModelManifest
    dataset: DatasetManifest | None
    inputs: tuple[str, ...]
    samples: int | None
    files: dict[str, str]
    predictor: str
    options: dict[str, Any]
    scenario: Scenario
    measure: Measure
    is_first: bool
    threads: int
    seed: int
    run_folder: str
    cache_folder: str
    spawned_ns: int

    @property
    def measures_performance(self) -> bool:
        return self.measure != "accuracy"

    @property
    def measures_accuracy(self) -> bool:
        """The accuracy pass runs once, in the first launch, after its measured queries."""
        return self.measure != "performance" and self.is_first

    @property
    def min_duration_ns(self) -> int:
        return self.scenario.min_duration_ns // self.scenario.launches

    @property
    def min_queries(self) -> int:
        return -(-self.scenario.min_queries // self.scenario.launches)

    def path_of(self, asset: Asset) -> Path:
        return Path(self.files[asset_key(asset)])

    def predictor_model(self) -> dict[str, Any]:
        """The model as `Predictor.load` takes it."""
        source = self.model.source
        return {
            "graph_path": str(self.path_of(source.graph)) if source else "",
            "weights_path": str(self.path_of(source.weights)) if source and source.weights else None,
            "inputs": [
                {"layer_name": item.layer_name, "element_type": item.element_type} for item in self.model.inputs
            ],
            "outputs": [{"layer_name": item.layer_name} for item in self.model.outputs],
            "threads": self.threads,
            "options": self.options,
        }

    def read_labels(self) -> list[list[str] | None]:
        """The labels of each output, None where it has none."""
        return [self._labels_of(output.features) for output in self.model.outputs]

    def _labels_of(self, asset: Asset | None) -> list[str] | None:
        if asset is None:
            return None
        path = self.path_of(asset)
        try:
            return path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the labels {path.name} cannot be read: {error}") from error

    def open_dataset(self) -> Dataset:
        from mlmodelscope.datasets import from_files, open_dataset, select

        if self.dataset is None:
            return from_files([Path(name) for name in self.inputs])
        whole = open_dataset(self.dataset, self.path_of, Path(self.cache_folder))
        return select(whole, self.samples, self.seed)

    def performance_positions(self, count: int) -> list[int]:
        """The positions of the performance set: `performance_set` samples chosen by the seed, or all."""
        wanted = min(self.scenario.performance_set, count)
        return sorted(random.Random(self.seed).sample(range(count), wanted))
