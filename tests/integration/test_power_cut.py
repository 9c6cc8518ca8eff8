"""Killed at its writes, one after the other, and opened again: what was reported as stored is there, and is whole."""

import hashlib
import io
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mlmodelscope.evidence import read_evidence
from mlmodelscope.library import Workspace
from mlmodelscope.manifest import load_manifest
from mlmodelscope.provision import Assets

PROGRAM = Path(__file__).with_name("power_cut.py")
# POWER_CUTS=all stops at every single write, which takes minutes
MOST_CUTS = None if os.environ.get("POWER_CUTS") == "all" else 18

pytestmark = pytest.mark.needs("ptrace")


class Power:
    """The program that can be cut off. `lab` holds two models and a data set."""

    def __init__(self, lab: Any) -> None:
        self.lab = lab
        self.models = [lab.function("one", "pass"), lab.function("two", "pass")]
        self._evaluation = [self.models, lab.noise()]
        command = [sys.executable, str(PROGRAM), str(lab.root)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._send({"do": "evaluate", "home": str(lab.home), "arguments": self._evaluation, "is_first": True})
        self.first = [self._process.stdout.readline().split()[0] for _ in self.models]

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0

    def evaluate(self, home: Path, at: int | None = None) -> dict[str, Any]:
        return self._ask("evaluate", home, self._evaluation, at)

    def fetch(self, home: Path, location: str, at: int | None = None) -> dict[str, Any]:
        return self._ask("fetch", home, [location], at)

    def add(self, home: Path, at: int | None = None) -> dict[str, Any]:
        return self._ask("add", home, self.models[:1], at)

    def _ask(self, do: str, home: Path, arguments: list[Any], at: int | None) -> dict[str, Any]:
        self._send({"do": do, "home": str(home), "arguments": arguments, "at": at})
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        assert answer["code"] in (0, -9), answer
        return answer

    def _send(self, request: dict[str, Any]) -> None:
        print(json.dumps(request), file=self._process.stdin, flush=True)


@pytest.fixture(scope="module")
def power(make_lab, tmp_path_factory) -> Iterator[Power]:
    power = Power(make_lab(tmp_path_factory.mktemp("power")))
    yield power
    power.close()


def cuts(calls: list[str]) -> list[int]:
    """Where to cut: everywhere, or at a number of places spread evenly."""
    every = range(1, len(calls) + 1)
    if MOST_CUTS is None or len(calls) <= MOST_CUTS:
        return list(every)
    # most are the pages of the database, one behind the other
    turning = [at for at in every if calls[at - 1] != "pwrite64"]
    pages = [at for at in every if calls[at - 1] == "pwrite64"]
    chosen = {*_spread(turning, MOST_CUTS * 2 // 3), *_spread(pages, MOST_CUTS // 3), every[-1]}
    return sorted(chosen)


def _spread(places: list[int], count: int) -> list[int]:
    return places if len(places) <= count else [places[i * len(places) // count] for i in range(count)]


def new_ids(answer: dict[str, Any]) -> list[str]:
    return [line.split()[0] for line in answer["out"].splitlines() if line.endswith("succeeded")]


def check_history(home: Path, reported: list[str]) -> list[str]:
    """Every record of the home is whole, and those reported are among them."""
    with Workspace(home) as workspace:
        ids = [row.id for row in workspace.history(limit=100).rows]
        assert set(reported) <= set(ids)
        for record_id in ids:
            record = workspace.get(record_id)
            evidence = read_evidence(workspace.store, record)
            assert record.status == "succeeded"
            assert (len(evidence.latencies_ns), len(evidence.predictions)) == (1, 4)
        workspace.storage()
    for file in home.glob("artifacts/sha256/*/*"):
        assert hashlib.sha256(file.read_bytes()).hexdigest() == file.name
    with closing(sqlite3.connect(home / "mlmodelscope.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    return ids


def age(home: Path) -> None:
    """A day later."""
    for path in [*home.glob("runs/*"), *home.glob("artifacts/**/*"), *home.glob("assets/**/*")]:
        os.utime(path, (0, 0))


def check_later_use(power: Power, home: Path, ids: list[str]) -> None:
    """A later evaluation works and sweeps, and what is pruned then is needed by nobody."""
    age(home)
    again = power.evaluate(home)
    assert again["code"] == 0
    assert list(home.glob("runs/*")) == []
    with Workspace(home) as workspace:
        workspace.prune(older_than_seconds=0)
        assert {item.kind for item in workspace.storage()} <= {"database", "artifacts", "prepared"}
    assert sorted(check_history(home, ids)) == sorted([*ids, *new_ids(again)])


@pytest.mark.parametrize("is_new", [True, False], ids=["a new home", "a home with history"])
def test_an_evaluation(power, tmp_path, is_new):
    home, earlier = tmp_path / "home", [] if is_new else power.first

    def prepare() -> None:
        shutil.rmtree(home, ignore_errors=True)
        if not is_new:
            shutil.copytree(power.lab.home, home)

    prepare()
    whole = power.evaluate(home)
    assert sorted(check_history(home, earlier)) == sorted([*earlier, *new_ids(whole)])
    reported = []
    for count, at in enumerate(cuts(whole["calls"])):
        prepare()
        cut = power.evaluate(home, at)
        reported.append(len(new_ids(cut)))
        ids = check_history(home, [*earlier, *new_ids(cut)])
        assert set(earlier) <= set(ids)
        assert len(ids) <= len(earlier) + 2
        if count % 4 == 0:
            check_later_use(power, home, ids)
    # the cuts reach from before the first record to behind the last
    assert {0, 2} <= set(reported)


@pytest.fixture
def served(tmp_path) -> Iterator[tuple[str, bytes]]:
    """The location of a file in an archive on a web server, and its content."""
    content = random.Random(7).randbytes(300_000)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("d/model.bin", content)
    (tmp_path / "web").mkdir()
    (tmp_path / "web/a.zip").write_bytes(packed.getvalue())
    handler: Callable[..., Any] = partial(Silent, directory=str(tmp_path / "web"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/a.zip!d/model.bin", content
        server.shutdown()
        thread.join()


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass

    def handle(self) -> None:
        with suppress(ConnectionError):  # the reader was killed
            super().handle()


def test_a_download_and_its_conversion(power, served, tmp_path):
    location, content = served
    home = tmp_path / "home"
    whole = power.fetch(home, location)
    for at in cuts(whole["calls"]):
        shutil.rmtree(home)
        cut = power.fetch(home, location, at)
        for line in cut["out"].splitlines():
            assert Path(line.split()[0]).read_bytes() == content.upper()
        again = power.fetch(home, location)
        path, sha256 = again["out"].split()
        assert Path(path).read_bytes() == content.upper()
        assert sha256 == hashlib.sha256(content.upper()).hexdigest()
        assert [file.read_bytes() for file in home.glob("assets/sha256/*/*/model.bin")] == [content]
        assert list(Assets(home).cache.entries())


def test_a_manifest_that_is_added(power, tmp_path):
    home = tmp_path / "home"
    whole = power.add(home)
    for at in range(1, len(whole["calls"]) + 1):
        shutil.rmtree(home)
        cut = power.add(home, at)
        found = [load_manifest(file).name for file in home.glob("models/*.yml")]
        assert found in ([], ["one"])
        if found:
            assert [file.read_text() for file in home.glob("models/*.base")] == [str(power.lab.root)]
        if cut["out"]:
            assert found == ["one"]
        assert power.add(home)["out"] == "one\n"
