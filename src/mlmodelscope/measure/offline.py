"""Turns a data set into one timed query of all its samples: threads prepare samples while batches are predicted.

Threads, because decoding, resizing and arithmetic release Python's lock: two cores prepare about 1.9 times as much as
one on 384 photos, and 1.76 times on 96, where the idle start and end weigh more (benchmarks/offline.py). What holds the
lock is opening a file and reading out pixels, some 6 % of the work on a photo. A fork after a framework is loaded may
hang. Every thread has a pipeline of its own, since pipelines and the functions of a manifest are not thread-safe.
"""

from __future__ import annotations

import warnings
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock
from typing import Any

from mlmodelscope.core.errors import FunctionError, InputError, StepError
from mlmodelscope.core.sample import Dataset, Sample
from mlmodelscope.measure.loops import Pipeline, PipelineQuery

__all__ = ["OfflineQuery", "OfflineTimes"]

Sink = Callable[[Sequence[Sample], Sequence[Any]], None]

# a task of several samples costs one hand-over between threads, which matters for samples of a few kilobytes
_MOST_PER_TASK = 16


@dataclass(slots=True)
class OfflineTimes:
    """In nanoseconds. The time of the predicting thread is spent waiting for samples, predicting, making answers, and
    in between; `work` holds decode and transform of each sample in its thread, flat."""

    start_ns: int = 0
    end_ns: int = 0
    wait_ns: int = 0
    predict_ns: int = 0
    postprocess_ns: int = 0
    work: array[int] = field(default_factory=lambda: array("q"))

    def stamps(self) -> list[int]:
        """The start, and the ends of waiting, predicting, post-processing and the rest, laid end to end."""
        waited = self.start_ns + self.wait_ns
        predicted = waited + self.predict_ns
        return [self.start_ns, waited, predicted, predicted + self.postprocess_ns, self.end_ns]


@dataclass(frozen=True, slots=True)
class _Prepared:
    sample: Sample
    tensors: list[Any]
    decode_ns: int
    transform_ns: int


class OfflineQuery:
    """One query of a whole data set; a thread per pipeline of `preparers`, answers in the order of the samples.

    At most two batches, or three samples per thread, are held at a time. The last batch is filled up with copies of its
    last sample, for models of a fixed batch; their rows are dropped. Timed: the first decode to the last answer, with
    the reading of the encoded samples, since the set need not fit into memory. Outside: making threads and pipelines.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        preparers: Sequence[Pipeline],
        predict: Callable[[list[Any]], list[Any]],
        clock: Callable[[], int],
    ) -> None:
        self._pipeline, self._predict, self._clock = pipeline, predict, clock
        self._threads = len(preparers)
        self._idle: SimpleQueue[Pipeline] = SimpleQueue()
        for preparer in preparers:
            self._idle.put(preparer)
        self._reading = Lock()

    def __call__(self, dataset: Dataset, batch_size: int, progress: Any, sink: Sink | None = None) -> OfflineTimes:
        """Runs every sample once. `sink` gets the samples and rows of each batch; `progress` counts the batches."""
        threads = self._threads
        pool = ThreadPoolExecutor(threads, thread_name_prefix="prepare")
        # decoders silence warnings by changing the list of filters, which all threads share: the list that one puts
        # back while another is at work must say the same
        with pool, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            times = OfflineTimes(start_ns=self._clock())
            stock = _Stock(pool, lambda positions: self._prepare(dataset, positions), len(dataset), batch_size, threads)
            try:
                self._run(stock, batch_size, times, progress, sink)
            finally:
                pool.shutdown(cancel_futures=True)
        return times

    def _run(self, stock: _Stock, batch_size: int, times: OfflineTimes, progress: Any, sink: Sink | None) -> None:
        pipeline, clock = self._pipeline, self._clock
        began = times.start_ns
        while ready := stock.take(batch_size):
            waited = clock()
            filled = [item.tensors for item in ready] + [ready[-1].tensors] * (batch_size - len(ready))
            inputs = pipeline.batch(filled)
            before = clock()
            outputs = self._predict(inputs)
            after = clock()
            rows = pipeline.finish(outputs, len(ready))
            times.end_ns = clock()
            times.wait_ns += waited - began
            times.predict_ns += after - before
            times.postprocess_ns += times.end_ns - after
            for item in ready:
                times.work.extend((item.decode_ns, item.transform_ns))
            if sink is not None:
                sink([item.sample for item in ready], rows)
            progress[0] += 1
            began = clock()

    def _prepare(self, dataset: Dataset, positions: range) -> list[_Prepared]:
        clock = self._clock
        pipeline = self._idle.get()
        try:
            found = []
            for position in positions:
                with self._reading:
                    sample = dataset.get(position)
                began = clock()
                try:
                    decoded = pipeline.decode(sample.data)
                    middle = clock()
                    tensors = pipeline.transform(decoded)
                except (InputError, StepError, FunctionError) as error:
                    raise PipelineQuery(pipeline, self._predict, clock).blame(error, [sample]) from error
                found.append(_Prepared(sample, tensors, middle - began, clock() - middle))
            return found
        finally:
            self._idle.put(pipeline)


class _Stock:
    """Prepared samples in order, and the tasks that make the next ones; never more than the bound."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        prepare: Callable[[range], list[_Prepared]],
        total: int,
        batch_size: int,
        threads: int,
    ) -> None:
        self._pool, self._prepare = pool, prepare
        self._per_task = max(1, min(_MOST_PER_TASK, batch_size // (2 * threads)))
        self._bound = batch_size + max(batch_size, 3 * threads)
        self._waiting: Iterator[range] = (
            range(first, min(first + self._per_task, total)) for first in range(0, total, self._per_task)
        )
        self._tasks: deque[Future[list[_Prepared]]] = deque()
        self._ready: deque[_Prepared] = deque()
        self._refill()

    def take(self, count: int) -> list[_Prepared]:
        """The next `count` samples, fewer at the end; the threads are given new work before this returns."""
        while len(self._ready) < count and self._tasks:
            self._ready.extend(self._tasks.popleft().result())
            self._refill()
        taken = [self._ready.popleft() for _ in range(min(count, len(self._ready)))]
        self._refill()
        return taken

    def _refill(self) -> None:
        while len(self._ready) + (len(self._tasks) + 1) * self._per_task <= self._bound:
            positions = next(self._waiting, None)
            if positions is None:
                return
            self._tasks.append(self._pool.submit(self._prepare, positions))
