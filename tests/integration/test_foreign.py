"""A framework in a process of its own, on real processes: what crosses to it, and every way in which it can end."""

import errno
import inspect
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mlmodelscope.core.errors import EnvironmentMissingError, PredictorError, StorageError, WorkerCrashError
from mlmodelscope.core.predictor import Profiles, Reveals, Simulates
from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.provision.portable import portable_folder
from mlmodelscope.worker import foreign
from mlmodelscope.worker.foreign import open_foreign, shim_command
from mlmodelscope.worker.job import FrameworkHost
from mlmodelscope.worker.protocol import Channel

ECHO = """
import os, signal, sys, time
import numpy as np
{top}
class Predictor(object):
    name, packages, environment, formats = "echo", (), {{}}, ()
    def load(self, model):
        {load}
        layer = {{"name": "x", "shape": None, "element_type": "float32"}}
        named = "framework version provider device library optimization precision".split()
        return dict(dict.fromkeys(named, "x"), threads=1, inputs=[layer], outputs=[layer])
    def predict(self, inputs):
        {predict}
        return inputs
    def unload(self):
        pass
    {more}
"""
MODEL = {"graph_path": "", "threads": 1, "options": {}, "inputs": [], "outputs": []}


@pytest.fixture
def open_echo(tmp_path):
    """Opens a predictor whose parts the test writes; every process is gone when the test is over."""
    opened = []
    portable = tmp_path / "portable"
    shutil.copytree(portable_folder(tmp_path / "home"), portable)

    def open_one(top="", load="pass", predict="pass", more="", python=sys.executable, **variables):
        (portable / "echo.py").write_text(ECHO.format(top=top, load=load, predict=predict, more=more))
        shutil.rmtree(portable / "__pycache__", ignore_errors=True)
        shared = tmp_path / "shared"
        shared.mkdir(exist_ok=True)
        host = FrameworkHost(python=python, portable=str(portable), variables=variables, shared=str(shared))
        opened.append(open_foreign(host, "echo:Predictor"))
        return opened[-1]

    yield open_one
    for predictor in opened:
        predictor.close()
    assert [path for path in (tmp_path / "shared").glob("*") if path.name != "stamps" and path.name[:3] == "in-"] == []


ARRAYS = [
    np.arange(12, dtype=np.float32).reshape(3, 4),
    np.zeros((0, 4), np.float32),
    np.array(7, dtype=np.int64),
    np.arange(24, dtype=">i4").reshape(2, 3, 4),
    np.asfortranarray(np.arange(20, dtype=np.float64).reshape(4, 5)),
    np.array([[True, False]]),
    np.array(["cat", "a longer word"]),
    np.arange(10, dtype=np.float16)[::2],
]


def test_arrays_come_back_as_they_went(open_echo):
    predictor = open_echo()
    predictor.load(MODEL)
    for mine, sent in zip(predictor.predict(ARRAYS), ARRAYS, strict=True):
        assert (mine.dtype, mine.shape) == (sent.dtype, sent.shape)
        np.testing.assert_array_equal(mine, sent)


def test_a_larger_tensor_takes_a_larger_file_and_old_answers_stay(open_echo):
    predictor = open_echo()
    predictor.load(MODEL)
    kept = []
    for size in (10, 100_000, 1_000_000, 50):
        kept.append((size, predictor.predict([np.full((1, size), size, np.float32)])[0]))
    assert all((array == size).all() for size, array in kept)


def test_a_texts_array_of_objects_crosses_as_texts(open_echo):
    predictor = open_echo()
    predictor.load(MODEL)
    assert predictor.predict([np.array(["a", "bc"], dtype=object)])[0].tolist() == ["a", "bc"]


@pytest.mark.parametrize("text", [b"gr\xfcn", "grün"])
def test_texts_and_bytes_cross_as_what_they_are(open_echo, text):
    predictor = open_echo()
    predictor.load(MODEL)
    assert predictor.predict([np.array([text, text[:1]], dtype=object)])[0].tolist() == [text, text[:1]]


@pytest.mark.parametrize("item", [None, 1, "ends in NUL\0"])
def test_objects_that_are_no_texts_are_refused_here(open_echo, item):
    predictor = open_echo()
    predictor.load(MODEL)
    with pytest.raises(PredictorFault) as caught:
        predictor.predict([np.zeros(1), np.array(["text", item], dtype=object)])
    assert caught.value.code == "shape_mismatch"
    assert caught.value.message.startswith("input 1")


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("side", ["here", "there"])
def test_shared_memory_that_is_full_is_named(open_echo, monkeypatch, tmp_path, side):
    there = f"import errno\n{inspect.getsource(full)}os.posix_fallocate = full"
    predictor = open_echo(top=there if side == "there" else "")
    predictor.load(MODEL)
    if side == "here":
        monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StorageError, match="no room") as caught:
        predictor.predict([np.zeros(1_000_000)])
    assert caught.value.fields["path"] == str(tmp_path / "shared")
    assert caught.value.message.startswith(str(tmp_path / "shared"))
    assert "batch size" in caught.value.hint
    assert "--shm-size" in caught.value.hint


