"""A full disk, a read-only home and a database from the future: small and read-only file systems of their own."""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from mlmodelscope.store.sqlite import SqliteStore
from mlmodelscope.testing.records import example_record

QUICK = ("--launches", "1", "--duration", "0", "--queries", "2", "--warmup", "1")
KIB = 1024

PROGRAM = Path(__file__).with_name("commands.py")


class Disk:
    """A file system in memory over the lab's home, in a mount namespace that ends with it: nothing stays mounted."""

    def __init__(self, lab: Any, size_kib: int) -> None:
        self._lab = lab
        lab.home.mkdir(exist_ok=True)
        flags = ["-m"] if os.geteuid() == 0 else ["-r", "-m"]
        script = 'mount -t tmpfs -o "size=$1k" tmpfs "$2" && echo mounted && exec "$3" "$4"'
        arguments = [str(size_kib), str(lab.home), sys.executable, str(PROGRAM)]
        self._process = subprocess.Popen(
            ["unshare", *flags, "sh", "-c", script, "sh", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=lab.environment(),
            cwd=lab.root,
        )
        assert self._process.stdout.readline() == "mounted\n"

    def close(self) -> None:
        _, err = self._process.communicate()
        assert (self._process.returncode, err) == (0, "")

    @property
    def folder(self) -> Path:
        """The home as it is inside."""
        return Path(f"/proc/{self._process.pid}/root{self._lab.home}")

    def enter(self, *command: str) -> None:
        """Runs another program inside."""
        flags = ["-m"] if os.geteuid() == 0 else ["-m", "-U", "--preserve-credentials"]
        subprocess.run(["nsenter", "-t", str(self._process.pid), *flags, *command], capture_output=True)

    def freeze(self) -> None:
        self.enter("mount", "-o", "remount,bind,ro", str(self._lab.home))
        assert os.statvfs(self.folder).f_flag & os.ST_RDONLY

    def fill(self, leave_kib: int = 0) -> None:
        """Takes all the room but `leave_kib`."""
        facts = os.statvfs(self.folder)
        room = facts.f_bavail * facts.f_frsize
        (self.folder / "ballast").write_bytes(bytes(max(0, room - leave_kib * KIB)))

    def free(self) -> None:
        (self.folder / "ballast").unlink()

    def run(self, *arguments: str) -> Any:
        """A command line inside; the JSON it prints is read if it was asked for."""
        print(json.dumps(arguments), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, self._process.stderr.read()
        return Done(*json.loads(answer))

    def state(self) -> dict[str, str]:
        """The content of every file."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Place:
    """A lab whose home holds one record, and the command line of a small evaluation. No test changes it."""

    lab: Any
    record: Any
    quiet: list[str]

    def readers(self) -> list[list[str]]:
        id_, root = self.record.id, self.lab.root
        return [
            ["history"],
            ["show", id_],
            ["compare", id_, id_],
            ["report", id_, "-o", str(root / "report.html")],
            ["record", "export", id_, "-o", str(root / "record.mlms")],
            ["storage", "show"],
            ["models", "list"],
            ["assets", "list"],
        ]

    def writers(self) -> list[list[str]]:
        return [
            self.quiet,
            ["reproduce", self.record.id],
            ["predict", self.quiet[1], self.quiet[1]],
            ["models", "add", self.quiet[1]],
            ["datasets", "add", self.quiet[3]],
        ]


@pytest.fixture(scope="module")
def place(make_lab, tmp_path_factory) -> Place:
    lab = make_lab(tmp_path_factory.mktemp("place"))
    quiet = ["evaluate", lab.function("quiet", "pass"), "-d", lab.noise(), *QUICK]
    return Place(lab, lab.evaluate(quiet[1], dataset=quiet[3]), quiet)


@pytest.fixture
def empty_disk(place) -> Iterator[Disk]:
    disk = Disk(place.lab, 1024)
    yield disk
    assert list(disk.folder.glob("runs/*")) == []
    disk.close()
    assert str(place.lab.home) not in Path("/proc/mounts").read_text()
    place.lab.wait_until_all_gone()


@pytest.fixture
def disk(place, empty_disk) -> Disk:
    shutil.copytree(place.lab.home, empty_disk.folder, dirs_exist_ok=True)
    return empty_disk


def ids(done: Done) -> list[str]:
    return [row["id"] for row in done.json["rows"]]


@pytest.mark.needs("mountns")
class TestReadOnlyHome:
    def test_what_is_stored_can_be_read_and_every_writer_says_why_not(self, place, disk):
        disk.freeze()
        before = disk.state()
        for line in place.readers():
            done = disk.run(*line)
            assert done.code == 0, (line, done.err)
        assert ids(disk.run("history", "--json")) == [place.record.id]
        for line in place.writers():
            done = disk.run(*line)
            assert (done.code in (3, 4), done.out) == (True, ""), line
            assert "read-only file system" in done.err or "readonly database" in done.err, line
            assert "hint: " in done.err
            assert "measuring" not in done.err
        assert disk.state() == before

    def test_what_lies_in_a_log_is_not_passed_over(self, place, disk):
        # what a killed process leaves: a log beside the database
        program = """
            import os, signal, sqlite3, sys
            connection = sqlite3.connect(sys.argv[1])
            connection.execute("UPDATE records SET throughput = 0.5")
            connection.commit()
            os.kill(os.getpid(), signal.SIGKILL)
        """
        disk.enter(sys.executable, "-c", dedent(program), str(place.lab.home / "mlmodelscope.db"))
        assert (disk.folder / "mlmodelscope.db-wal").stat().st_size > 0
        disk.freeze()
        done = disk.run("history", "--json")
        assert (done.code, done.json["rows"][0]["throughput"]) == (0, 0.5), done.err

    def test_a_home_that_was_never_used(self, place, empty_disk):
        empty_disk.freeze()
        for line in (["history"], place.quiet):
            done = empty_disk.run(*line)
            assert (done.code, done.out) == (4, "")
            assert "folder that can be written" in done.err


@pytest.mark.needs("mountns")
class TestFullDisk:
    def test_what_is_stored_can_be_read_and_every_writer_says_why_not(self, place, disk):
        disk.fill()
        for line in place.readers():
            done = disk.run(*line)
            assert done.code == 0, (line, done.err)
        assert ids(disk.run("history", "--json")) == [place.record.id]
        for line in place.writers():
            done = disk.run(*line)
            assert (done.code in (3, 4), done.out) == (True, ""), line
            assert "no space left on device" in done.err or "disk is full" in done.err, line
            assert "hint: free some space" in done.err
        disk.free()
        assert disk.run(*place.quiet).code == 0
        assert len(ids(disk.run("history", "--json"))) == 2

    def test_pruning_makes_room(self, place, disk):
        orphan = disk.folder / "artifacts/sha256/00" / ("00" * 32)
        # one artifact in 256 lies in this folder already
        orphan.parent.mkdir(parents=True, exist_ok=True)
        orphan.write_bytes(bytes(400 * KIB))
        os.utime(orphan, (0, 0))
        disk.fill()
        assert disk.run(*place.quiet).code == 4
        assert "1 removed" in disk.run("storage", "prune").err
        done = disk.run(*place.quiet)
        assert done.code == 0, done.err

    def test_wherever_the_room_ends_nothing_that_was_reported_is_lost(self, place, disk):
        stored = [place.record.id]
        for leave_kib in (4, 36, 76, 140):
            disk.fill(leave_kib)
            done = disk.run(*place.quiet, "--json")
            assert done.code in (0, 1, 4), done.err
            if done.code == 4:
                assert "full" in done.err or "space" in done.err
            else:
                stored.append(done.json["id"])
            disk.free()
            assert ids(disk.run("history", "--json")) == stored[::-1]
            assert disk.run("compare", stored[0], stored[-1]).code == 0
        assert len(stored) > 1, "the largest room must be enough"

    def test_a_new_home_whose_database_does_not_fit(self, place, empty_disk):
        for leave_kib in (0, 40, 72):
            empty_disk.fill(leave_kib)
            done = empty_disk.run(*place.quiet)
            assert (done.code, done.out) == (4, "")
            assert "measuring" not in done.err
            assert "hint: " in done.err
            empty_disk.free()
        assert empty_disk.run("history", "--json").json["rows"] == []
        assert empty_disk.run(*place.quiet).code == 0

    def test_a_disk_that_fills_up_while_measuring_is_a_stored_failure(self, place, disk):
        lines = f"""
            import glob
            for folder in glob.glob({str(place.lab.home / "runs/*")!r}):
                try:
                    with open(folder + "/ballast", "ab", buffering=0) as file:
                        while file.write(bytes(4096)):
                            pass
                except OSError:
                    pass
        """
        model = place.lab.function("greedy", dedent(lines))
        done = disk.run("evaluate", model, "-d", place.quiet[3], *QUICK, "--json")
        failure = done.json["failure"]
        assert (done.code, failure["code"]) == (1, "storage_failed"), failure
        assert "hint: free some space" in done.err
        assert ids(disk.run("history", "--json")) == [done.json["id"], place.record.id]


def test_a_database_of_a_newer_version_is_left_alone(lab):
    with closing(SqliteStore(lab.home)) as store:
        store.add(example_record())
    path = lab.home / "mlmodelscope.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    before = path.read_bytes()
    # an evaluation is refused before anything is measured, not behind it
    lines = [["history"], ["evaluate", lab.function("quiet", "pass"), "-d", lab.noise(), *QUICK]]
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        input="".join(f"{json.dumps(line)}\n" for line in lines),
        capture_output=True,
        text=True,
        env=lab.environment(),
    )
    answers = [Done(*json.loads(line)) for line in done.stdout.splitlines()]
    assert [(answer.code, answer.out) for answer in answers] == [(4, ""), (4, "")], done.stderr
    for answer in answers:
        assert "has schema 9999; this version of mlmodelscope knows up to" in answer.err
        assert "hint: upgrade mlmodelscope" in answer.err
        assert "measuring" not in answer.err
    assert path.read_bytes() == before
    assert not path.with_name("mlmodelscope.db-wal").exists()
