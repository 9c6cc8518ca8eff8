"""Requests and plans: what a user asks for, and what that means here with everything pinned."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from mlmodelscope.core.manifest import DatasetManifest, ModelManifest
from mlmodelscope.core.span import TraceLevel
from mlmodelscope.core.value import Frozen

__all__ = [
    "Batched",
    "Environment",
    "EvaluationPlan",
    "EvaluationRequest",
    "Limits",
    "Measure",
    "PinnedManifest",
    "ResolvedFramework",
    "Scenario",
    "SingleStream",
    "Timed",
]

Timed = Literal["pipeline", "inference"]
Measure = Literal["performance", "accuracy", "both"]

SECOND_NS = 1_000_000_000


class _Load(Frozen):
    """What every scenario has. Measured time and count are minima, both must be met, and are split over launches."""

    timed: Timed = "pipeline"
    min_duration_ns: NonNegativeInt = 10 * SECOND_NS
    min_queries: PositiveInt = 64
    warmup_queries: NonNegativeInt = 3
    launches: PositiveInt = 5
    performance_set: PositiveInt = 64


class SingleStream(_Load):
    """One query of one sample after the other. Final number: the median latency of a query."""

    type: Literal["single_stream"] = "single_stream"

    @property
    def batch_size(self) -> int:
        return 1


class Batched(_Load):
    """One query of `batch_size` samples after the other. Final number: samples per second."""

    type: Literal["batched"] = "batched"
    batch_size: PositiveInt


Scenario = Annotated[SingleStream | Batched, Field(discriminator="type")]


class Limits(Frozen):
    """When the parent ends a worker: seconds per sample and per launch, bytes of resident memory; None: no limit."""

    sample_seconds: PositiveFloat | None = 60.0
    run_seconds: PositiveFloat | None = 3600.0
    memory_bytes: PositiveInt | None = None


class EvaluationRequest(Frozen):
    """What a user asks for, in the user's words.

    `models` are names, `name@constraint` or paths of manifests; `framework` is `name@constraint`; `system` is a list of
    requirements (`memory>=8GB, arch=amd64`). `inputs` are files to run instead of a data set. `samples` limits the data
    set to that many, chosen by `seed`; None: all.
    """

    models: Annotated[tuple[str, ...], Field(min_length=1)]
    framework: str | None = None
    system: str | None = None
    dataset: str | None = None
    inputs: tuple[str, ...] = ()
    samples: PositiveInt | None = None
    scenario: Scenario = SingleStream()
    measure: Measure = "both"
    threads: PositiveInt | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    trace_level: TraceLevel = TraceLevel.NONE
    on: Literal["one", "all"] = "one"
    reuse: bool = False
    seed: int = 0
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _one_source_of_samples(self) -> EvaluationRequest:
        if self.dataset is not None and self.inputs:
            raise ValueError("give either a data set or inputs, not both")
        return self


class PinnedManifest(Frozen):
    """A manifest as it was read: its text, where from, and the digest of its canonical form. `base` resolves
    relative paths."""

    text: str
    origin: str
    base: str
    digest: str


class ResolvedFramework(Frozen):
    """The framework that will run: registered name, installed version, and the class behind the entry point."""

    name: str
    version: str
    distribution: str
    entry_point: str


class Environment(Frozen):
    """Where the framework lives: this interpreter, a venv of its own, or a container."""

    kind: Literal["local", "venv", "container"] = "local"
    digest: str | None = None
    image: str | None = None


class EvaluationPlan(Frozen):
    """One model on one framework under one scenario with everything pinned; `evaluate` carries it out."""

    request: EvaluationRequest
    model: ModelManifest
    model_manifest: PinnedManifest
    dataset: DatasetManifest | None
    dataset_manifest: PinnedManifest | None
    framework: ResolvedFramework
    environment: Environment
    scenario: Scenario
    threads: PositiveInt
    is_trusted: bool = True
