"""Claims about tracing: off, it costs nothing against a loop that never heard of it; at level `model`, hardly any."""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness import Block, Claim, run
from inference import SIDE, slow_model
from mlmodelscope.core.sample import Sample
from mlmodelscope.measure.loops import PipelineQuery, pipeline_loop, traced_loop
from mlmodelscope.predictors import onnxruntime

QUERIES = 13


class Images:
    """A data set of prepared tensors."""

    def __init__(self, count: int) -> None:
        self._images = [np.random.default_rng(i).random((3, SIDE, SIDE), np.float32) for i in range(count)]

    def __len__(self) -> int:
        return len(self._images)

    def ids(self) -> list[str]:
        return [str(position) for position in range(len(self))]

    def get(self, position: int) -> Sample:
        return Sample(str(position), self._images[position], None)


class Straight:
    """A pipeline whose steps do nothing, so that only the model and the loop are left."""

    def decode(self, data: Any) -> Any:
        return data

    def transform(self, decoded: Any) -> list[Any]:
        return [decoded]

    def batch(self, samples: list[list[Any]]) -> list[Any]:
        return [np.stack([arrays[0] for arrays in samples])]

    def finish(self, outputs: list[Any], count: int) -> list[Any]:
        return list(outputs[0][:count])


def period(starts: Sequence[int]) -> float:
    """Nanoseconds from the start of one query to the start of the next: the loop's own work is inside."""
    return statistics.median([later - earlier for earlier, later in itertools.pairwise(starts)])


def order(images: Images) -> itertools.cycle:
    return itertools.cycle([[position] for position in range(len(images))])


def untraced(query: PipelineQuery, images: Images) -> Block:
    progress = memoryview(array("q", [0]))

    def block() -> float:
        stamps = pipeline_loop(query, images, order(images), 0, QUERIES, time.monotonic_ns, progress)
        return period(stamps[0::5])

    return block


def traced(query: PipelineQuery, images: Images) -> Block:
    progress = memoryview(array("q", [0]))

    def block() -> float:
        stamps, _ = traced_loop(query, images, order(images), QUERIES, time.monotonic_ns, progress)
        return period(stamps[1::6])

    return block


def bare(predict: Any, images: Images) -> Block:
    """The same work and the same five time stamps, written down by hand."""
    pipeline = Straight()

    def block() -> float:
        clock, rows = time.monotonic_ns, []
        positions = order(images)
        for _ in range(QUERIES):
            samples = [images.get(position) for position in next(positions)]
            start = clock()
            decoded = [pipeline.decode(sample.data) for sample in samples]
            after_decode = clock()
            tensors = pipeline.batch([pipeline.transform(item) for item in decoded])
            after_transform = clock()
            outputs = predict(tensors)
            after_predict = clock()
            pipeline.finish(outputs, len(samples))
            rows.append((start, after_decode, after_transform, after_predict, clock()))
        return period([row[0] for row in rows])

    return block


def claims() -> list[Claim]:
    path = Path(tempfile.mkdtemp(prefix="mlmodelscope-bench-")) / "slow.onnx"
    slow_model(path)
    predictor = onnxruntime.Predictor()
    predictor.load({"graph_path": str(path), "inputs": [], "outputs": [], "threads": 2, "options": {}})
    images = Images(8)
    query = PipelineQuery(Straight(), predictor.predict, time.monotonic_ns)
    return [
        Claim("tracing off / loop without trace code", 1.01, untraced(query, images), bare(predictor.predict, images)),
        Claim("trace level model / tracing off", 1.02, traced(query, images), untraced(query, images)),
    ]


if __name__ == "__main__":
    sys.exit(run(claims()))
