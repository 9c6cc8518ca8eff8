"""Turns the traced queries of one launch into a file of spans: down to the model, then, if asked, to the layers."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlmodelscope.core.errors import PredictorError
from mlmodelscope.core.predictor import Predictor, Profiles
from mlmodelscope.core.span import Clock, TraceLevel
from mlmodelscope.measure.loops import PipelineQuery, traced_loop
from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.trace.file import encode_trace
from mlmodelscope.trace.table import QUERY_PARTS, SpanTable, add_query

if TYPE_CHECKING:
    from mlmodelscope.core.sample import Dataset
    from mlmodelscope.worker.job import Job

__all__ = ["TRACE_FILE", "Tracer"]

TRACE_FILE = "trace.npz"
_WIDTH = len(QUERY_PARTS) + 1
# the first calls after a profile was switched on pay for that
_PROFILE_WARMUP = 2

Layers = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class _Round:
    """Queries with one deepest level. Each level's times are taken from the round in which it is the deepest."""

    deepest: TraceLevel
    stamps: array[int]
    positions: list[list[int]]
    layers: Sequence[Layers | None] = field(default_factory=tuple)


class Tracer:
    """Runs the queries of a traced launch (`record`), then makes spans of what it noted (`write`)."""

    def __init__(
        self,
        job: Job,
        predictor: Predictor,
        query: PipelineQuery,
        dataset: Dataset,
        clock: Callable[[], int],
        clock_name: Clock,
    ) -> None:
        self._job, self._predictor, self._query, self._dataset = job, predictor, query, dataset
        self._clock, self._clock_name = clock, clock_name
        self._rounds: list[_Round] = []
        self._reason: str | None = None

    def record(self, order: Iterator[list[int]], progress: Any) -> None:
        """One round without layers, and one with them if they were asked for and the predictor can tell them."""
        self._rounds.append(self._round(TraceLevel.MODEL, order, self._job.trace_queries, progress))
        if self._job.trace_level >= TraceLevel.FRAMEWORK and isinstance(self._predictor, Profiles):
            try:
                self._rounds.append(self._profiled_round(self._predictor, order, progress))
            except (OSError, PredictorError, PredictorFault) as error:
                # the rest of the trace is worth keeping
                self._reason = str(error)

    def _profiled_round(self, predictor: Profiles, order: Iterator[list[int]], progress: Any) -> _Round:
        with _profiled(predictor, self._job.run_folder) as calls:
            self._round(TraceLevel.FRAMEWORK, order, _PROFILE_WARMUP, progress)
            deepest = self._round(TraceLevel.FRAMEWORK, order, self._job.trace_queries, progress)
        deepest.layers = calls[_PROFILE_WARMUP:]
        return deepest

    def _round(self, deepest: TraceLevel, order: Iterator[list[int]], queries: int, progress: Any) -> _Round:
        return _Round(deepest, *traced_loop(self._query, self._dataset, order, queries, self._clock, progress))

    def measured(self) -> dict[str, Any]:
        """The facts of this launch: how many queries it ran, and how long they took together."""
        queries = sum(len(item.positions) for item in self._rounds)
        spent = sum(item.stamps[-1] - item.stamps[0] for item in self._rounds)
        return {"queries": queries, "samples": queries * self._job.scenario.batch_size, "duration_ns": spent}

    def write(self, entered: Sequence[tuple[str, int]], started_at: str, anchor_ns: int) -> dict[str, Any]:
        """Writes the spans to the run folder; the answer says what is in the file."""
        job = self._job
        reached = min(job.trace_level, max(item.deepest for item in self._rounds))
        table = SpanTable(TraceLevel(reached))
        self._fill(table, entered)
        content, kept = encode_trace(table, job.trace_id, started_at, anchor_ns)
        (Path(job.run_folder) / TRACE_FILE).write_bytes(content)
        incomplete = sum(layers is None for item in self._rounds for layers in item.layers)
        return {
            "level": reached,
            "spans": kept,
            "is_truncated": kept < len(table) or incomplete > 0,
            "clock": self._clock_name,
            "queries": job.trace_queries,
            "reason": self._reason,
        }

    def _fill(self, table: SpanTable, entered: Sequence[tuple[str, int]]) -> None:
        now = time.monotonic_ns()
        root = table.add("launch", TraceLevel.APPLICATION, "monotonic", self._job.spawned_ns, now)
        ends = [moment for _, moment in entered[1:]] + [now]
        table.add("start", TraceLevel.APPLICATION, "monotonic", self._job.spawned_ns, entered[0][1], root)
        parents = {
            stage: table.add(stage, TraceLevel.APPLICATION, "monotonic", begin, end, root)
            for (stage, begin), end in zip(entered, ends, strict=True)
        }
        ids = self._dataset.ids()
        for item in self._rounds:
            for number, positions in enumerate(item.positions):
                layers = item.layers[number] if item.layers else None
                facts = {
                    "query": number,
                    "deepest_level": item.deepest.name.lower(),
                    "samples": [ids[position] for position in positions],
                }
                stamps = item.stamps[number * _WIDTH : (number + 1) * _WIDTH]
                add_query(table, stamps, self._clock_name, parents["trace"], facts, layers or ())


@contextmanager
def _profiled(predictor: Profiles, folder: str) -> Iterator[list[Layers | None]]:
    """Inside, calls of the predictor are profiled; afterwards the list holds the layers of each call."""
    calls: list[Layers | None] = []
    predictor.start_profile(folder)
    try:
        yield calls
    finally:
        calls += predictor.stop_profile()
