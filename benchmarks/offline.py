"""Claims about the offline scenario: two threads prepare JPEG photos against one thread, inference left out."""

from __future__ import annotations

import os
import sys
import time
from array import array

from harness import Block, Claim, Skipped, run
from mlmodelscope.core.manifest import ModelInput
from mlmodelscope.core.sample import Sample
from mlmodelscope.core.steps import Step
from mlmodelscope.measure.offline import OfflineQuery
from mlmodelscope.process.input import InputPipeline, input_pipeline
from steps import LISTING2, RESNET50, photo

# enough that the start and the end, when a thread has nothing to do, weigh little, as in a real data set
SAMPLES = 384
BATCH = 8
# pre-processing throughput on two cores is at least 1.8 times that on one
LIMIT = 1 / 1.8


class Photos:
    """The same photo as often as asked for: the work of every sample is equal."""

    def __init__(self) -> None:
        self._sample = Sample("photo", photo())

    def __len__(self) -> int:
        return SAMPLES

    def get(self, index: int) -> Sample:
        return self._sample


class Inputs:
    """The input half of a pipeline; the batch is handed on as it is, and no answer is made."""

    def __init__(self, pipeline: InputPipeline) -> None:
        self.decode = pipeline.decode
        self.transform = pipeline.transform

    def batch(self, samples: list) -> list:
        return samples

    def finish(self, outputs: list, count: int) -> list:
        return [None] * count


def preparation(steps: tuple[Step, ...], threads: int) -> Block:
    """Seconds to prepare one photo, by the query that a real run uses."""
    pipelines = [Inputs(input_pipeline(ModelInput(type="image", steps=steps))) for _ in range(threads)]
    query = OfflineQuery(pipelines[0], pipelines, lambda inputs: inputs, time.perf_counter_ns)
    dataset, progress = Photos(), memoryview(array("q", [0]))

    def block() -> float:
        times = query(dataset, BATCH, progress)
        return (times.end_ns - times.start_ns) / SAMPLES / 1e9

    return block


def claims() -> list[Claim | Skipped]:
    names = {"offline resnet50 2 threads / 1": RESNET50, "offline listing2 2 threads / 1": LISTING2}
    if len(os.sched_getaffinity(0)) < 2:
        return [Skipped(name, "this machine has one processor") for name in names]
    return [Claim(name, LIMIT, preparation(steps, 2), preparation(steps, 1)) for name, steps in names.items()]


if __name__ == "__main__":
    sys.exit(run(claims()))
