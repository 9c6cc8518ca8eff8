"""What a framework's process must be shown, and what a container is held to."""

import os
from contextlib import nullcontext

import pytest

from mlmodelscope import hosting
from mlmodelscope.core.stack import BuiltEnvironment, Stack


def test_the_sandbox_shows_the_libraries_that_a_framework_is_told_of(tmp_path):
    python = tmp_path / "environment" / "bin" / "python"
    stack = Stack(python="3.6.15", implementation="CPython", platform="linux", packages=())
    host = hosting._Venv(
        built=BuiltEnvironment(digest="", folder=str(tmp_path / "environment"), python=str(python), stack=stack),
        variables={"LD_LIBRARY_PATH": str(tmp_path / "libraries" / "openmpi")},
        portable=tmp_path / "portable",
        keep=nullcontext,
        is_sandboxed=True,
    )
    (tmp_path / "portable").mkdir()
    os.utime(tmp_path / "portable", (0, 0))
    with host.opened(tmp_path, []) as reached:
        assert str(tmp_path / "libraries" / "openmpi") in reached.folders
        assert reached.variables["LD_LIBRARY_PATH"] in reached.folders
    assert (tmp_path / "portable").stat().st_mtime > 0, "a folder that was used looks old"


def test_processors_are_named_only_where_there_are_more(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: 4)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 1})
    assert hosting._allowed_processors() == [1, 3]
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    assert hosting._allowed_processors() == []


class Engine:
    """Notes what it is asked to start; `limits` are those that it can hold."""

    has_gpu = True

    def __init__(self, *limits):
        self.limits = limits

    def can_limit(self, limit):
        return limit in self.limits

    def start(self, image, command, **options):
        self.command, self.options = command, options


def started(engine, tmp_path, **fields):
    values = {"image": "i", "python": "p", "portable": tmp_path, "variables": {}, "memory_bytes": None}
    hosting._Contained(engine=engine, network=False, **{**values, **fields})._start(tmp_path, tmp_path, [])
    return engine


@pytest.fixture
def narrow(monkeypatch):
    monkeypatch.setattr(hosting, "_allowed_processors", lambda: [1, 3])


def test_an_engine_binds_a_container_to_processors(tmp_path, narrow):
    engine = started(Engine("cpuset"), tmp_path)
    assert engine.options["cpus"] == "1,3"
    assert engine.command[-2:] != ["1", "3"]


def test_where_the_engine_cannot_the_process_binds_itself(tmp_path, narrow):
    engine = started(Engine(), tmp_path)
    assert engine.options["cpus"] is None
    assert engine.command[-2:] == ["1", "3"]


def test_all_processors_need_no_binding(tmp_path, monkeypatch):
    monkeypatch.setattr(hosting, "_allowed_processors", list)
    engine = started(Engine("cpuset"), tmp_path)
    assert engine.options["cpus"] is None
    assert engine.command[-1] == str(tmp_path)


def test_a_trusted_container_runs_where_processes_cannot_be_counted(tmp_path):
    assert started(Engine("pids"), tmp_path).options["pids"] == hosting._MOST_TRUSTED_TASKS
    assert started(Engine(), tmp_path).options["pids"] is None


def test_a_strangers_container_is_limited_or_refused_and_has_no_gpu(tmp_path):
    options = started(Engine(), tmp_path, is_trusted=False).options
    assert options["pids"] == hosting.MOST_TASKS
    assert options["gpus"] is False
