"""Turns a pipeline and a predictor into timed queries: the loop behind `--timed pipeline`, and the accuracy pass."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from mlmodelscope.core.errors import FunctionError, InputError, MLModelScopeError, SampleError, StepError
from mlmodelscope.core.sample import Dataset, Sample

__all__ = ["PIPELINE_PARTS", "Pipeline", "PipelineQuery", "accuracy_pass", "pipeline_loop", "traced_loop"]

PIPELINE_PARTS = ("decode", "transform", "predict", "postprocess")


class Pipeline(Protocol):
    """What the loops need of `process`: a sample in, rows out. See `process.compile_pipeline`."""

    def decode(self, data: Any) -> Any: ...

    def transform(self, decoded: Any) -> list[Any]: ...

    def batch(self, samples: list[list[Any]]) -> list[Any]: ...

    def finish(self, outputs: list[Any], count: int) -> list[Any]: ...


class PipelineQuery:
    """One query, from encoded samples to answer rows, with a time stamp between the parts.

    The same object serves the timed loop, the accuracy pass and `predict`, so all three run the same code.
    """

    def __init__(self, pipeline: Pipeline, predict: Callable[[list[Any]], list[Any]], clock: Callable[[], int]) -> None:
        self._pipeline = pipeline
        self._predict = predict
        self._clock = clock

    def __call__(self, samples: Sequence[Sample]) -> tuple[tuple[int, int, int, int, int], list[Any]]:
        """Five time stamps (start, and the end of each of PIPELINE_PARTS) and one row per sample."""
        pipeline, clock = self._pipeline, self._clock
        start = clock()
        decoded = [pipeline.decode(sample.data) for sample in samples]
        after_decode = clock()
        tensors = pipeline.batch([pipeline.transform(item) for item in decoded])
        after_transform = clock()
        outputs = self._predict(tensors)
        after_predict = clock()
        rows = pipeline.finish(outputs, len(samples))
        return (start, after_decode, after_transform, after_predict, clock()), rows

    def blame(self, error: MLModelScopeError, samples: Sequence[Sample]) -> MLModelScopeError:
        """The error with the id of the sample behind it, found by preparing each alone: the good path pays nothing."""
        culprit = samples[0].id if len(samples) == 1 else None
        for sample in samples:
            try:
                self._pipeline.transform(self._pipeline.decode(sample.data))
            except (InputError, StepError, FunctionError) as again:
                culprit, error = sample.id, again
                break
        if culprit is None:
            return error
        fields = {**error.fields, "sample": culprit}
        kind = SampleError if isinstance(error, InputError) else type(error)
        return kind(f"sample {culprit}: {error.message}", hint=error.hint, **fields)


def pipeline_loop(
    query: PipelineQuery,
    dataset: Dataset,
    order: Iterator[list[int]],
    min_duration_ns: int,
    min_queries: int,
    clock: Callable[[], int],
    progress: Any,
) -> array[int]:
    """Five time stamps per query, flat. `order` gives the positions of each query's samples, without end.

    Timed: decode to answer. Outside: reading the encoded samples from disk, which happens before each query.
    """
    stamps = array("q")
    deadline = clock() + min_duration_ns
    for count, positions in enumerate(order, 1):
        samples = [dataset.get(position) for position in positions]
        try:
            times, _ = query(samples)
        except (InputError, StepError, FunctionError) as error:
            raise query.blame(error, samples) from error
        stamps.extend(times)
        progress[0] = count
        if times[-1] >= deadline and count >= min_queries:
            break
    return stamps


def traced_loop(
    query: PipelineQuery,
    dataset: Dataset,
    order: Iterator[list[int]],
    queries: int,
    clock: Callable[[], int],
    progress: Any,
) -> tuple[array[int], list[list[int]]]:
    """Six time stamps per query, flat, and the positions of each query's samples.

    The stamps are those of `pipeline_loop` with one before them, at which reading the samples began. The rows are there
    before the first query and only filled in while it runs; what they mean is worked out afterwards.
    """
    width = len(PIPELINE_PARTS) + 2
    stamps = array("q", bytes(8 * width * queries))
    chosen: list[list[int]] = [next(order) for _ in range(queries)]
    for count, positions in enumerate(chosen):
        began = clock()
        samples = [dataset.get(position) for position in positions]
        try:
            times, _ = query(samples)
        except (InputError, StepError, FunctionError) as error:
            raise query.blame(error, samples) from error
        place = count * width
        stamps[place : place + width] = array("q", (began, *times))
        progress[0] += 1
    return stamps, chosen


def accuracy_pass(
    query: PipelineQuery, dataset: Dataset, batch_size: int, progress: Any
) -> Iterator[tuple[Sample, Any]]:
    """Every sample once, in order, with its answer row.

    The last query is filled up with copies of its last sample where the batch does not divide the set: the extra rows
    are dropped, so that a model with a fixed batch can still see every sample.
    """
    total = len(dataset)
    for first in range(0, total, batch_size):
        samples = [dataset.get(position) for position in range(first, min(first + batch_size, total))]
        filled = samples + [samples[-1]] * (batch_size - len(samples))
        try:
            _, rows = query(filled)
        except (InputError, StepError, FunctionError) as error:
            raise query.blame(error, samples) from error
        yield from zip(samples, rows, strict=False)
        progress[0] += 1
