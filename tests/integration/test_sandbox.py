"""What a stranger's manifest may try, done for real through the public interface: nothing outside is read or changed.

The fixture `lab` checks after each test that no process of its home lives and that no run folder is left. A hostile
function tells what it saw by raising: its message ends in the record.
"""

import ast
import os
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from mlmodelscope.core.errors import UsageError, WorkerCrashError
from mlmodelscope.core.ids import new_id
from mlmodelscope.core.record import Record
from mlmodelscope.core.span import TraceLevel
from mlmodelscope.library import make_request
from mlmodelscope.worker.sandbox import MOST_TASKS, SCRATCH_BYTES

pytestmark = pytest.mark.needs("bwrap")

TELL = """
import os, pathlib, socket, sys, time
def attempt(deed, *arguments):
    try:
        return repr(deed(*arguments))
    except OSError as error:
        return type(error).__name__ + ':' + str(error.errno)
def tell(value):
    raise RuntimeError('<<' + repr(value) + '>>')
"""


def run(lab, source: str, **fields) -> Record:
    model = lab.function("stranger", TELL + source)
    return lab.evaluate(model, dataset=lab.noise(), is_trusted=False, **{"measure": "performance", **fields})


def failure(lab, source: str, **fields):
    record = run(lab, source, **fields)
    assert record.status == "failed"
    assert not record.is_trusted
    return record.failure


def told(lab, source: str, **fields):
    """What the function told before it ended."""
    found = failure(lab, source, **fields)
    assert found.code == "function_failed", found
    return ast.literal_eval(found.message.partition("<<")[2].rpartition(">>")[0])


@pytest.fixture
def elsewhere():
    """A folder of the user's outside of /tmp, which is private in the sandbox anyway."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


# the good case


def test_the_answers_are_those_of_a_trusted_run_and_the_record_says_where_they_come_from(lab):
    model, photos = lab.model(), lab.photos()
    trusted = lab.evaluate(model, dataset=photos)
    sandboxed = lab.evaluate(model, dataset=photos, is_trusted=False)
    assert sandboxed.status == "succeeded", sandboxed.failure
    assert sandboxed.accuracy == trusted.accuracy
    assert (trusted.software.environment.is_sandboxed, trusted.is_trusted) == (False, True)
    assert (sandboxed.software.environment.is_sandboxed, sandboxed.is_trusted) == (True, False)
    assert sandboxed.system == trusted.system
    assert sandboxed.limits.memory_bytes <= sandboxed.system.memory_bytes // 2
    with lab.workspace() as workspace:
        (comparison,) = workspace.compare([trusted.id, sandboxed.id])
    assert comparison.flipped == 0
    assert [group.value for group in comparison.groups] == ["framework"]
    assert "sandboxed" in {difference.fact for difference in comparison.differences}


def test_the_command_line_runs_a_stranger(lab):
    lab.photos()
    answers = lab.run("predict", lab.model(), "photos/0-red/bright.png", "--untrusted", "--json").json
    assert answers[0]["answer"]["classes"][0]["label"] == "red"
    arguments = ("-d", "photos.yml", "--untrusted", "--launches", "1", "--duration", "0", "--queries", "4")
    done = lab.run("evaluate", "colours.yml", *arguments, "--json")
    assert done.code == 0, done.err
    assert done.json["software"]["environment"]["is_sandboxed"] is True


def test_every_scenario_and_trace_comes_back(lab):
    model, photos = lab.model(), lab.photos()
    batched = lab.evaluate(model, dataset=photos, is_trusted=False, scenario={"type": "batched", "batch_size": 2})
    assert batched.status == "succeeded", batched.failure
    inference = lab.evaluate(
        model, dataset=photos, is_trusted=False, scenario={"timed": "inference"}, trace_level=TraceLevel.FRAMEWORK
    )
    assert inference.status == "succeeded", inference.failure
    assert inference.trace is not None, inference.warnings
    request = make_request(
        models=(model,), dataset=photos, is_trusted=False, scenario={"type": "offline", "launches": 1}
    )
    with lab.workspace() as workspace:
        (offline,) = workspace.evaluate(request)
    assert offline.status == "succeeded", offline.failure


# network, files, variables


def test_there_is_no_network(lab):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        server.setblocking(False)
        name = f"\0mlmodelscope-{os.getpid()}"
        abstract.bind(name)
        abstract.listen()
        abstract.setblocking(False)
        port = server.getsockname()[1]
        source = f"""