def test_what_is_no_array_is_refused_here(open_echo):
    predictor = open_echo()
    predictor.load(MODEL)
    with pytest.raises(PredictorFault) as caught:
        predictor.predict([[1.0, 2.0]])
    assert caught.value.code == "shape_mismatch"


def test_abilities_are_those_of_the_other_side(open_echo):
    plain = open_echo()
    assert not isinstance(plain, Profiles | Reveals | Simulates)
    able = open_echo(
        more="def layer_names(self): return ['a']\n    def reveal(self, inputs, names): return inputs\n"
        "    def now_ns(self): return 77"
    )
    assert isinstance(able, Reveals)
    assert isinstance(able, Simulates)
    assert not isinstance(able, Profiles)
    able.load(MODEL)
    able.predict([np.zeros(1)])
    assert able.now_ns() == 77
    assert able.layer_names() == ["a"]


def test_a_fault_crosses_whole(open_echo):
    predictor = open_echo(
        top="from mlmodelscope.predictors.port import PredictorFault",
        load="raise PredictorFault('model_format', 'no model', hint='try another', layer='x')",
    )
    with pytest.raises(PredictorFault) as caught:
        predictor.load(MODEL)
    fault = caught.value
    assert (fault.code, fault.message, fault.hint, fault.fields) == (
        "model_format", "no model", "try another", {"layer": "x"},
    )  # fmt: skip


def test_any_other_exception_is_the_frameworks(open_echo):
    predictor = open_echo(predict="raise KeyError('lost')")
    predictor.load(MODEL)
    with pytest.raises(PredictorError, match="KeyError: 'lost'"):
        predictor.predict([np.zeros(1)])


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL"),
        ("os.abort()", "killed by SIGABRT"),
        ("os._exit(3)", "left with exit code 3"),
    ],
)
def test_a_process_that_dies_is_told_by_how_and_where(open_echo, deed, words):
    with pytest.raises(WorkerCrashError, match=f"{words} while it started"):
        open_echo(top=deed)
    for part in ("load", "predict"):
        predictor = open_echo(**{part: deed})
        if part == "predict":
            predictor.load(MODEL)
        call = {
            "load": lambda one=predictor: one.load(MODEL),
            "predict": lambda one=predictor: one.predict([np.zeros(1)]),
        }
        with pytest.raises(WorkerCrashError, match=f"{words} in {part}"):
            call[part]()


def test_garbage_on_the_socket_breaks_the_protocol(open_echo):
    top = """
def shout():
    for name in os.listdir('/proc/self/fd'):
        try:
            if 'socket' in os.readlink('/proc/self/fd/' + name):
                os.write(int(name), b'garbage!' * 9)
        except OSError:
            pass
"""
    predictor = open_echo(top=top, predict="shout()")
    predictor.load(MODEL)
    with pytest.raises(WorkerCrashError, match="broke the protocol"):
        predictor.predict([np.zeros(1)])


def test_chatter_on_standard_output_breaks_nothing(open_echo):
    predictor = open_echo(predict="print('x' * 100000); sys.stderr.write('noise' * 1000)")
    predictor.load(MODEL)
    assert predictor.predict([np.ones(3)])[0].tolist() == [1, 1, 1]


def test_closing_ends_a_process_that_hangs(open_echo, tmp_path):
    predictor = open_echo(more="def __del__(self): time.sleep(600)")
    predictor.load(MODEL)
    child = predictor._process._child
    began = time.monotonic()
    predictor.close()
    assert child.poll() is not None
    assert time.monotonic() - began < 60


def test_the_timed_loop_runs_over_there(open_echo, tmp_path):
    progress = tmp_path / "progress"
    progress.write_bytes(bytes(8))
    predictor = open_echo(predict="time.sleep(0.001)")
    predictor.load(MODEL)
    queries = [[np.zeros(4)], [np.ones(4)]]
    for _ in range(2):
        begins, ends = predictor.inference_loop(queries, 0, 7, progress)
        assert len(begins) == len(ends) == 7
        assert all(end - begin >= 1_000_000 for begin, end in zip(begins, ends, strict=True))
        assert begins[0] <= time.monotonic_ns()
    assert int.from_bytes(progress.read_bytes(), sys.byteorder) == 7


