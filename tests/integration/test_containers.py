"""Images and containers of a real engine (Podman), found by its socket."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from mlmodelscope import hosting
from mlmodelscope.core.errors import (
    EnvironmentMissingError,
    MemoryLimitError,
    TimeLimitError,
    UnknownNameError,
    UnsatisfiableError,
    WorkerCrashError,
)
from mlmodelscope.core.span import TraceLevel
from mlmodelscope.provision.containers import Engine, Mount, find_engine, probe
from mlmodelscope.provision.containers.image import parse_probe
from mlmodelscope.provision.containers.owner import LABEL
from mlmodelscope.provision.environments.interpreters import Interpreters
from mlmodelscope.worker import launch
from mlmodelscope.worker.sandbox import MOST_TASKS

pytestmark = [pytest.mark.needs("podman"), pytest.mark.xdist_group("containers")]
SOURCE = Path(__file__).parents[2] / "src"
PYTHON = "/usr/local/bin/python3"
MEGABYTE = 1024**2


@pytest.fixture(scope="module")
def home():
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def found(engine, home, monkeypatch):
    """The private engine as `find_engine` sees it; no container of ours is left at the end of the test."""
    monkeypatch.setenv("DOCKER_HOST", engine.address)
    with find_engine(home) as found:
        yield found
        assert names(found) == []


@pytest.fixture
def far(make_lab):
    """A lab outside of /tmp and /var/tmp: a container has its own of those to write, but nothing of a home."""
    with tempfile.TemporaryDirectory(dir=SOURCE.parent / ".cache") as folder:
        lab = make_lab(Path(folder))
        yield lab
        lab.wait_until_all_gone()
        assert list(lab.home.glob("runs/*")) == []


def names(found):
    listed = found._client.containers(all=True, filters={"label": [LABEL]})
    return [name.lstrip("/") for one in listed for name in one["Names"]]


def run(found, image, script, **options):
    """Exit code, error and log of a Python script in a container."""
    with found.start(image, [PYTHON, "-c", textwrap.dedent(script)], **options) as container:
        return container.wait(60), container.exit_error("test"), container.log_tail()


def test_an_engine_is_found_by_its_socket(engine, found):
    assert found.address == engine.address
    assert found.is_podman
    assert found.version.startswith("podman ")


def test_no_engine(monkeypatch, home):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{home}/none.sock")
    with pytest.raises(EnvironmentMissingError, match="no container engine answers"):
        find_engine(home)


def test_what_is_in_an_image(engine, found):
    import numpy
    import onnxruntime

    facts = found.inspect(engine.full)
    assert facts.digest.startswith("sha256:")
    assert facts.architecture == found.architecture
    assert facts.labels == {"org.example.kind": "test"}
    assert facts.python == PYTHON
    assert facts.python_version == ".".join(map(str, sys.version_info[:3]))
    assert facts.numpy == numpy.__version__
    assert facts.packages["onnxruntime"] == onnxruntime.__version__
    assert "mlmodelscope" not in facts.packages
    assert facts.size_bytes > 50 * MEGABYTE
    assert found.inspect(facts.digest) == facts.model_copy(update={"name": facts.digest})


def test_facts_are_kept(engine, found, home, monkeypatch):
    facts = found.inspect(engine.full)
    monkeypatch.setattr(Engine, "start", lambda *_, **__: pytest.fail("started"))
    with Engine(engine.address, home) as again:
        assert again.inspect(engine.full) == facts


def test_an_image_that_is_not_there(engine, found):
    with pytest.raises(UnknownNameError) as caught:
        found.inspect("localhost/onnxruntime:none")
    assert engine.full in caught.value.fields["near"]


def test_an_image_for_another_architecture(engine, found):
    with pytest.raises(UnsatisfiableError, match=f"this machine is linux/{found.architecture}"):
        found.inspect(engine.foreign)


@pytest.mark.parametrize(("kind", "missing"), [("shell", "python"), ("bare", "numpy")])
def test_an_image_that_lacks_something(engine, found, kind, missing):
    with pytest.raises(EnvironmentMissingError, match=f"has no (?i:{missing})") as caught:
        found.inspect(getattr(engine, kind))
    assert caught.value.fields["missing"] == missing


def test_the_framework_runs_in_it(engine, found):
    import onnxruntime

    variables = {"ORT_DISABLE_TELEMETRY": "1"}
    code, error, log = run(found, engine.full, "import onnxruntime as o; print(o.__version__)", variables=variables)
    assert (code, error, log.strip()) == (0, None, onnxruntime.__version__)


def test_it_can_do_nothing_that_was_not_allowed(engine, found):
    script = """
        import os, socket, sys
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0, status["CapBnd"]
        assert status["NoNewPrivs"].strip() == "1"
        assert [name for _, name in socket.if_nameindex()] == ["lo"]
        for path in ("/x", "/usr/local/x", "/etc/x", "/run/x", "/proc/sys/x"):
            try:
                open(path, "w")
            except OSError:
                continue
            sys.exit(path + " can be written")
        for path in ("/tmp/x", "/dev/shm/x"):
            open(path, "w").write("x")
        assert (os.getuid(), os.getgid()) == (1234, 1235)
        print("held")
    """
    assert run(found, engine.full, script, user="1234:1235") == (0, None, "held\n")


def test_limits_hold(engine, found):
    cpu = max(os.sched_getaffinity(0))
    script = f"""
        import os, threading, time
        assert os.sched_getaffinity(0) == {{{cpu}}}
        try:
            for _ in range(100):
                threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
        except RuntimeError:
            os._exit(42)
    """
    assert run(found, engine.full, script, cpus=str(cpu), pids=20)[0] == 42


@pytest.mark.needs("podman-bridge")
def test_it_has_no_network_unless_asked_for(engine, found):
    script = "import socket; print(*(name for _, name in socket.if_nameindex()))"
    assert run(found, engine.full, script) == (0, None, "lo\n")
    code, error, log = run(found, engine.full, script, network=True)
    assert (code, error) == (0, None)
    assert len(log.split()) > 1, log


@pytest.mark.needs("podman-bridge")
def test_a_network_that_cannot_be_made_is_told(engine, home):
    own = sys.modules[type(engine).__module__]
    podman = own.Podman(Path(tempfile.mkdtemp(prefix="mlms-engine-")))
    try:
        podman.add("localhost/shell:1", own.make_image("shell", None))
        empty = podman.folder / "empty"
        empty.mkdir()
        with (podman.folder / "containers.conf").open("a") as configuration:  # it ends in the settings of the engine
            configuration.write(f'helper_binaries_dir = ["{empty}"]\n[network]\ncni_plugin_dirs = ["{empty}"]\n')
        with podman.serve() as address, Engine(address, home) as unplugged:
            with pytest.raises(EnvironmentMissingError, match="refused to start") as caught:
                unplugged.start("localhost/shell:1", ["/bin/sh", "-c", "exit 0"], network=True)
            assert names(unplugged) == []
            with unplugged.start("localhost/shell:1", ["/bin/sh", "-c", "exit 0"]) as container:
                assert container.wait(60) == 0
    finally:
        podman.remove()
    assert "network" in caught.value.hint


@pytest.mark.needs("podman-rootless")
def test_an_engine_without_roots_rights_holds_what_it_can_and_says_what_it_cannot(engine, home):
    own = sys.modules[type(engine).__module__]
    podman = own.unprivileged(Path(tempfile.mkdtemp(prefix="mlms-engine-")))
    command = ["/bin/sh", "-c", "exit 7"]
    limits = {"cpuset": {"cpus": "0"}, "memory": {"memory_bytes": 64 * MEGABYTE}, "pids": {"pids": 20}}
    try:
        podman.add("localhost/shell:1", own.make_image("shell", None))
        with podman.serve() as address, Engine(address, home) as rootless:
            with rootless.start("localhost/shell:1", command) as container:
                assert container.wait(60) == 7
            for limit, asked in limits.items():
                if rootless.can_limit(limit):
                    with rootless.start("localhost/shell:1", command, **asked) as container:
                        assert container.wait(60) == 7
                else:
                    with pytest.raises(UnsatisfiableError, match="cannot limit"):
                        rootless.start("localhost/shell:1", command, **asked)
            assert names(rootless) == []
    finally:
        podman.remove()


def test_out_of_memory(engine, found):
    limit = 64 * MEGABYTE
    code, error, _ = run(found, engine.full, "x = b'x' * 10**9", memory_bytes=limit)
    assert code == 137
    assert isinstance(error, MemoryLimitError)
    assert error.fields["limit_bytes"] == limit


def test_a_segmentation_fault(engine, found):
    code, error, _ = run(found, engine.full, "import ctypes; ctypes.string_at(0)")
    assert code == 139
    assert isinstance(error, WorkerCrashError)
    assert error.fields["signal"] == "SIGSEGV"


def test_last_words(engine, found):
    code, error, log = run(found, engine.full, "import sys; sys.exit('so it ends')")
    assert (code, log) == (1, "so it ends\n")
    assert isinstance(error, WorkerCrashError)


def test_a_hanging_container_is_ended(engine, found):
    with found.start(engine.full, [PYTHON, "-c", "import time; time.sleep(1000)"]) as container:
        with pytest.raises(TimeLimitError):
            container.wait(0.5)
        pid = container.pid
        assert Path(f"/proc/{pid}").exists()
        container.kill()
        assert not container.is_running
        assert container.exit_error("test") is None
        assert not Path(f"/proc/{pid}").exists()


def test_a_container_is_gone_when_its_user_fails(engine, found):
    def fail():
        with found.start(engine.full, [PYTHON, "-c", "import time; time.sleep(1000)"]) as container:
            started.append(container)
            assert container.name in names(found)
            raise ZeroDivisionError

    started = []
    with pytest.raises(ZeroDivisionError):
        fail()
    (container,) = started
    assert container.name not in names(found)
    container.remove()


def test_a_program_that_is_not_in_the_image(engine, found):
    with pytest.raises(EnvironmentMissingError, match="refused to start"):
        found.start(engine.full, ["/nowhere/python"])


def test_a_socket_and_shared_memory_reach_inside(engine, found, tmp_path):
    """The way of a worker: it listens in a folder of memory, the framework's side calls back without any network."""
    (tmp_path / "weights").write_text("read only")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as shared:
        script = f"""
            import mmap, socket
            end = socket.socket(socket.AF_UNIX)
            end.connect("{shared}/s.sock")
            with open("{shared}/tensor", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
                memory[:5] = memory[:5].upper()
            try:
                open("{tmp_path}/weights", "a")
            except OSError:
                end.sendall(open("{tmp_path}/weights", "rb").read())
        """
        Path(shared, "tensor").write_bytes(b"hello")
        mounts = [Mount(tmp_path, tmp_path), Mount(Path(shared), Path(shared), is_read_only=False)]
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"{shared}/s.sock")
            listening.listen(1)
            listening.settimeout(60)
            command = [PYTHON, "-c", textwrap.dedent(script)]
            with found.start(engine.full, command, mounts=mounts) as container:
                peer, _ = listening.accept()
                with peer:
                    assert peer.recv(100) == b"read only"
                assert container.wait(60) == 0
        assert Path(shared, "tensor").read_bytes() == b"HELLO"