def dial(family, address):
    with socket.socket(family) as end:
        end.settimeout(5)
        end.connect(address)
tell([attempt(dial, socket.AF_INET, ('127.0.0.1', {port})), attempt(dial, socket.AF_INET, ('192.0.2.1', 80)),
      attempt(dial, socket.AF_UNIX, {name!r}), socket.if_nameindex()])
"""
        inet, outside, unix, interfaces = told(lab, source)
        assert inet.startswith("ConnectionRefusedError")
        assert outside.startswith("OSError")  # the network is unreachable
        assert unix.startswith("ConnectionRefusedError")
        assert [name for _, name in interfaces] == ["lo"]
        for end in (server, abstract):
            with pytest.raises(BlockingIOError):
                end.accept()


def test_files_of_the_user_are_not_there(lab, elsewhere, monkeypatch):
    secrets = [lab.write("user/.ssh/id_ed25519", "SECRET"), elsewhere / "secret.txt", lab.home / "private"]
    for path in secrets:
        path.parent.mkdir(exist_ok=True)
        path.write_text("SECRET")
    monkeypatch.setenv("HOME", str(lab.root / "user"))
    source = f"""
found = [attempt(open, path) for path in {[str(path) for path in secrets]!r}]
history = attempt(os.listdir, {str(lab.home)!r})
tell([found, history, attempt(os.listdir, '/'), attempt(os.listdir, '/home'), attempt(open, '/etc/passwd'),
      os.environ['HOME'] == env['scratch'] == os.getcwd()])
"""
    found, history, root, homes, passwd, is_scratch = told(lab, source)
    assert set(found) == {"FileNotFoundError:2"}
    assert ast.literal_eval(history) == ["runs"]
    assert not {"home", "var", "run", "mnt", "media", "boot"} & set(ast.literal_eval(root))
    assert homes == passwd == "FileNotFoundError:2"
    assert is_scratch


def test_nothing_outside_can_be_written(lab, elsewhere):
    model, photos = lab.model(), lab.photos()
    package = Path(sys.modules["mlmodelscope"].__file__).parent
    kept = [Path(model), lab.root / "colours.onnx", lab.root / "labels.txt", lab.root / "photos/0-red/bright.png"]
    kept += [lab.write("home/assets/mine.bin", "mine"), lab.write("home/cache/mine.npy", "mine"), package / "py.typed"]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in kept}
    new = [lab.root, lab.home, lab.home / "cache", lab.root / "photos", elsewhere, package, Path(sys.prefix)]
    new += [Path("/"), Path("/tmp"), Path("/usr"), Path("/etc"), Path("/dev"), Path("/proc"), Path("/sys")]
    source = f"""
import shutil
for path in {[str(path) for path in kept]!r}:
    attempt(lambda: open(path, 'w').write('pwned'))
    attempt(os.unlink, path)
    attempt(os.chmod, path, 0o777)
for folder in {[str(path) for path in new]!r}:
    attempt(lambda: open(folder + '/pwned-by-a-stranger', 'w').write('pwned'))
    attempt(os.mkdir, folder + '/pwned-by-a-stranger.d')
