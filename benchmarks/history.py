"""Claims about the store: searching a million records and adding one, against MLflow on SQLite.

What is generated is kept under `.cache` (made once: a million records in half a minute, MLflow's environment, 100,000
runs of the same kind for it); `make clean` removes it. MLflow runs in an interpreter of its own, asked over a pipe.
"""

from __future__ import annotations

import atexit
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

from harness import Absolute, Claim, Skipped, run, timed

ROOT = Path(__file__).resolve().parents[1] / ".cache"
RECORDS = 1_000_000
MLFLOW_RUNS = 100_000
MLFLOW = ("mlflow-skinny==3.17.2", "sqlalchemy>=2", "alembic>=1.13")
SEARCHES_PER_BLOCK = 5
# the newest number goes up whenever the generated rows change
GENERATION = 2

MODELS = [(f"Model{i}", f"{v}.0.0") for i in range(40) for v in (1, 2)]
FRAMEWORKS = [("onnxruntime", f"1.{minor}.{patch}") for minor in range(10, 25) for patch in (0, 1)]
FRAMEWORKS += [("tflite", f"2.{minor}.0") for minor in range(1, 12)]
SYSTEMS = [
    (("amd64", "arm64")[i % 5 == 0], f"Vendor{i % 3} CPU {i}", gib << 30) for i in range(12) for gib in (8, 16, 64)
]
DATASETS = [("ImageNet", "1.0.0"), ("Tiny", "1.0.0"), ("Coco", "1.0.0")]
OUTCOMES = [("succeeded", None), ("failed", "worker_crashed")]
SCENARIOS = [("single_stream", "pipeline"), ("batched", "pipeline")]
START_MS, SPAN_MS = 1_704_067_200_000, 2 * 365 * 86_400_000
DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def claims() -> list[Claim | Absolute | Skipped]:
    reason = mlflow_missing()
    if reason is not None:
        peers: list[Claim | Absolute | Skipped] = [
            Skipped(name, reason) for name in ("history_vs_mlflow", "store_vs_mlflow")
        ]
    else:
        peers = [
            Claim("history_vs_mlflow", 0.1, ours=search, theirs=lambda: peer().ask("search")),
            Claim("store_vs_mlflow", 1, ours=store_one, theirs=lambda: peer().ask("store")),
        ]
    return [*peers, Absolute("history_ms", 50, measure=slowest_search_ms)]


def search() -> float:
    """Seconds of the first page of 50, by the same two constraints that MLflow gets."""
    from mlmodelscope.core.store import HistoryQuery

    store = million()
    return timed(lambda: store.history(HistoryQuery(model="Model3", dataset="Tiny")), SEARCHES_PER_BLOCK)()


def slowest_search_ms() -> float:
    """Of several pairs of constraints, common and rare, the one that takes longest."""
    from mlmodelscope.core.store import HistoryQuery

    queries = [
        HistoryQuery(model="Model3", dataset="Tiny"),
        HistoryQuery(model="Model3", framework="onnxruntime", framework_version=">=1.17 <2"),
        HistoryQuery(model="Model39", framework="tflite"),
        HistoryQuery(dataset="ImageNet", architecture="arm64"),
        HistoryQuery(framework="tflite", status="failed"),
        HistoryQuery(model="Model0", cpu="vendor1"),
    ]
    store = million()
    return 1000 * max(timed(lambda query=query: store.history(query), 4)() for query in queries)


def store_one() -> float:
    """Seconds of storing one finished record, on the disk when it returns."""
    from mlmodelscope.testing.records import example_record

    store, record = fresh_store(), example_record()
    return timed(lambda: store.add(record))()


@cache
def fresh_store():
    from mlmodelscope.store.sqlite import SqliteStore

    ROOT.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=ROOT, prefix="store-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return SqliteStore(folder)


@cache
def million():
    from mlmodelscope.store.schema import SCHEMA
    from mlmodelscope.store.sqlite import SqliteStore

    folder = ROOT / "bench" / f"history-{RECORDS}-{SCHEMA}-{GENERATION}"
    if not folder.exists():
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        make_cache()
        SqliteStore(unfinished).close()
        with closing(sqlite3.connect(unfinished / "mlmodelscope.db")) as connection:
            fill(connection, RECORDS)
        unfinished.rename(folder)
    return SqliteStore(folder)


