"""Keyword changes -> complete example records, succeeded and failed, for tests of whatever reads records."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

from mlmodelscope.core.estimate import Estimate, Interval
from mlmodelscope.core.ids import id_time, new_id
from mlmodelscope.core.record import (
    Accuracy,
    Artifact,
    AssetFacts,
    DatasetFacts,
    EffectiveExecution,
    Failure,
    LaunchFacts,
    ModelFacts,
    Performance,
    Record,
    Software,
    StepFacts,
)
from mlmodelscope.core.request import Environment, EvaluationRequest, Limits, PinnedManifest, SingleStream
from mlmodelscope.core.system import Cache, Noise, SystemFacts

__all__ = [
    "example_artifact",
    "example_dataset",
    "example_estimate",
    "example_launch",
    "example_manifest",
    "example_model",
    "example_performance",
    "example_record",
    "example_software",
    "example_system",
    "failed_record",
]

_STEPS = ("decode", "resize", "cast", "normalize", "batch", "topk")
_MANIFEST = """\
name: TinyNet
version: 1.0.0
task: image_classification
license: MIT
framework: {name: onnxruntime, version: ">=1.17 <2"}
inputs:
  - type: image
    layer_name: input
    element_type: float32
    steps:
      - decode: {decoder: pillow, color_layout: RGB, data_layout: HWC, element_type: uint8}
      - resize: {size: [32, 32], method: bilinear}
      - cast: float32
      - normalize: {mean: [127.5, 127.5, 127.5], rescale: 127.5}
outputs:
  - type: probability
    layer_name: output
    steps:
      - topk: {k: 5}
source:
  graph_path: models/tiny.onnx
