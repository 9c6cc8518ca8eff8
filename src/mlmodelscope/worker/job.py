"""The job of one launch: what the parent hands to the worker, as plain JSON with every file already in place."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from pydantic import Field

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.manifest import DatasetManifest, ModelManifest, ModelOutput
from mlmodelscope.core.request import Environment, Measure, Offline, ResolvedFramework, Scenario
from mlmodelscope.core.sample import Dataset
from mlmodelscope.core.span import TraceLevel
from mlmodelscope.core.steps import Argsort, TopK
from mlmodelscope.core.value import Frozen, digest_of

__all__ = ["FrameworkHost", "Job", "asset_key"]


def asset_key(asset: Asset) -> str:
    """The name under which a job lists the local path of an asset."""
    return digest_of(asset)


class FrameworkHost(Frozen):
    """How to reach a framework that does not live in the worker's own interpreter.

    `python` starts it, with `portable` on its path and `variables` set. Where the parent has started it in a container,
    it connects to the socket `listener` (an inherited descriptor), and `shared` is the folder both sides can see.
    """

    python: str
    portable: str
    variables: dict[str, str] = Field(default_factory=dict)
    folders: tuple[str, ...] = ()
    listener: int | None = None
    shared: str | None = None


class Job(Frozen):
    """`files` maps `asset_key` to the verified local path; `inputs` are files to run when there is no data set.

    `layers` are those whose outputs are wanted, instead of anything measured; empty: only the names of all of them.
    """

    index: int
    model: ModelManifest
    dataset: DatasetManifest | None
    inputs: tuple[str, ...]
    samples: int | None
    files: dict[str, str]
    framework: ResolvedFramework
    environment: Environment
    host: FrameworkHost | None = None
    options: dict[str, Any]
    scenario: Scenario
    measure: Measure
    is_first: bool
    threads: int
    seed: int
    run_folder: str
    cache_folder: str
    spawned_ns: int
    trace_level: TraceLevel = TraceLevel.NONE
    trace_queries: int = 10
    trace_id: str = ""
    layers: tuple[str, ...] | None = None

    @property
    def is_traced(self) -> bool:
        """A traced launch measures nothing: it shows where the time goes."""
        return self.trace_level > TraceLevel.NONE

    @property
    def measures_performance(self) -> bool:
        return self.measure != "accuracy" and not self.is_traced and self.layers is None

    @property
    def measures_accuracy(self) -> bool:
        """The accuracy pass runs once, in the first launch, after its measured queries."""
        return self.measure != "performance" and self.is_first and not self.is_traced and self.layers is None

    @property
    def result_names(self) -> tuple[str, ...]:
        """The files of the run folder that the worker writes and the parent reads; the sandbox gives back no others."""
        from mlmodelscope.worker.layers import ARRAYS_FILE, NAMES_FILE
        from mlmodelscope.worker.tracing import TRACE_FILE

        if self.layers is not None:
            return (ARRAYS_FILE if self.layers else NAMES_FILE,)
        work = (f"work-{self.index}.npy",) if isinstance(self.scenario, Offline) else ()
        return (
            *((f"stamps-{self.index}.npy", *work) if self.measures_performance else ()),
            *(("predictions.jsonl",) if self.measures_accuracy else ()),
            *((TRACE_FILE,) if self.is_traced else ()),
        )

    @property
    def min_duration_ns(self) -> int:
        scenario = self.scenario
        return 0 if isinstance(scenario, Offline) else scenario.min_duration_ns // scenario.launches

    @property
    def min_queries(self) -> int:
        scenario = self.scenario
        return 1 if isinstance(scenario, Offline) else -(-scenario.min_queries // scenario.launches)

    def path_of(self, asset: Asset) -> Path:
        return Path(self.files[asset_key(asset)])

    def predictor_model(self) -> dict[str, Any]:
        """The model as `Predictor.load` takes it."""
        source = self.model.source
        return {
            "name": self.model.name,
            "graph_path": str(self.path_of(source.graph)) if source else "",
            "weights_path": str(self.path_of(source.weights)) if source and source.weights else None,
            "inputs": [
                {"layer_name": item.layer_name, "element_type": item.element_type} for item in self.model.inputs
            ],
            "outputs": [{"layer_name": item.layer_name} for item in self.model.outputs],
            "threads": self.threads,
            "options": {**self.model.framework.options, **self.options},
        }

    def read_labels(self) -> dict[int, list[str]]:
        """The labels of each output that has some, by the output's position."""
        from mlmodelscope.process.labels import read_labels

        found = ((position, _labels_of(output)) for position, output in enumerate(self.model.outputs))
        return {position: read_labels(self.path_of(asset)) for position, asset in found if asset is not None}

    def open_dataset(self) -> Dataset:
        from mlmodelscope.datasets.files import from_files
        from mlmodelscope.datasets.open import open_dataset
        from mlmodelscope.datasets.select import select

        if self.dataset is None:
            return from_files([Path(name) for name in self.inputs], [Path(name).name for name in self.inputs])
        whole = open_dataset(self.dataset, self.path_of, Path(self.cache_folder))
        return select(whole, self.samples, self.seed)

    def performance_positions(self, count: int) -> list[int]:
        """The positions of the performance set: `performance_set` samples chosen by the seed, or all."""
        scenario = self.scenario
        wanted = 0 if isinstance(scenario, Offline) else min(scenario.performance_set, count)
        return sorted(random.Random(self.seed).sample(range(count), wanted))


def _labels_of(output: ModelOutput) -> Asset | None:
    """The labels of the output itself, else those that its ranking step names."""
    named = (step.labels for step in output.steps if isinstance(step, Argsort | TopK))
    return output.features or next((asset for asset in named if asset is not None), None)
