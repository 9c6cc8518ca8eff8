"""MLflow's side of history.py, run by the interpreter that has MLflow: operations on standard input, seconds out."""

from __future__ import annotations

import itertools
import logging
import os
import sqlite3
import sys
import time
import uuid
from pathlib import Path

os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
PARAMETERS = (
    "model",
    "model_version",
    "framework",
    "framework_version",
    "dataset",
    "scenario",
    "architecture",
    "cpu_model",
)
METRICS = ("latency_median_ns", "throughput", "top1")
FILTER = "params.model = 'Model3' and params.dataset = 'Tiny'"


def main(folder: Path, searches: int) -> None:
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    logging.disable()
    answers, sys.stdout = sys.stdout, sys.stderr
    database, marker = folder / "mlflow.db", folder / "filled"
    if not marker.exists():
        database.unlink(missing_ok=True)
    client = MlflowClient(f"sqlite:///{database}")
    found = client.get_experiment_by_name("bench")
    experiment = found.experiment_id if found else client.create_experiment("bench", artifact_location=folder.as_uri())
    lines = (line.rstrip("\n") for line in sys.stdin)
    print("filled" if marker.exists() else "empty", file=answers, flush=True)
    rows = itertools.takewhile(lambda line: line != "ready", lines)
    if marker.exists():
        next(rows, None)
    else:
        fill(database, experiment, rows)
        marker.touch()

    def search() -> float:
        start = time.perf_counter()
        for _ in range(searches):
            assert len(client.search_runs([experiment], FILTER, max_results=50)) == 50
        return (time.perf_counter() - start) / searches

    others = client.create_experiment(f"stored-{uuid.uuid4()}", artifact_location=folder.as_uri())

    def store() -> float:
        run_id = client.create_run(others).info.run_id
        parameters = [
            Param(name, "a value") for name in (*PARAMETERS, "status", "timed", "batch_size", "threads", "samples")
        ]
        metrics = [Metric(name, 1.0, 0, 0) for name in (*METRICS, "memory_bytes")]
        start = time.perf_counter()
        client.log_batch(run_id, params=parameters)
        client.log_batch(run_id, metrics=metrics)
        return time.perf_counter() - start

    operations = {"search": search, "store": store}
    for line in lines:
        print(operations[line](), file=answers, flush=True)


def fill(database: Path, experiment: str, rows: itertools.takewhile[str]) -> None:
    """Into the tables that MLflow made, as it fills them itself, but all at once."""
    connection = sqlite3.connect(database)
    columns = [row[1] for row in connection.execute("PRAGMA table_info(runs)")]
    insert = f"INSERT INTO runs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    while chunk := list(itertools.islice(rows, 10_000)):
        runs, parameters, metrics = [], [], []
        for line in chunk:
            *values, status, moment, latency, throughput, top1 = line.split("\t")
            key = uuid.uuid4().hex
            run = dict.fromkeys(columns) | {
                "run_uuid": key, "name": key[:8], "source_type": "UNKNOWN", "source_name": "", "entry_point_name": "",
                "user_id": "bench", "status": "FINISHED" if status == "succeeded" else "FAILED", "source_version": "",
                "start_time": int(moment), "end_time": int(moment) + 20_000, "lifecycle_stage": "active",
                "artifact_uri": "", "experiment_id": int(experiment),
            }  # fmt: skip
            runs.append([run[name] for name in columns])
            parameters += [(name, value, key) for name, value in zip(PARAMETERS, values, strict=True)]
            numbers = zip(METRICS, (latency, throughput, top1), strict=True)
            metrics += [(name, float(value), int(moment), 0, 0, key) for name, value in numbers]
        connection.executemany(insert, runs)
        connection.executemany("INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?)", parameters)
        for table in ("metrics", "latest_metrics"):
            connection.executemany(
                f"INSERT INTO {table} (key, value, timestamp, step, is_nan, run_uuid) VALUES (?, ?, ?, ?, ?, ?)",
                metrics,
            )
    connection.commit()
    connection.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