def fill(connection: sqlite3.Connection, count: int) -> None:
    """Rows as the store writes them, without the documents, which a search does not read."""
    facets = {
        "models": ("name, version", MODELS),
        "frameworks": ("name, version", FRAMEWORKS),
        "datasets": ("name, version", DATASETS),
        "systems": ("architecture, cpu_model, memory_bytes", SYSTEMS),
        "outcomes": ("status, failure_code", OUTCOMES),
        "scenarios": ("type, timed", SCENARIOS),
    }
    for table, (names, rows) in facets.items():
        marks = ", ".join("?" * (len(rows[0]) + 1))
        numbered = [(number, *row) for number, row in enumerate(rows, start=1)]
        connection.executemany(f"INSERT INTO {table} (id, {names}) VALUES ({marks})", numbered)
    # an index is made ten times faster at the end than row by row
    indexes = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    ).fetchall()
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    columns = (
        "model, framework, dataset, system, outcome, scenario, id, created_at, latency_median_ns, throughput, top1"
    )
    fixed = "64, 1, 2, 100000000"
    connection.executemany(
        f"INSERT INTO records ({columns}, samples, batch_size, threads, memory_bytes) "
        f"VALUES ({', '.join('?' * 11)}, {fixed})",
        generated(count),
    )
    for _, text in indexes:
        connection.execute(text)
    connection.commit()


def generated(count: int) -> Iterator[tuple[object, ...]]:
    """Few values are frequent and many rare, as in life; the newest record last."""
    chance = random.Random(1)
    for number in range(count):
        moment = START_MS + SPAN_MS * number // count
        yield (
            1 + min(int(chance.expovariate(1 / 12)), len(MODELS) - 1),
            1 + min(int(chance.expovariate(1 / 10)), len(FRAMEWORKS) - 1),
            1 + chance.randrange(len(DATASETS)),
            1 + min(int(chance.expovariate(1 / 9)), len(SYSTEMS) - 1),
            1 + (chance.random() < 0.03),
            1 + (chance.random() < 0.3),
            encode(moment << 80 | chance.getrandbits(80)),
            moment,
            chance.random() * 1e7,
            chance.random() * 1e3,
            chance.random(),
        )


def encode(number: int) -> str:
    return "".join(DIGITS[number >> shift & 31] for shift in range(125, -1, -5))


def make_cache() -> None:
    (ROOT / "bench").mkdir(parents=True, exist_ok=True)
    (ROOT / ".gitignore").write_text("*\n")


def mlflow_python() -> Path:
    return ROOT / "bench-venvs" / "-".join(MLFLOW[0].split("==")) / "bin" / "python"


@cache
def mlflow_missing() -> str | None:
    """Why MLflow cannot be compared with here; None once its environment stands."""
    python = mlflow_python()
    ready = python.parents[1] / "ready"
    if ready.exists():
        return None
    make_cache()
    shutil.rmtree(python.parents[1], ignore_errors=True)
    steps = [
        [sys.executable, "-m", "venv", str(python.parents[1])],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *MLFLOW],
    ]
    for step in steps:
        try:
            done = subprocess.run(step, capture_output=True, text=True, timeout=900)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"mlflow cannot be installed: {error}"
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "ERROR" in line] or [f"exit code {done.returncode}"]
            return f"mlflow cannot be installed: {lines[0]}"
    ready.touch()
    return None


class Peer:
    """MLflow in a process of its own: it times each operation itself and reports seconds."""

    def __init__(self) -> None:
        folder = ROOT / "bench" / f"mlflow-{MLFLOW_RUNS}-{GENERATION}"
        folder.mkdir(parents=True, exist_ok=True)
        script = Path(__file__).with_name("mlflow_peer.py")
        command = [str(mlflow_python()), str(script), str(folder), str(SEARCHES_PER_BLOCK)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        atexit.register(self.close)
        for line in generated(MLFLOW_RUNS) if self._read() == "empty" else ():
            model, framework, dataset, system, outcome, scenario, _, moment, latency, throughput, top1 = line
            architecture, cpu_model, _ = SYSTEMS[system - 1]
            names = [
                *MODELS[model - 1],
                *FRAMEWORKS[framework - 1],
                DATASETS[dataset - 1][0],
                SCENARIOS[scenario - 1][0],
            ]
            values = [*names, architecture, cpu_model, OUTCOMES[outcome - 1][0], moment, latency, throughput, top1]
            self._write("\t".join(map(str, values)))
        self._write("ready")

    def ask(self, operation: str) -> float:
        self._write(operation)
        return float(self._read())

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.stdin.close()
            self._process.wait(30)

    def _write(self, line: str) -> None:
        self._process.stdin.write(f"{line}\n")

    def _read(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of MLflow ended with exit code {self._process.wait(30)}")
        return line.strip()


peer: Callable[[], Peer] = cache(Peer)

if __name__ == "__main__":
    sys.exit(run(claims()))