"""
_PACKAGES = {
    "mlmodelscope": "0.1.0",
    "numpy": "2.1.0",
    "onnxruntime": "1.20.1",
    "packaging": "24.2",
    "pillow": "11.0.0",
    "protobuf": "5.29.0",
}


def example_record(**changes: Any) -> Record:
    """A succeeded evaluation of a small model; `changes` replace fields of `Record`.

    The id is new and the times are its own, so two examples differ as two evaluations of one setup do.
    """
    record_id = str(changes.get("id") or new_id())
    created = id_time(record_id)
    scenario = changes.get("scenario", SingleStream(launches=2))
    values: dict[str, Any] = {
        "id": record_id,
        "status": "succeeded",
        "created_at": created.isoformat(),
        "finished_at": (created + timedelta(seconds=21)).isoformat(),
        "request": EvaluationRequest(models=("TinyNet",), dataset="TinySet", threads=2, scenario=scenario),
        "model": example_model(),
        "dataset": example_dataset(),
        "software": example_software(),
        "system": example_system(),
        "scenario": scenario,
        "limits": Limits(),
        "seed": 0,
        "execution": EffectiveExecution(
            threads=2,
            batch_size=scenario.batch_size,
            provider="CPUExecutionProvider",
            optimization="all",
            precision="float32",
            inputs=({"name": "input", "element_type": "float32", "shape": [1, 32, 32, 3]},),
            outputs=({"name": "output", "element_type": "float32", "shape": [1, 10]},),
        ),
        "launches": (example_launch(0), example_launch(1)),
        "performance": example_performance(),
        "accuracy": Accuracy(
            samples=64, labelled=64, top1=example_estimate(0.75, "samples"), top5=example_estimate(0.9375, "samples")
        ),
    }
    return Record(**(values | changes))


def failed_record(**changes: Any) -> Record:
    """An evaluation whose worker died while loading: no results, everything known by then."""
    failure = Failure(
        stage="load",
        code="worker_crashed",
        message="the worker died of signal 11 (SIGSEGV) while loading the model",
        hint="run it again with --threads 1",
        fields={"signal": 11},
        launch=0,
        log_tail="loading models/tiny.onnx\nSegmentation fault\n",
    )
    values: dict[str, Any] = {
        "status": "failed",
        "failure": failure,
        "execution": None,
        "launches": (),
        "performance": None,
        "accuracy": None,
    }
    return example_record(**(values | changes))


def example_manifest(**changes: Any) -> PinnedManifest:
    values: dict[str, Any] = {
        "text": _MANIFEST,
        "origin": "models/tiny.yml",
        "base": "models",
        "digest": _digest(_MANIFEST),
    }
    return PinnedManifest(**(values | changes))


def example_model(**changes: Any) -> ModelFacts:
    graph = AssetFacts(
        role="graph", location="https://models.example/tiny.onnx", sha256=_digest("weights"), size_bytes=12_345
    )
    values: dict[str, Any] = {
        "name": "TinyNet",
        "version": "1.0.0",
        "task": "image_classification",
        "license": "MIT",
        "manifest": example_manifest(),
        "steps": tuple(
            StepFacts(name=step, digest=_digest(step))
            for step in ("decode", "resize", "cast", "normalize", "batch", "topk")
        ),
        "weights_digest": _digest("weights"),
        "assets": (graph,),
    }
    return ModelFacts(**(values | changes))


def example_dataset(**changes: Any) -> DatasetFacts:
    values: dict[str, Any] = {
        "name": "TinySet",
        "version": "1.0.0",
        "split": "validation",
        "manifest": example_manifest(text="name: TinySet\n", origin="datasets/tiny.yml", base="datasets"),
        "sample_count": 64,
        "sample_ids_digest": _digest("sample ids"),
    }
    return DatasetFacts(**(values | changes))


def example_software(**changes: Any) -> Software:
    values: dict[str, Any] = {
        "mlmodelscope": "0.1.0",
        "framework": "onnxruntime",
        "framework_version": "1.20.1",
        "distribution": "onnxruntime",
        "python": "3.11.7",
        "implementation": "CPython",
        "environment": Environment(),
        "packages": _PACKAGES,
        "variables": {"OMP_NUM_THREADS": "2"},
        "libraries": {"pillow_jpeg": "libjpeg-turbo 3.0.4"},
    }
    return Software(**(values | changes))


def example_system(**changes: Any) -> SystemFacts:
    values: dict[str, Any] = {
        "hostname_digest": _digest("a host")[:16],
        "architecture": "amd64",
        "cpu_model": "Example CPU 2000 @ 2.50GHz",
        "cpu_vendor": "Example",
        "cpu_features": ("avx2", "fma", "sse4_2"),
        "sockets": 1,
        "cores": 4,
        "logical_cpus": 8,
        "usable_cpus": 8,
        "threads_per_core": 2,
        "caches": (Cache(level=1, type="data", size_bytes=32_768, instances=4),),
        "numa_nodes": 1,
        "memory_bytes": 16 * 2**30,
        "kernel": "6.1.0",
        "operating_system": "Debian GNU/Linux 12",
        "libc": "glibc 2.36",
    }
    return SystemFacts(**(values | changes))


def example_launch(index: int = 0, **changes: Any) -> LaunchFacts:
    values: dict[str, Any] = {
        "index": index,
        "started_at": f"2026-03-31T12:00:0{index}+00:00",
        "anchor_ns": 1_000_000_000 * (index + 1),
        "start_ns": 310_000_000,
        "load_ns": 42_000_000,
        "first_inference_ns": 15_000_000,
        "queries": 500,
        "samples": 500,
        "duration_ns": 5_000_000_000,
        "peak_memory_bytes": 150_000_000,
        "loaded_memory_bytes": 120_000_000,
        "noise": Noise(duration_ns=5_000_000_000, load_1m=0.5, steal_share=0.0, involuntary_switches=12),
    }
    return LaunchFacts(**(values | changes))


def example_performance(median_ns: float = 10_000_000.0, **changes: Any) -> Performance:
    """Numbers of a run whose median latency is `median_ns`."""
    values: dict[str, Any] = {
        "latency_median_ns": example_estimate(median_ns),
        "latency_trimmed_mean_ns": example_estimate(median_ns * 1.01),
        "latency_mean_ns": example_estimate(median_ns * 1.02),
        "latency_min_ns": median_ns * 0.9,
        "latency_max_ns": median_ns * 1.5,
        "percentiles_ns": {"90": example_estimate(median_ns * 1.2)},
        "refused": {"99.9": "needs at least 10,000 queries, there are 1,000"},
        "parts_ns": {"preprocess": example_estimate(median_ns * 0.3), "predict": example_estimate(median_ns * 0.7)},
        "throughput": example_estimate(1e9 / median_ns),
        "load_ns": example_estimate(42_000_000.0),
        "first_inference_ns": example_estimate(15_000_000.0),
        "memory_bytes": example_estimate(150_000_000.0),
    }
    return Performance(**(values | changes))


def example_estimate(value: float, basis: Any = "launches") -> Estimate:
    """`value` with an interval of one per cent to each side."""
    return Estimate(value, Interval(value * 0.99, value * 1.01, 0.95, basis), n=1000, launches=2)


def example_artifact(content: bytes = b"latencies", name: str = "latencies.bin") -> Artifact:
    return Artifact(
        name=name,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        media_type="application/octet-stream",
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