def test_leftovers_of_a_killed_process_are_swept(engine, found, home):
    program = f"""
        import sys, time
        from pathlib import Path
        from mlmodelscope.provision.containers import Engine
        engine = Engine({engine.address!r}, Path({str(home)!r}))
        container = engine.start({engine.full!r}, [{PYTHON!r}, "-c", "import time; time.sleep(1000)"])
        print(container.name, container.pid, flush=True)
        time.sleep(1000)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    with parent:
        name, pid = parent.stdout.readline().split()
        assert found.sweep() == []
        assert name in names(found)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert found.sweep() == [name]
    assert name not in names(found)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.needs("python3.6")
def test_the_probe_runs_under_an_old_python(tmp_path):
    old = Interpreters(tmp_path).find(["3.6", "3.7", "3.8"])
    source = Path(probe.__file__).read_text(encoding="utf-8")
    told = subprocess.run([old.path, "-c", source], stdout=subprocess.PIPE, text=True, check=True).stdout
    (found,) = parse_probe(told)
    assert found.version == old.version
    assert found.is_new_enough
    assert "pip" in found.packages


class TestEvaluation:
    """A whole evaluation whose framework lives in a container."""

    def test_it_succeeds_and_names_what_ran(self, lab, engine, found):
        record = lab.evaluate(lab.model(), dataset=lab.photos(), environment=f"container={engine.full}")
        assert record.status == "succeeded"
        assert record.accuracy.top1.value == pytest.approx(5 / 6)
        facts = found.inspect(engine.full)
        assert (record.software.environment.kind, record.software.environment.digest) == ("container", facts.digest)
        assert record.software.packages == facts.packages

    def test_functions_of_a_manifest_with_requirements_run_in_it(self, lab, engine, found):
        source = """
            import os, sys

            def fun(env, data):
                path = os.path.join(env["scratch"], "kept")
                with open(path, "a") as file:
                    file.write(".")
                return {"python": sys.executable, "calls": os.path.getsize(path)}
        """
        outputs = [{"type": "tensor", "layer_name": "scores", "element_type": "float32"}]
        model = lab.model(postprocess=textwrap.dedent(source), outputs=outputs, requirements=["numpy"])
        photo = lab.root / "photos" / "0-red" / "bright.png"
        lab.photos()
        with lab.workspace() as workspace:
            (answered,) = workspace.predict(model, [str(photo)], environment=f"container={engine.full}")
        # the first call warmed up
        assert answered.answer.value == {"python": PYTHON, "calls": 2}

    def test_layers_are_shown_from_it(self, lab, engine, found):
        lab.photos()
        photo = str(lab.root / "photos" / "0-red" / "bright.png")
        with lab.workspace() as workspace:
            arrays = workspace.reveal(lab.model(), [photo], ["means"], environment=f"container={engine.full}")
        assert arrays["bright.png/means"].shape == (1, 3)

    @pytest.mark.parametrize(
        ("image", "code"),
        [
            ("localhost/none:1", "unknown_name"),
            ("foreign", "unsatisfiable"),
            ("shell", "environment_missing"),
            ("bare", "environment_missing"),
        ],
    )
    def test_a_wrong_image_is_a_failed_record(self, lab, engine, found, image, code):
        name = getattr(engine, image, image)
        record = lab.evaluate(lab.model(), dataset=lab.photos(), environment=f"container={name}")
        assert (record.status, record.failure.code) == ("failed", code)
        assert name in record.failure.message
        assert record.failure.hint

    def test_layers_are_traced_in_it(self, far, engine, found):
        done = far.run(
            *("evaluate", far.model(), "-d", far.photos(), "--environment", f"container={engine.full}", "--json"),
            *("--trace-level", "framework", "--trace-queries", "2", "--launches", "1", "--duration", "0"),
        )
        assert done.code == 0, done.err
        assert done.json["trace"]["level"] == TraceLevel.FRAMEWORK, done.json["warnings"]
        with far.workspace() as workspace:
            spans = workspace.trace(done.json["id"]).spans
        assert {"GlobalAveragePool", "Mul"} <= {span.attributes.get("operator") for span in spans}

    @pytest.mark.needs("bwrap")
    @pytest.mark.parametrize("timed", ["pipeline", "inference"])
    def test_a_strangers_manifest_runs_in_the_sandbox_and_in_it(self, far, engine, found, timed):
        record = far.evaluate(
            far.model(),
            dataset=far.photos(),
            environment=f"container={engine.full}",
            is_trusted=False,
            scenario={"timed": timed},
            trace_level=TraceLevel.FRAMEWORK,
        )
        assert record.failure is None
        assert record.accuracy.top1.value == pytest.approx(5 / 6)
        place = record.software.environment
        assert (place.kind, place.is_sandboxed) == ("container", True)
        assert record.trace.level == TraceLevel.FRAMEWORK, record.warnings

    @pytest.mark.needs("bwrap")
    def test_a_stranger_that_fills_the_shared_memory_is_ended(self, lab, engine, found, monkeypatch):
        monkeypatch.setattr(launch, "_MOST_SHARED_BYTES", 2 * MEGABYTE)
        source = """
            import glob, time

            def fun(env, data):
                (folder,) = glob.glob("/dev/shm/mlmodelscope-*/*")
                with open(folder + "/hoard", "wb") as file:
                    file.write(bytes(4_000_000))
                time.sleep(600)
        """
        model = lab.model(preprocess=textwrap.dedent(source), inputs=[{"type": "tensor", "element_type": "float32"}])
        record = lab.evaluate(
            model, dataset=lab.noise(), environment=f"container={engine.full}", is_trusted=False, measure="performance"
        )
        assert (record.failure.code, record.failure.fields["limit_bytes"]) == ("memory_limit", 2 * MEGABYTE)
        assert list(Path("/dev/shm").glob(f"mlmodelscope-{os.getuid()}/*/hoard")) == []

    @pytest.mark.needs("podman-bridge")
    @pytest.mark.parametrize("is_trusted", [True, pytest.param(False, marks=pytest.mark.needs("bwrap"))])
    def test_its_limits_are_those_of_the_manifests_author(self, lab, engine, found, is_trusted):
        """A function beside the framework tells the largest number of processes, and the network of an eager author."""
        source = """
            import os, socket

            def fun(env, data):
                places = ("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max")
                with open(next(filter(os.path.exists, places))) as file:
                    return [int(file.read()), [name for _, name in socket.if_nameindex()]]
        """
        model = lab.model(
            postprocess=textwrap.dedent(source),
            outputs=[{"type": "tensor", "layer_name": "scores", "element_type": "float32"}],
            requirements=["numpy"],
            attributes={"network": True},
        )
        lab.photos()
        photo = str(lab.root / "photos" / "0-red" / "bright.png")
        where = {"environment": f"container={engine.full}", "is_trusted": is_trusted}
        with lab.workspace() as workspace:
            (answered,) = workspace.predict(model, [photo], **where)
        most_tasks, interfaces = answered.answer.value
        assert most_tasks == (hosting._MOST_TRUSTED_TASKS if is_trusted else MOST_TASKS)
        assert (interfaces == ["lo"]) == (not is_trusted)

    def test_one_that_ends_before_it_answers_is_told_by_how_it_ended(self, lab, engine, found, monkeypatch):
        """Within the limit of the launch, which is shorter than the time that a container has to answer."""
        words = "import sys; print('so it ends', flush=True); sys.exit(3)"
        monkeypatch.setattr(hosting, "shim_command", lambda python, *_, **__: [python, "-c", words])
        record = lab.evaluate(
            lab.model(),
            dataset=lab.photos(),
            environment=f"container={engine.full}",
            limits={"run_seconds": 60},
        )
        assert (record.failure.code, record.failure.stage) == ("worker_crashed", "load")
        assert record.failure.fields["exit_code"] == 3
        assert "so it ends" in record.failure.log_tail

    def test_an_image_that_is_refused_leaves_no_connection(self, lab, engine, found, monkeypatch):
        closed = []
        close = Engine.close
        monkeypatch.setattr(Engine, "close", lambda self: closed.append(self) or close(self))
        record = lab.evaluate(lab.model(), dataset=lab.photos(), environment=f"container={engine.bare}")
        assert record.failure.code == "environment_missing"
        assert len(closed) == 1
