"""Claims about every framework in its own environment: our predictor in the timed loop against the framework's calls.

One process per framework and network holds both sides (`bare.py`). It is started when the first block is asked for, and
ended when the next one starts: eighteen frameworks at once would take the machine's memory.
"""

from __future__ import annotations

import atexit
import json
import math
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "frameworks"))

from harness import Added, Block, Claim, Skipped, run  # noqa: E402
from mlmodelscope.core.errors import MLModelScopeError  # noqa: E402
from networks import kept_network, linear  # noqa: E402
from stacks import HOME, TESTED, Tested, environment_of, exported, portable, variables_of  # noqa: E402
from table import entry_point, laid, prepare  # noqa: E402

RATIO, MICROSECONDS = 1.02, 5.0
THREADS = 1
SAMPLES = 8
# so many rows keep a tree ensemble busy for five milliseconds and more
ROWS = 20_000
ROWS_OF_FOUR = [np.full((1, 4), place, np.float32) for place in range(SAMPLES)]
_INSIDE = """
import sys
sys.path.insert(0, sys.argv[1])
sys.path.append(sys.argv[2])
import bare
sys.exit(bare.main(sys.argv[3:]))
"""


class Pair:
    """One network in one framework's process, which answers with nanoseconds per query of either side."""

    _running: Pair | None = None

    def __init__(
        self, tested: Tested, files: dict[str, Any], samples: list[NDArray[Any]], bare: str | None = None
    ) -> None:
        self._tested, self._files, self._samples = tested, files, samples
        self._bare = bare or tested.framework
        self._process: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        if Pair._running is not None:
            Pair._running.end()
        self._folder = tempfile.TemporaryDirectory(prefix="mlmodelscope-bench-")
        folder = Path(self._folder.name)
        np.savez(folder / "samples.npz", *self._samples)
        outputs = [] if self._tested.has_network else [{"layer_name": "probability"}]
        model = {**self._files, "inputs": [], "outputs": outputs, "threads": THREADS}
        case = {"bare": self._bare, "entry_point": entry_point(self._tested.framework), "model": model}
        (folder / "case.json").write_text(json.dumps({**case, "samples": str(folder / "samples.npz")}))
        built = environment_of(self._tested.framework, self._tested.version)
        process = subprocess.Popen(
            [built.python, "-I", "-c", _INSIDE, str(portable()), str(HERE), str(folder / "case.json")],
            # NPROC is what XLA's pool of threads goes by
            env={**variables_of(self._tested.framework, built, THREADS), "NPROC": str(THREADS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "log").open("w"),
            text=True,
        )
        self._process, self._log, Pair._running = process, folder / "log", self
        self._answer(process)
        return process

    def _answer(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._tested.id} ended: {self._log.read_text()[-2000:]}")
        return line

    def block(self, side: str, unit_ns: float = 1.0) -> Block:
        def ask() -> float:
            process = self._process or self._start()
            assert process.stdin is not None
            process.stdin.write(f"{side}\n")
            process.stdin.flush()
            return float(self._answer(process)) / unit_ns

        return ask

    def end(self) -> None:
        process, self._process, Pair._running = self._process, None, None
        if process is not None:
            process.communicate(timeout=60)
            self._folder.cleanup()

    def ratio(self, name: str, limit: float = RATIO) -> Claim:
        return Claim(name, limit, self.block("ours"), self.block("theirs"))

    def added(self, name: str) -> Added:
        return Added(name, MICROSECONDS, self.block("ours", 1000), self.block("theirs", 1000))


@cache
def _photos() -> tuple[list[NDArray[np.float32]], Path]:
    return prepare()


def _linear() -> Path:
    return kept_network(linear(), HOME / "networks")


def _of_network(tested: Tested) -> list[Claim | Added]:
    photos, network = _photos()
    files = exported(tested, network)
    large = Pair(tested, files, [laid(photo, files["layout"]) for photo in photos[:SAMPLES]])
    small = Pair(tested, exported(tested, _linear()), ROWS_OF_FOUR)
    name = f"{tested.framework} {tested.version}"
    return [large.ratio(f"{name} loop / bare, ResNet-18"), small.added(f"{name} us added, linear")]


def _of_litert(tested: Tested) -> list[Claim | Added]:
    """Printed without a limit; the C interface cannot resize an open batch."""
    photos, network = _photos()
    files = exported(tested, network, 1)
    large = Pair(tested, files, [laid(photo, files["layout"]) for photo in photos[:SAMPLES]], "litert")
    small = Pair(tested, exported(tested, _linear(), 1), ROWS_OF_FOUR, "litert")
    name = f"{tested.framework} {tested.version} Python call / LiteRT's C API"
    return [large.ratio(f"{name}, ResNet-18", math.inf), small.ratio(f"{name}, linear", math.inf)]


def _of_trees(tested: Tested) -> list[Claim | Added]:
    files = exported(tested, None)
    inputs = np.load(Path(files["graph_path"]).parent / "answers.npz")["inputs"]
    many = np.resize(inputs, (ROWS, inputs.shape[1])).astype(inputs.dtype)
    name = f"{tested.framework} {tested.version}"
    return [
        Pair(tested, files, [many]).ratio(f"{name} loop / bare, trees, {ROWS} rows"),
        Pair(tested, files, [row[np.newaxis] for row in inputs[:SAMPLES]]).added(f"{name} us added, trees, 1 row"),
    ]


def claims() -> list[Claim | Added | Skipped]:
    atexit.register(lambda: Pair._running.end() if Pair._running is not None else None)
    found: list[Claim | Added | Skipped] = []
    for tested in TESTED:
        try:
            found += _of_network(tested) if tested.has_network else _of_trees(tested)
            found += _of_litert(tested) if tested.framework == "tflite" else []
        except (AssertionError, MLModelScopeError, OSError, subprocess.SubprocessError) as error:
            found.append(Skipped(f"{tested.framework} {tested.version}", f"{error}".strip().splitlines()[-1]))
    return found


if __name__ == "__main__":
    sys.exit(run(claims()))