writable = [m.split()[4] for m in open('/proc/self/mountinfo') if m.split()[5].startswith('rw')]
tell(sorted(point for point in writable if os.access(point, os.W_OK)))
"""
    text = Path(lab.function("vandal", TELL + source)).read_text()
    Path(model).write_text(text)
    before[Path(model)] = (Path(model).read_bytes(), Path(model).stat().st_mtime_ns)
    record = lab.evaluate(model, dataset=photos, is_trusted=False, measure="performance")
    assert record.failure.code == "function_failed", record.failure
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in kept} == before
    assert [path for folder in new for path in folder.glob("pwned-by-a-stranger*")] == []
    writable = ast.literal_eval(record.failure.message.partition("<<")[2].rpartition(">>")[0])
    run_folder = str(lab.home / "runs" / record.id)
    assert {point.replace(run_folder, "RUN") for point in writable} - {"/dev/pts"} <= {
        "/dev/full", "/dev/null", "/dev/random", "/dev/shm", "/dev/tty", "/dev/urandom", "/dev/zero", "/tmp",
        "RUN", "RUN/progress", "RUN/stamps-0.npy",
    }  # fmt: skip


def test_no_variable_of_ours_or_the_users_is_there(lab, monkeypatch):
    monkeypatch.setenv("MY_API_TOKEN", "SECRET")
    monkeypatch.setenv("OMP_SECRET", "SECRET")
    monkeypatch.setenv("OMP_SCHEDULE", "static")
    source = """
tables = [pathlib.Path('/proc', pid, 'environ').read_bytes() for pid in os.listdir('/proc') if pid.isdecimal()]
tell([sorted(os.environ), b'SECRET' in b''.join(tables), b'MLMODELSCOPE' in b''.join(tables), len(tables)])
"""
    names, has_secret, has_ours, processes = told(lab, source)
    assert not has_secret
    assert not has_ours
    assert processes == 3  # bubblewrap's first process, the worker, its guardian
    assert {"HOME", "OMP_NUM_THREADS", "OMP_SCHEDULE", "PATH"} <= set(names)
    assert not {"MY_API_TOKEN", "OMP_SECRET", "MLMODELSCOPE_HOME", "SSH_AUTH_SOCK", "PWD_SECRET"} & set(names)


# processes, memory, time


def test_a_fork_bomb_ends_by_a_limit(lab):
    source = """
for _ in range(2000):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)
time.sleep(600)
"""
    found = failure(lab, source)
    # the kernel refuses the fork where its limit binds, which for root it does not
    assert found.code in ("process_limit", "function_failed")
    if found.code == "process_limit":
        assert found.fields["limit_tasks"] == MOST_TASKS
    assert lab.processes() == []


def test_memory_without_end_meets_its_limit(lab):
    hoard = "kept = []\nwhile True:\n    kept.append(b'x' * 20_000_000)\n    time.sleep(0.02)"
    found = failure(lab, hoard, limits={"memory_bytes": 400_000_000})
    assert (found.code, found.fields["limit_bytes"]) == ("memory_limit", 400_000_000)


def test_memory_of_a_child_that_left_its_session_counts(lab):
    source = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        kept = b'x' * 500_000_000
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""
    assert failure(lab, source, limits={"memory_bytes": 400_000_000}).code == "memory_limit"


def test_an_endless_loop_meets_its_limit(lab):
    found = failure(lab, "while True: pass", limits={"sample_seconds": 0.5})
    assert (found.code, found.fields["limit"]) == ("time_limit", "sample")


def test_a_worker_that_talks_without_end_meets_its_limit(lab):
    source = """
word = b'{"type":"stage","stage":"measure"}'
while True:
    os.write(int(sys.argv[1]), len(word).to_bytes(4, 'big') + word)
