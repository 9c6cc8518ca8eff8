"""Compiling the packages of an environment: nothing of it outlives it, and nothing incomplete is kept."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from mlmodelscope.core.errors import StorageError
from mlmodelscope.measure.processes import children_of
from mlmodelscope.provision.environments import bytecode

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
PYTHON = SimpleNamespace(path=sys.executable, minor=MINOR, version=f"{MINOR}.0", implementation="CPython", flags="")
COMPILING = """
import sys
from pathlib import Path
from types import SimpleNamespace
from mlmodelscope.provision.environments import bytecode
bytecode._compile(SimpleNamespace(path=sys.executable), [Path(sys.argv[1])], [], [int(sys.argv[2])])
"""


@pytest.fixture
def package(tmp_path):
    """Sources that keep a compiler busy for long."""
    folder = tmp_path / "package"
    folder.mkdir()
    for number in range(50):
        (folder / f"part{number}.py").write_text("\n".join(f"x{n} = [{n}, 'a', {{}}]" for n in range(10_000)))
    return folder


@pytest.fixture
def compiling(package, tmp_path):
    """A process that compiles under a lock, once it has helpers, and the lock as others see it."""
    held = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    process = subprocess.Popen(
        [sys.executable, "-c", COMPILING, str(package), str(held)],
        pass_fds=[held],
        stderr=subprocess.PIPE,
        text=True,
        # a shell that starts this in the background has the signal ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    os.close(held)
    leader = helpers = ()
    while not helpers:
        assert process.poll() is None
        leader = children_of(process.pid)
        helpers = [child for one in leader for child in children_of(one)]
        time.sleep(0.02)
    lock = os.open(tmp_path / "lock", os.O_RDWR)
    yield process, leader[0], lock
    os.close(lock)
    process.kill()
    process.communicate()


def is_free(lock):
    for _ in range(600):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return True
    return False


def test_who_is_interrupted_leaves_nobody_behind(compiling):
    process, _, lock = compiling
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert is_free(lock)


def test_a_compiler_that_is_killed_is_an_error_and_not_a_wait(compiling):
    process, leader, lock = compiling
    os.kill(leader, signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert "was ended by SIGKILL" in said
    assert is_free(lock)


def test_bytecode_that_could_not_be_written_is_an_error(tmp_path):
    sources = ["good.py", "bad.py", "tests/unused.py", "blocked/one.py"]
    for name in sources:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a = (" if name == "bad.py" else "a = 1")
    (tmp_path / "blocked" / "__pycache__").write_text("in the way")
    bytecode._compile(PYTHON, [tmp_path], [], [])
    paths = [Path(name) for name in sources]
    with pytest.raises(StorageError, match=r"blocked/one\.py could not be written"):
        bytecode._check_compiled(tmp_path, paths, PYTHON)
    bytecode._check_compiled(tmp_path, paths[:3], PYTHON)
