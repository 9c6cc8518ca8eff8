"""Claims about reports: the page of twenty evaluations, from the store to the text, in seconds."""

from __future__ import annotations

import atexit
import gzip
import io
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from harness import Absolute, run
from mlmodelscope.core.answer import Classes, ClassScore, Prediction
from mlmodelscope.core.record import Record
from mlmodelscope.core.request import Batched, EvaluationRequest
from mlmodelscope.core.store import Store
from mlmodelscope.library import Workspace
from mlmodelscope.show.report.html import format_html
from mlmodelscope.testing.records import example_launch, example_model, example_performance, example_record

EVALUATIONS = 20
LAUNCHES = 5
QUERIES = 2_000
SAMPLES = 1_000
SECONDS = 5.0


def claims() -> list[Absolute]:
    home = Path(tempfile.mkdtemp(prefix="mlmodelscope-report-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    with Workspace(home) as workspace:
        ids = [_store(workspace.store, number).id for number in range(EVALUATIONS)]

    def page() -> float:
        start = time.perf_counter()
        with Workspace(home) as workspace:
            text = format_html(workspace.report(ids))
        assert f"record-{EVALUATIONS}" in text
        return time.perf_counter() - start

    return [Absolute(f"report_of_{EVALUATIONS} (s)", SECONDS, page)]


def _store(store: Store, number: int) -> Record:
    """A record as an evaluation leaves it: five models at four batch sizes, with latencies and predictions."""
    scenario = Batched(batch_size=2 ** (number % 4), launches=LAUNCHES)
    artifacts = (
        store.put_artifact(_latencies(number), "latencies.npz", "application/x-npz"),
        store.put_artifact(_predictions(number), "predictions.jsonl.gz", "application/gzip"),
    )
    record = example_record(
        model=example_model(name=f"TinyNet-{number // 4}", weights_digest=f"{number // 4:064x}"),
        request=EvaluationRequest(models=("TinyNet",), dataset="TinySet", threads=2, scenario=scenario),
        scenario=scenario,
        launches=tuple(example_launch(index) for index in range(LAUNCHES)),
        performance=example_performance(1e7 * (1 + number % 4)),
        artifacts=artifacts,
    )
    return store.add(record)


def _latencies(seed: int) -> bytes:
    chance = np.random.default_rng(seed)
    tables = {}
    for launch in range(LAUNCHES):
        parts = chance.gamma(20, [[1e5, 5e4, 4e5, 1e4]], (QUERIES, 4)).astype(np.int64)
        tables[f"launch_{launch}"] = np.cumsum(
            np.concatenate([np.zeros((QUERIES, 1), np.int64), parts], axis=1), axis=1
        )
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **tables)
    return buffer.getvalue()


def _predictions(seed: int) -> bytes:
    chance = random.Random(seed)
    lines = []
    for sample in range(SAMPLES):
        found = tuple(
            ClassScore(index=index, label=f"class {index}", score=1 / (place + 2))
            for place, index in enumerate(chance.sample(range(1000), 5))
        )
        label = found[0].index if chance.random() < 0.75 else 1000
        prediction = Prediction(sample=f"sample-{sample}", label=label, answer=Classes(classes=found))
        lines.append(prediction.model_dump_json())
    return gzip.compress("\n".join(lines).encode(), mtime=0)


if __name__ == "__main__":
    sys.exit(run(claims()))