"""
    found = failure(lab, source, limits={"run_seconds": 3})
    assert (found.code, found.fields["limit"]) == ("time_limit", "run")


def test_processes_outside_cannot_be_reached(lab):
    source = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def ptrace(pid):
    if libc.ptrace(16, pid, 0, 0):
        raise OSError(ctypes.get_errno(), 'ptrace')
def unshare(flags):
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), 'unshare')
os.kill(-1, 9)  # everybody this process may: inside, that is its guardian
tell([attempt(os.kill, {os.getpid()}, 9), attempt(ptrace, {os.getpid()}), attempt(unshare, 0x10000000),
      attempt(os.setuid, 0), os.getuid(), os.getppid(),
      [line.split()[1] for line in open('/proc/self/status') if line.startswith(('CapEff', 'CapBnd', 'NoNewPrivs'))]])
"""
    kill, ptrace, unshare, setuid, uid, parent, facts = told(lab, source)
    assert kill == ptrace == "ProcessLookupError:3"
    assert unshare != "None"
    assert setuid.startswith("PermissionError") or setuid == "OSError:22"
    assert (uid, parent) == (65534, 1)
    assert facts == ["0" * 16, "0" * 16, "1"]


def test_what_is_left_in_the_background_goes_with_the_worker(lab):
    source = """
if 'left' not in env:
    env['left'] = True
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
"""
    record = run(lab, source)
    assert record.status == "succeeded", record.failure
    assert lab.processes() == []


def test_the_end_of_a_worker_is_told_as_outside(lab):
    crash = failure(lab, "import ctypes\nctypes.string_at(0)")
    assert (crash.code, crash.fields["signal"]) == ("worker_crashed", "SIGSEGV")
    left = failure(lab, "os._exit(7)")
    assert (left.code, left.fields["exit_code"]) == ("worker_crashed", 7)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_parent_ends_the_sandbox_ends(lab, wait_for, number):
    model = lab.function("slow", TELL + "if os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\ntime.sleep(600)")
    process = lab.start("evaluate", model, "-d", lab.noise(), "--untrusted")
    wait_for(lambda: len(lab.processes()) >= 6, "command, two of bubblewrap, worker, guardian and child")
    process.send_signal(number)
    process.communicate(timeout=30)
    lab.wait_until_all_gone()
    for folder in lab.home.glob("runs/*"):
        assert number == signal.SIGKILL
        shutil.rmtree(folder)


# scratch and results


def test_scratch_is_bounded_and_gone_afterwards(lab):
    source = """
def fill(folder):
    block, written = bytes(8 * 1024**2), 0
    for number in range(200):
        try:
            with open(folder + '/' + str(number), 'wb', buffering=0) as file:
                while file.tell() < 64 * 1024**2:
                    written += file.write(block)
        except OSError as error:
            return written, error.errno
import resource
tell([fill(env['scratch']), resource.getrlimit(resource.RLIMIT_FSIZE), resource.getrlimit(resource.RLIMIT_CORE)])
"""
    (written, errno), file_size, core = told(lab, source)
    assert 0 < written <= SCRATCH_BYTES
    assert errno == 28  # no space left on device
    assert file_size == (SCRATCH_BYTES, SCRATCH_BYTES)
    assert core == (0, 0)


def test_results_cannot_become_links(lab, elsewhere):
    victim = elsewhere / "victim"
    victim.write_text("mine")
    source = f"""
os.chdir(env['scratch'])
for target, name in (({str(victim)!r}, 'link'), ({str(elsewhere)!r}, 'folder')):
    attempt(os.symlink, target, name)  # the function is called again to find the sample to blame
names = sorted(os.listdir('.'))
results = [name for name in names if name.endswith(('.npy', '.jsonl', 'progress'))]
tell([results] + [[attempt(os.unlink, name), attempt(os.rename, 'link', name), attempt(os.rename, name, 'x')]
                  for name in results])
"""
    results, *attempts = told(lab, source, measure="both")
    assert results == ["predictions.jsonl", "progress", "stamps-0.npy"]
    assert {answer for row in attempts for answer in row} == {"OSError:16"}  # busy: a mount point
    assert victim.read_text() == "mine"


def test_a_progress_file_made_short_hurts_the_worker_only(lab):
    found = failure(lab, "os.truncate(env['scratch'] + '/progress', 0)\ntime.sleep(0.5)")
    assert (found.code, found.fields["signal"]) == ("worker_crashed", "SIGBUS")