def test_nothing_of_the_users_decides_what_is_imported(open_echo, tmp_path, monkeypatch):
    (tmp_path / "stray").mkdir()
    (tmp_path / "stray" / "numpy.py").write_text("raise SystemExit('the wrong numpy')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stray"))
    monkeypatch.chdir(tmp_path / "stray")
    predictor = open_echo()
    predictor.load(MODEL)
    assert predictor.predict([np.ones(2)])[0].tolist() == [1, 1]


def test_a_python_that_is_gone(open_echo, tmp_path):
    with pytest.raises(EnvironmentMissingError, match="cannot be started"):
        open_echo(python=str(tmp_path / "absent" / "python"))


def test_its_software_is_its_own(open_echo):
    software = open_echo(MLMODELSCOPE_TEST="here").software()
    assert software["python"] == ".".join(map(str, sys.version_info[:3]))
    assert "numpy" in software["packages"]
    assert software["variables"]["MLMODELSCOPE_TEST"] == "here"


def test_the_portable_layer_is_made_once_and_holds_files_of_ours_only(tmp_path):
    first = portable_folder(tmp_path)
    made = {path: path.stat().st_mtime_ns for path in first.rglob("*.py")}
    os.utime(first, (0, 0))
    assert portable_folder(tmp_path) == first
    assert first.stat().st_mtime > 0, "a folder that was used looks old"
    assert {path: path.stat().st_mtime_ns for path in first.rglob("*.py")} == made
    assert (first / "mlmodelscope" / "worker" / "shim.py").is_file()
    assert {path.name for path in (tmp_path / "portable").iterdir()} == {first.name}
    assert [path.name for path in first.iterdir()] == ["mlmodelscope"]
    folders = {path.parent for path in made}
    assert {path for path in made if not path.read_bytes()} == {folder / "__init__.py" for folder in folders}


def test_a_release_of_ours_beside_the_framework_is_not_used(tmp_path):
    """As in an image that has one installed, and by variables of its own, which count there."""
    (tmp_path / "installed" / "mlmodelscope").mkdir(parents=True)
    (tmp_path / "installed" / "mlmodelscope" / "__init__.py").write_text("raise SystemExit('the wrong release')")
    ours, theirs = socket.socketpair()
    address = f"fd:{theirs.fileno()}"
    command = shim_command(
        sys.executable, str(portable_folder(tmp_path / "home")), address, str(tmp_path), is_isolated=False
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    with ours, subprocess.Popen(command, pass_fds=(theirs.fileno(),), env=environment):
        theirs.close()
        hello = Channel(ours).receive()
        ours.shutdown(socket.SHUT_RDWR)
    assert hello is not None
    assert hello["type"] == "hello"


def test_it_keeps_to_the_processors_that_it_was_given(tmp_path):
    processor = max(os.sched_getaffinity(0))
    ours, theirs = socket.socketpair()
    address = f"fd:{theirs.fileno()}"
    command = shim_command(
        sys.executable, str(portable_folder(tmp_path / "home")), address, str(tmp_path), cpus=[processor]
    )
    with ours, subprocess.Popen(command, pass_fds=(theirs.fileno(),)) as process:
        theirs.close()
        Channel(ours).receive()
        assert os.sched_getaffinity(process.pid) == {processor}
        ours.shutdown(socket.SHUT_RDWR)


def test_a_profile_is_written_where_it_can_be(open_echo, tmp_path):
    predictor = open_echo(
        more="def start_profile(self, folder): self.folder = folder; open(os.path.join(folder, 'x'), 'w').close()\n"
        "    def stop_profile(self): return [[{'name': self.folder}]]"
    )
    assert isinstance(predictor, Profiles)
    for folder in (str(tmp_path), str(tmp_path / "not-seen-from-there")):
        predictor.start_profile(folder)
        ((layer,),) = predictor.stop_profile()
        written = Path(layer["name"], "x")
        assert written.exists()
        assert (layer["name"] == folder) == (folder == str(tmp_path))
        written.unlink()
    written.parent.rmdir()


def test_a_container_that_never_calls_is_asked_about(monkeypatch, tmp_path):
    monkeypatch.setattr(foreign, "_ANSWER_SECONDS", 0.05)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        host = FrameworkHost(python="", portable="", listener=os.dup(listening.fileno()), shared=str(tmp_path))
        with pytest.raises(WorkerCrashError, match="did not answer") as caught:
            open_foreign(host, "echo:Predictor")
    assert caught.value.fields["in_container"] is True


def test_two_releases_do_not_share_a_portable_layer(tmp_path, monkeypatch):
    import mlmodelscope.provision.portable as portable

    first = portable_folder(tmp_path)
    copy = tmp_path / "source"
    shutil.copytree(Path(portable.__file__).parents[1], copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "worker" / "shim.py").write_text("# another release\n")
    monkeypatch.setattr(portable, "_SOURCE", copy)
    assert portable_folder(tmp_path) != first
    assert first.is_dir()
