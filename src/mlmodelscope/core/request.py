"""Requests and plans: what a user asks for, and what that means here with everything pinned."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator

from mlmodelscope.core.manifest import DatasetManifest, ModelManifest
from mlmodelscope.core.span import TraceLevel
from mlmodelscope.core.stack import Stack, StackNeed
from mlmodelscope.core.value import Frozen

__all__ = [
    "Batched",
    "Environment",
    "EvaluationPlan",
    "EvaluationRequest",
    "Limits",
    "Measure",
    "Offline",
    "PinnedManifest",
    "ResolvedFramework",
    "Scenario",
    "SingleStream",
    "Timed",
]

Timed = Literal["pipeline", "inference"]
Measure = Literal["performance", "accuracy", "both"]

SECOND_NS = 1_000_000_000
# a trace shows what a query is made of; ten show that, and a profile of very many would fill the disk
MOST_TRACE_QUERIES = 10_000


class _Load(Frozen):
    """What every stream of queries has. Measured time and count are minima, both must be met, and are split over
    launches."""

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


class Offline(Frozen):
    """One query of all samples per launch, pre-processing included. Final number: samples per second.

    Timed: the first decode to the last answer. `workers` threads prepare samples (None: one per usable processor) while
    batches of `batch_size` are predicted; the answers come in the order of the samples.
    """

    type: Literal["offline"] = "offline"
    timed: Literal["pipeline"] = "pipeline"
    warmup_queries: NonNegativeInt = 3
    launches: PositiveInt = 5
    batch_size: PositiveInt = 1
    workers: PositiveInt | None = None


Scenario = Annotated[SingleStream | Batched | Offline, Field(discriminator="type")]


class Limits(Frozen):
    """When the parent ends a worker: seconds per sample and per launch, bytes of resident memory; None: no limit."""

    sample_seconds: PositiveFloat | None = 60.0
    run_seconds: PositiveFloat | None = 3600.0
    memory_bytes: PositiveInt | None = None


class EvaluationRequest(Frozen):
    """What a user asks for, in the user's words.

    `models` are names, `name@constraint` or paths of manifests; `framework` is `name@constraint`; `system` is a list of
    requirements (`memory>=8GB, arch=amd64`). `environment` is `local`, `venv`, `container` or `container=IMAGE`; None:
    local where the framework is installed beside us in a version that will do, else venv. `inputs` are files to run
    instead of a data set. `samples` limits the data set to that many, chosen by `seed`; None: all. `is_trusted` False:
    the manifests are a stranger's, and the worker runs in the sandbox or not at all.
    """

    models: Annotated[tuple[str, ...], Field(min_length=1)]
    framework: str | None = None
    environment: str | None = None
    system: str | None = None
    dataset: str | None = None
    inputs: tuple[str, ...] = ()
    samples: PositiveInt | None = None
    scenario: Scenario = SingleStream()
    measure: Measure = "both"
    threads: PositiveInt | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    trace_level: TraceLevel = TraceLevel.NONE
    trace_queries: Annotated[int, Field(ge=1, le=MOST_TRACE_QUERIES)] = 10
    on: Literal["one", "all"] = "one"
    reuse: bool = False
    seed: int = 0
    limits: Limits = Limits()
    is_trusted: bool = True

    @field_validator("environment")
    @classmethod
    def _known_environment(cls, text: str | None) -> str | None:
        if text is not None and re.fullmatch(r"local|venv|container(=\S+)?", text) is None:
            raise ValueError(f"it is local, venv, container or container=IMAGE, not {text!r}")
        return text

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
    """The framework that will run: registered name, version, and the class behind the entry point.

    Before the software stack of a `venv` is solved, or an image looked into, `version` is the range that is allowed.
    """

    name: str
    version: str
    distribution: str
    entry_point: str


class Environment(Frozen):
    """Where the framework lives: this interpreter, a venv of its own, or a container; in the sandbox or not.

    `digest` is of the stack, or of the image; `stack` every package with the digest of its file, so that a record alone
    is enough to make the environment again; `need` what the stack was solved for.
    """

    kind: Literal["local", "venv", "container"] = "local"
    digest: str | None = None
    image: str | None = None
    is_sandboxed: bool = False
    need: StackNeed | None = None
    stack: Stack | None = None


class EvaluationPlan(Frozen):
    """One model on one framework under one scenario with everything pinned; `evaluate` carries it out.

    An untrusted manifest may name files below its own folder only. `is_dataset_trusted`: the data set is the user's own
    choice or of the zoo, even where the model is a stranger's; `is_model_builtin`: the model's manifest is of the zoo.
    Where a stranger's record is repeated, `model_digests` and `dataset_digests` are the SHA-256 of their assets (or of
    the inputs) as the record has them.
    """

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
    is_dataset_trusted: bool = True
    is_model_builtin: bool = False
    model_digests: tuple[str, ...] = ()
    dataset_digests: tuple[str, ...] = ()