RUBBISH = [
    (b"not JSON\n", "a line is not JSON"),
    (b"[" * 100_000 + b"\n", "a line is not JSON"),
    (b'{"sample": 1}\n', "does not fit its type"),
]


def forged(lab, answers: bytes) -> str:
    """A function that writes the answers itself and then says the worker's last word."""
    honest = lab.evaluate(lab.function("honest", "pass"), dataset=lab.noise(), is_trusted=False, measure="accuracy")
    assert honest.status == "succeeded", honest.failure
    values = honest.model_dump(mode="json")
    word = {
        "type": "done",
        "execution": values["execution"],
        "performance_set": [],
        "sample_count": 4,
        "sample_ids_digest": "",
        "launch": values["launches"][0],
        "software": values["software"],
        "system": values["system"],
    }
    return f"""
import json
open(env['scratch'] + '/predictions.jsonl', 'wb').write({answers!r})
word = json.dumps({word!r}).encode()
os.write(int(sys.argv[1]), len(word).to_bytes(4, 'big') + word)
time.sleep(60)
"""


@pytest.mark.parametrize(("answers", "complaint"), RUBBISH)
def test_answers_that_are_rubbish_are_a_failure(lab, answers, complaint):
    found = failure(lab, forged(lab, answers), measure="accuracy")
    assert (found.code, found.stage) == ("worker_crashed", "store")
    assert complaint in found.message


def test_a_wrong_number_of_answers_is_a_failure(lab):
    lab.photos()
    line = b'{"sample": "x", "label": null, "answer": {"type": "custom", "value": 1}}\n'
    model = lab.function("stranger", TELL + forged(lab, line * 2))
    with lab.workspace() as workspace, pytest.raises(WorkerCrashError) as caught:
        workspace.predict(model, [str(lab.root / "photos/0-red/bright.png")], is_trusted=False)
    assert "2 answers for 1 inputs" in caught.value.message


# what a manifest may name


@pytest.mark.parametrize("target", ["/etc/hostname", "../secret.txt", "link.txt", "file:///etc/hostname"])
def test_a_strangers_manifest_names_files_below_its_own_folder_only(lab, target):
    (lab.root / "stranger").mkdir()
    secret = lab.write("secret.txt", "SECRET")
    (lab.root / "stranger" / "link.txt").symlink_to(secret)
    lab.model()
    for name in ("colours.yml", "colours.onnx"):
        shutil.copy(lab.root / name, lab.root / "stranger")
    manifest = lab.root / "stranger" / "colours.yml"
    manifest.write_text(manifest.read_text().replace("labels.txt", target))
    record = lab.evaluate(str(manifest), dataset=lab.photos(), is_trusted=False)
    assert (record.failure.code, record.failure.stage) == ("usage", "provision")
    assert "outside its own folder" in record.failure.message
    trusted = lab.evaluate(str(manifest), dataset=lab.photos())
    assert trusted.failure.message == "1 labels do not fit 3 classes"  # it was read


def test_a_folder_that_holds_the_users_home_is_not_shown(lab, monkeypatch):
    """A data set of the user's whose folder is the home folder: the sandbox would show everything."""
    photos = lab.photos()
    monkeypatch.setenv("HOME", str(lab.root / "photos"))
    record = lab.evaluate(lab.model(), dataset=photos, is_trusted=False)
    assert record.failure.code == "sandbox_unavailable"
    assert "private" in record.failure.message


def test_a_data_set_of_the_users_own_may_lie_anywhere(lab, elsewhere):
    photos = Path(lab.photos())
    shutil.move(lab.root / "photos", elsewhere / "photos")
    photos.write_text(photos.read_text().replace("photos/", f"{elsewhere}/photos/"))
    refused = lab.evaluate(lab.model(), dataset=str(photos), is_trusted=False)
    assert refused.failure.code == "usage"
    with lab.workspace() as workspace:
        workspace.catalogue.add(photos, "dataset")
    assert lab.evaluate(lab.model(), dataset="photos", is_trusted=False).failure is None


