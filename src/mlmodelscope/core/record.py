"""The record of one evaluation: everything that decided the result, and the result.

A failed evaluation is a record too: `failure` says at which stage and why, and all that was known by then is kept.
Arrays (latencies, predictions, traces) are artifacts named by their SHA-256; the record holds their index.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from mlmodelscope.core.asset import FetchedAsset
from mlmodelscope.core.estimate import Estimate
from mlmodelscope.core.request import Environment, EvaluationRequest, Limits, PinnedManifest, Scenario
from mlmodelscope.core.span import Clock, TraceLevel
from mlmodelscope.core.system import Noise, SystemFacts
from mlmodelscope.core.value import Frozen

__all__ = [
    "RECORD_FORMAT",
    "STAGES",
    "Accuracy",
    "Artifact",
    "AssetFacts",
    "AssetRole",
    "DatasetFacts",
    "EffectiveExecution",
    "Failure",
    "LaunchFacts",
    "ModelFacts",
    "Performance",
    "Record",
    "Software",
    "Stage",
    "StepFacts",
    "TraceFacts",
]

RECORD_FORMAT = 1

AssetRole = Literal["graph", "weights", "labels", "data"]
Stage = Literal[
    "resolve", "provision", "start", "load", "prepare", "warmup", "measure", "trace", "accuracy", "unload", "store",
]  # fmt: skip
STAGES: tuple[Stage, ...] = (
    "resolve", "provision", "start", "load", "prepare", "warmup", "measure", "trace", "accuracy", "unload", "store",
)  # fmt: skip


class Artifact(Frozen):
    """A file in the store, addressed by content."""

    name: str
    sha256: str
    size_bytes: int
    media_type: str


class AssetFacts(Frozen):
    """A file that decided the result, by content. `sha256` is of the original; `converted_sha256` of what was run."""

    role: AssetRole
    location: str
    sha256: str
    size_bytes: int
    converted_sha256: str | None = None
    converter: str | None = None
    converter_digest: str | None = None

    @classmethod
    def of(cls, role: AssetRole, fetched: FetchedAsset) -> AssetFacts:
        return cls(role=role, **fetched.model_dump(exclude={"path", "original_sha256"}))


class StepFacts(Frozen):
    """One step or Python function of the pipeline, as it ran: parameters written out, a function by its digest."""

    name: str
    digest: str
    parameters: dict[str, Any] = Field(default_factory=dict)


class ModelFacts(Frozen):
    """The model that ran. `weights_digest` is of the original published weights, before any conversion."""

    name: str
    version: str
    task: str
    license: str
    manifest: PinnedManifest
    steps: tuple[StepFacts, ...]
    weights_digest: str | None = None
    assets: tuple[AssetFacts, ...] = ()


class DatasetFacts(Frozen):
    """The samples that ran: which set, a digest over their ids in order, and those prepared for `--timed inference`."""

    name: str
    version: str
    split: str
    manifest: PinnedManifest | None
    sample_count: int
    sample_ids_digest: str
    performance_set: tuple[str, ...] = ()
    assets: tuple[AssetFacts, ...] = ()


class Software(Frozen):
    """The software that ran. `packages` is the full list of the framework's interpreter, name to version.

    `pipeline_packages` is that of the interpreter that ran the steps, where it is another one.
    """

    mlmodelscope: str
    framework: str
    framework_version: str
    distribution: str
    python: str
    implementation: str
    environment: Environment
    packages: dict[str, str]
    variables: dict[str, str]
    libraries: dict[str, str] = Field(default_factory=dict)
    pipeline_packages: dict[str, str] = Field(default_factory=dict)


class EffectiveExecution(Frozen):
    """What was really used, as the framework said after loading; not what was asked for."""

    threads: int
    batch_size: int
    provider: str
    optimization: str
    precision: str
    device: str = "cpu"
    library: str = "unknown"
    inputs: tuple[dict[str, Any], ...] = ()
    outputs: tuple[dict[str, Any], ...] = ()


class LaunchFacts(Frozen):
    """One worker process: its own costs and its queries. `started_at` is the wall-clock anchor of `anchor_ns`.

    `first_inference_ns` and `duration_ns` are of `clock`; starting and loading are always measured.
    """

    index: int
    started_at: str
    anchor_ns: int
    start_ns: int
    load_ns: int
    first_inference_ns: int | None
    queries: int
    samples: int
    duration_ns: int
    peak_memory_bytes: int | None
    loaded_memory_bytes: int | None
    noise: Noise
    clock: Clock = "monotonic"


class Performance(Frozen):
    """Numbers over all launches. Latencies in nanoseconds per query of the timed region, throughput in samples/s.

    `parts` splits a pipeline query; `percentiles` holds only what the sample supports, `refused` names the others with
    the reason. `memory_bytes` is the peak resident memory of the worker.
    """

    clock: Clock = "monotonic"
    latency_median_ns: Estimate
    latency_trimmed_mean_ns: Estimate
    latency_mean_ns: Estimate
    latency_min_ns: float
    latency_max_ns: float
    percentiles_ns: dict[str, Estimate]
    refused: dict[str, str] = Field(default_factory=dict)
    parts_ns: dict[str, Estimate] = Field(default_factory=dict)
    throughput: Estimate
    load_ns: Estimate
    first_inference_ns: Estimate | None
    memory_bytes: Estimate | None
    energy_joules: Estimate | None = None
    cost: Estimate | None = None


class Accuracy(Frozen):
    """Right answers over exactly the samples that were run and have a label."""

    samples: int
    labelled: int
    top1: Estimate | None
    top5: Estimate | None
    metrics: dict[str, Estimate] = Field(default_factory=dict)


class TraceFacts(Frozen):
    """Where the spans are, how deep they go, and whether some were left out.

    `launch` is the extra worker launch they come from, after the measured ones; `queries` how many it traced at each
    level; `clock` that of the queries.
    """

    level: TraceLevel
    spans: int
    is_truncated: bool
    artifact: str
    clock: Clock = "monotonic"
    queries: int = 0
    launch: LaunchFacts | None = None


class Failure(Frozen):
    """Why there is no result. `launch` and `sample` where they are known."""

    stage: Stage
    code: str
    message: str
    hint: str | None = None
    fields: dict[str, Any] = Field(default_factory=dict)
    launch: int | None = None
    log_tail: str = ""


class Record(Frozen):
    """One evaluation, succeeded or failed. Ids sort by time; times are UTC, ISO 8601."""

    format: int = RECORD_FORMAT
    id: str
    status: Literal["succeeded", "failed"]
    created_at: str
    finished_at: str
    request: EvaluationRequest
    model: ModelFacts
    dataset: DatasetFacts | None
    software: Software | None
    system: SystemFacts | None
    scenario: Scenario
    limits: Limits
    seed: int
    execution: EffectiveExecution | None = None
    launches: tuple[LaunchFacts, ...] = ()
    performance: Performance | None = None
    accuracy: Accuracy | None = None
    trace: TraceFacts | None = None
    artifacts: tuple[Artifact, ...] = ()
    failure: Failure | None = None
    origin: Literal["local", "imported", "remote"] = "local"
    is_trusted: bool = True
    warnings: tuple[str, ...] = ()

    def artifact(self, name: str) -> Artifact | None:
        return next((item for item in self.artifacts if item.name == name), None)