def test_a_built_in_manifest_names_files_of_ours_though_it_runs_in_the_sandbox(lab):
    request = make_request(models=("ResNet18-CIFAR10",), dataset=lab.noise(), is_trusted=False)
    with lab.workspace() as workspace:
        (plan,) = workspace.plans(request)
        assert (plan.is_model_builtin, plan.environment.is_sandboxed) == (True, True)
        request = make_request(models=(lab.model(),), dataset=lab.noise(), is_trusted=False)
        assert not workspace.plans(request)[0].is_model_builtin


# records


def test_an_untrusted_record_is_repeated_in_the_sandbox(lab):
    original = lab.evaluate(lab.model(), dataset=lab.photos(), is_trusted=False)
    with lab.workspace() as workspace:
        repeated, verdict = workspace.reproduce(original.id)
    assert repeated.failure is None
    assert (repeated.is_trusted, repeated.software.environment.is_sandboxed) == (False, True)
    assert verdict is not None


def imported(lab, record: Record, **changes) -> str:
    values = {"id": new_id(), "origin": "imported", "is_trusted": False, **changes}
    with lab.workspace() as workspace:
        return workspace.store.add(record.model_copy(update=values)).id


def test_an_imported_record_chooses_neither_trust_nor_folder_nor_inputs(lab):
    secret = lab.write("secret/labels.txt", "SECRET\nSECRET\nSECRET\n")
    record = lab.evaluate(lab.model(), dataset=lab.photos())
    pinned = record.model.manifest.model_copy(update={"base": str(secret.parent)})
    mine = imported(lab, record, model=record.model.model_copy(update={"manifest": pinned}))
    with lab.workspace() as workspace:
        repeated, _ = workspace.reproduce(mine)
        assert repeated.failure.stage == "provision"
        assert not repeated.is_trusted
        request = make_request(models=record.request.models, inputs=(str(secret),))
        workspace.catalogue.add(Path(lab.photos()), "dataset")
        for dataset in (None, record.dataset):
            with pytest.raises(UsageError, match="names a file of this machine"):
                workspace.reproduce(imported(lab, record, request=request, dataset=dataset))


# without a sandbox


def test_without_bubblewrap_nothing_runs(lab):
    mark, empty = lab.root / "ran", lab.root / "empty"
    empty.mkdir()
    model = lab.function("stranger", f"open({str(mark)!r}, 'w')")
    done = lab.run("evaluate", model, "-d", lab.noise(), "--untrusted", PATH=str(empty))
    assert done.code == 1
    assert "untrusted code is not run without a sandbox" in done.err
    assert "hint: install bubblewrap" in done.err
    (record,) = lab.records()
    assert (record.failure.code, record.failure.stage) == ("sandbox_unavailable", "start")
    assert "not installed" in record.failure.message
    assert not mark.exists()
    assert lab.run("evaluate", model, "-d", lab.noise(), "--launches", "1", PATH=str(empty)).code == 0
    assert mark.exists()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "No permissions"),
        # it passes the probe, then fails on the worker
        ('case "$*" in *worker.main*) echo "bwrap: Can\'t mount" >&2; exit 1;; esac', "Can't mount"),
    ],
)
def test_where_bubblewrap_fails_nothing_runs(lab, script, reason):
    tools = lab.root / "tools"
    tools.mkdir()
    (tools / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (tools / "bwrap").chmod(0o755)
    mark = lab.root / "ran"
    model = lab.function("stranger", f"open({str(mark)!r}, 'w')")
    done = lab.run("predict", model, str(Path(lab.noise())), "--untrusted", PATH=f"{tools}:{os.environ['PATH']}")
    assert done.code == 3
    assert reason in done.err
    assert not mark.exists()
