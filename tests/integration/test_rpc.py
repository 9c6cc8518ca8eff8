"""Predictors behind an address: the contract through a real server process, and the ways in which one can fail."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("grpc", reason="gRPC is not installed: pip install 'mlmodelscope[rpc]'")

import grpc

from mlmodelscope.core.predictor import Simulates
from mlmodelscope.measure.processes import children_of
from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.predictors.remote import Predictor
from mlmodelscope.provision.environments import Environments
from mlmodelscope.rpc import predictor_pb2 as messages
from mlmodelscope.rpc.channel import OPTIONS
from mlmodelscope.rpc.client import SERVICE
from mlmodelscope.rpc.server import Service, start_server
from mlmodelscope.testing.predictors import PredictorCase, PredictorContract

COMMAND = Path(sys.executable).with_name("mlmodelscope")
WEIGHTS = np.float32([[1, -2, 3], [0.5, 0, -1], [2, 2, 2], [-1, 1, 0]])
BIAS = np.float32([0.25, -0.5, 0])
SAMPLES = [[np.float32([[1, 2, 3, 4]])], [np.float32([[-1, 0.5, 0, 2]])]]


def linear_onnx(batch) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    floats = TensorProto.FLOAT
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("Add", ["product", "b"], ["y"]),
            helper.make_node("Relu", ["y"], ["z"]),
        ],
        "linear",
        [helper.make_tensor_value_info("x", floats, [batch, 4])],
        [helper.make_tensor_value_info(name, floats, [batch, 3]) for name in ("y", "z")],
        [numpy_helper.from_array(WEIGHTS, "w"), numpy_helper.from_array(BIAS, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def expected():
    sums = [sample[0] @ WEIGHTS + BIAS for sample in SAMPLES]
    return [[y, np.maximum(y, 0)] for y in sums]


def serve(*arguments, **variables):
    """A server process and the address that it said."""
    process, said = start(*arguments, **variables)
    return process, said["address"]


def start(*arguments, **variables):
    """A server process and all that it said when it was ready."""
    command = [str(COMMAND), "predictor", "serve", *arguments, "--json"]
    environment = {**os.environ, **variables}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("}"):
            return process, json.loads("".join(lines))
    raise AssertionError(process.stderr.read())


def end(process):
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


@pytest.fixture(scope="module")
def socket_folder(tmp_path_factory):
    # the path of a socket must be short, and that of a test is not
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / f"rpc-{os.getpid()}"
    folder.mkdir()
    yield folder
    assert list(folder.iterdir()) == []
    folder.rmdir()


@pytest.fixture(scope="module", params=["unix", "tcp", "tcp without shared memory"])
def served(request, socket_folder):
    arguments = {
        "unix": ["--address", f"unix:{socket_folder}/ort.sock"],
        "tcp": [],
        "tcp without shared memory": ["--no-shared-memory"],
    }
    process, address = serve("onnxruntime", *arguments[request.param])
    yield address
    end(process)


class TestRemote(PredictorContract):
    framework = "remote"

    @pytest.fixture(autouse=True)
    def _address(self, served):
        self.address = served

    @pytest.fixture
    def case(self, tmp_path):
        contents = {"open": linear_onnx("n"), "fixed": linear_onnx(1), "corrupt": linear_onnx(1)[:100]}
        for name, content in contents.items():
            (tmp_path / f"{name}.onnx").write_bytes(content)
        paths = [str(tmp_path / f"{name}.onnx") for name in contents]
        return PredictorCase(*paths, samples=SAMPLES, expected=expected())

    def model(self, path, **changes):
        model = super().model(path, **changes)
        return {**model, "options": {"address": self.address, **model["options"]}}

    def test_the_engine_is_named(self, predictor, case):
        import onnxruntime

        facts = predictor.load(self.model(case.open_batch))
        assert (facts["framework"], facts["engine"], facts["version"]) == (
            "remote",
            "onnxruntime",
            onnxruntime.__version__,
        )
        assert facts["provider"] == "onnxruntime: CPUExecutionProvider"
        assert not isinstance(predictor, Simulates)

    def test_files_are_uploaded(self, predictor, case):
        model = self.model(case.open_batch, options={"upload": True})
        predictor.load(model)
        np.testing.assert_allclose(predictor.predict(SAMPLES[0])[0], expected()[0][0], rtol=1e-5)

    def test_a_path_that_the_server_does_not_see_says_so(self, predictor, case):
        with pytest.raises(PredictorFault) as caught:
            predictor.load(self.model("/nowhere/model.onnx"))
        assert "upload" in caught.value.hint


class Echo:
    """Answers with its inputs, of the types that the option says."""

    name, packages, environment, formats = "echo", (), {}, ()

    def load(self, model):
        types = (model["options"] or {}).get("types", ["float32"])
        layers = [{"name": "any", "shape": None, "element_type": name} for name in types]
        named = dict.fromkeys(("provider", "device", "library", "optimization", "precision"), "none")
        return {"framework": "echo", "version": "1", "threads": 1, "inputs": layers, "outputs": layers, **named}

    def predict(self, inputs):
        return inputs

    def unload(self):
        pass


class Counting(Echo):
    """A simulator whose every call takes a microsecond and a nanosecond more than the one before."""

    time_ns = calls = 0

    def predict(self, inputs):
        self.calls += 1
        self.time_ns += 1000 + self.calls
        return inputs

    def now_ns(self):
        return self.time_ns


@pytest.fixture
def listening(socket_folder):
    """Starts a service in this process; answers with its address."""
    started = []

    def start(make, **settings):
        started.append(start_server(Service(make, **settings), f"unix:{socket_folder}/in-process-{len(started)}.sock"))
        return started[-1].address

    yield start
    for server in started:
        server.stop()


def load(address, **options):
    predictor = Predictor()
    facts = predictor.load({"graph_path": "", "threads": 1, "options": {"address": address, **options}})
    return predictor, facts


def refused(call):
    with pytest.raises(PredictorFault) as caught:
        call()
    json.dumps(caught.value.fields)
    return caught.value


@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize("size", [0, 1, 1000, 300_000, 4 << 20])
def test_tensors_of_any_size_come_back_as_they_were(listening, shared_memory, size):
    predictor, _ = load(listening(Echo), shared_memory=shared_memory, types=["uint32", "float16"])
    given = [np.arange(size, dtype=np.uint32), np.float16([[1.5]])]
    for _ in range(3):
        got = predictor.predict(given)
        for mine, theirs in zip(got, given, strict=True):
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_array_equal(mine, theirs)
            assert mine.flags.writeable
    assert predictor._client.shares_memory is shared_memory
    predictor.unload()


def test_a_tensor_of_256_megabytes_passes_without_shared_memory(listening):
    predictor, _ = load(listening(Echo), shared_memory=False, types=["uint8"])
    given = np.zeros((1, 256 << 20), np.uint8)
    given[0, -1] = 7
    (got,) = predictor.predict([given])
    assert got.shape == given.shape
    assert got[0, -1] == 7
    predictor.unload()


def test_a_type_that_was_not_known_at_load_passes(listening):
    predictor, facts = load(listening(Echo), types=["unknown", "float32"])
    assert facts["outputs"][0]["element_type"] == "unknown"
    given = [np.arange(3), np.float32([1])]
    assert [array.dtype for array in predictor.predict(given)] == [array.dtype for array in given]
    with pytest.raises(PredictorFault, match="announced"):
        predictor.predict(given[::-1])


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int64", "float64", "complex64"])
def test_every_element_type_passes(listening, name):
    predictor, _ = load(listening(Echo), types=[name])
    given = np.arange(6).reshape(2, 3).astype(name)
    (got,) = predictor.predict([given])
    assert got.dtype == given.dtype
    np.testing.assert_array_equal(got, given)
    predictor.unload()


def test_strings_pass(listening):
    predictor, _ = load(listening(Echo), types=["string"])
    (got,) = predictor.predict([np.array([["naïve", ""], ["a", "文字"]])])
    assert got.tolist() == [["naïve", ""], ["a", "文字"]]
    predictor.unload()


def test_nothing_stays_in_shared_memory(listening, tmp_path):
    predictor, _ = load(listening(Echo, folder=str(tmp_path)), shared_memory=str(tmp_path))
    assert predictor._client.shares_memory
    assert list(tmp_path.iterdir()) == []
    predictor.unload()


def test_a_folder_without_room_means_messages(listening):
    predictor, _ = load(listening(Echo), shared_memory="/proc", types=["float64"])
    assert not predictor._client.shares_memory
    np.testing.assert_array_equal(predictor.predict([np.ones(5000)])[0], np.ones(5000))
    predictor.unload()


def test_a_clock_of_its_own_is_an_ability_after_load(listening):
    predictor, _ = load(listening(Counting))
    assert isinstance(predictor, Simulates)
    moments = [predictor.now_ns()]
    for _ in range(3):
        predictor.predict([np.zeros(1, np.float32)])
        moments.append(predictor.now_ns())
    assert moments == [0, 1001, 2003, 3006]
    predictor.unload()
    assert not isinstance(predictor, Simulates)


def test_two_clients_have_a_model_each_and_a_third_is_refused(listening):
    address = listening(Counting, most_models=2)
    (one, _), (two, _) = load(address), load(address)
    for client in (one, one, two):
        client.predict([np.zeros(1, np.float32)])
    assert (one.now_ns(), two.now_ns()) == (2003, 1001)
    assert "holds 2 models" in refused(lambda: load(address)).message
    one.unload()
    load(address)[0].unload()
    two.unload()


def test_what_a_predictor_raises_crosses_without_a_traceback(listening):
    class Failing(Echo):
        def predict(self, inputs):
            raise ZeroDivisionError("division by zero")

    predictor, _ = load(listening(Failing))
    fault = refused(lambda: predictor.predict([np.zeros(1)]))
    assert (fault.code, fault.message) == (
        "predictor_failed",
        "the predictor failed: ZeroDivisionError: division by zero",
    )
    predictor.unload()


@pytest.mark.parametrize(
    "address", ["unix:/nowhere/at/all.sock", "127.0.0.1:1", "nonsense", "host:99999", "unix:", "a..b:80"]
)
def test_a_dead_address_says_so(address):
    fault = refused(lambda: load(address))
    assert fault.code == "environment_missing"
    assert fault.hint


def test_a_file_that_is_no_socket_is_a_dead_address(tmp_path):
    (tmp_path / "file").write_text("")
    assert refused(lambda: load(f"unix:{tmp_path}/file")).code == "environment_missing"


def test_no_address_says_how_to_give_one():
    fault = refused(lambda: Predictor().load({"threads": 1, "options": {}}))
    assert "remote@" in fault.hint


@pytest.mark.parametrize(
    "options", [{"predict_seconds": 0}, {"load_seconds": "long"}, {"upload": 1}, {"shared_memory": 3}]
)
def test_options_of_the_client_are_checked(options):
    (name,) = options
    assert refused(lambda: load("127.0.0.1:1", **options)).fields["option"] == name


GOOD = messages.ModelHandle(
    id="1",
    facts=messages.Facts(
        framework="foreign",
        version="2",
        threads=1,
        inputs=[messages.LayerFact(name="x", element_type="float32", shape=[-1, 2])],
        outputs=[messages.LayerFact(name="y", element_type="float32", shape=[-1, 2])],
    ),
)


@pytest.fixture
def foreign():
    """A program of a stranger: each call answers with the bytes that a function gives."""
    servers, channels = [], ThreadPoolExecutor(4)

    def start(**calls):
        calls = {"ModelLoad": GOOD.SerializeToString, "ModelUnload": bytes, **calls}
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(lambda request, context, answer=answer: answer())
            for name, answer in calls.items()
            if answer is not None
        }
        server = grpc.server(channels, options=OPTIONS)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(None).wait()
    channels.shutdown()


def answer_of(*tensors, **fields):
    return messages.PredictionResponse(outputs=tensors, **fields).SerializeToString


GARBAGE = {
    "bytes that are no message": lambda: b"\xff\xff\xff nonsense",
    "too few bytes": answer_of(messages.Tensor(element_type="float32", shape=[1, 2], data=bytes(4))),
    "too many bytes": answer_of(messages.Tensor(element_type="float32", shape=[1, 2], data=bytes(12))),
    "an unknown type": answer_of(messages.Tensor(element_type="float31", shape=[1], data=bytes(4))),
    "a type with objects in it": answer_of(messages.Tensor(element_type="object", shape=[1], data=bytes(8))),
    "a negative size": answer_of(messages.Tensor(element_type="float32", shape=[-1, -1], data=bytes(4))),
    "a huge shape": answer_of(messages.Tensor(element_type="uint8", shape=[1 << 40, 1 << 40], data=bytes(4))),
    "memory that is not shared": answer_of(
        messages.Tensor(element_type="float32", shape=[1], region=messages.Region(offset=64, size=4))
    ),
    "strings cut short": answer_of(messages.Tensor(element_type="string", shape=[1], data=b"\xff\xff\xff\xff")),
    "strings that are no text": answer_of(messages.Tensor(element_type="string", shape=[1], data=b"\1\0\0\0\xff")),
    "too few outputs": answer_of(),
    "another type": answer_of(messages.Tensor(element_type="float64", shape=[1, 2], data=bytes(16))),
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_is_a_typed_fault(foreign, garbage):
    predictor, _ = load(foreign(Predict=GARBAGE[garbage]))
    fault = refused(lambda: predictor.predict([np.zeros((1, 2), np.float32)]))
    assert fault.code == "predictor_failed"
    assert "garbage" in fault.message
    predictor.unload()


def test_a_clock_that_was_announced_and_never_told_is_garbage(foreign):
    handle = messages.ModelHandle(is_simulated=True)
    handle.MergeFrom(GOOD)
    tensor = messages.Tensor(element_type="float32", shape=[1, 2], data=bytes(8))
    predictor, _ = load(foreign(ModelLoad=handle.SerializeToString, Predict=answer_of(tensor)))
    assert "clock" in refused(lambda: predictor.predict([np.zeros((1, 2), np.float32)])).message
    predictor.unload()


def test_facts_that_say_nothing_are_refused(foreign):
    assert (
        "does not say"
        in refused(lambda: load(foreign(ModelLoad=messages.ModelHandle(id="1").SerializeToString))).message
    )


def test_a_call_that_is_not_served_says_which(foreign):
    assert "does not serve ModelLoad" in refused(lambda: load(foreign(ModelLoad=None))).message


def test_a_fault_with_an_unknown_code_and_broken_fields_is_still_a_fault(foreign):
    fault = messages.Fault(code="on_fire", message="the device is on fire", fields_json="{")
    caught = refused(lambda: load(foreign(ModelLoad=messages.ModelHandle(fault=fault).SerializeToString)))
    assert (caught.code, caught.message, caught.fields) == ("predictor_failed", "the device is on fire", {})


def test_a_program_that_hangs_is_given_up(foreign):
    release = threading.Event()
    predictor, _ = load(foreign(Predict=lambda: bytes(release.wait(60))), predict_seconds=0.5)
    fault = refused(lambda: predictor.predict([np.zeros((1, 2), np.float32)]))
    release.set()
    assert "within 0.5 s" in fault.message
    assert "predict_seconds" in fault.hint
    predictor.unload()


def test_a_program_that_hangs_in_load_is_given_up(foreign):
    release = threading.Event()
    address = foreign(ModelLoad=lambda: bytes(release.wait(60)))
    fault = refused(lambda: load(address, load_seconds=0.5))
    release.set()
    assert "load_seconds" in fault.hint


def test_something_that_is_no_grpc_is_a_fault():
    held = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def babble():
            with suppress(OSError):
                while True:
                    held.append(listener.accept()[0])
                    held[-1].sendall(b"HTTP/1.1 200 OK\r\n\r\nhello")

        thread = threading.Thread(target=babble, daemon=True)
        thread.start()
        fault = refused(lambda: load(f"127.0.0.1:{listener.getsockname()[1]}", load_seconds=10))
        # what waits in accept does not hear that its socket is closed
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in held:
        connection.close()
    assert (fault.code, "does not speak gRPC" in fault.message) == ("environment_missing", True)


DYING = """
import os, sys
from mlmodelscope.rpc.server import Service, start_server

class Dying:
    name, packages, environment, formats = "dying", (), {}, ()
    def load(self, model):
        layers = [{"name": "x", "shape": [None], "element_type": "float32"}]
        named = dict.fromkeys(("framework", "version", "provider", "optimization", "precision"), "none")
        return {"threads": 1, "inputs": layers, "outputs": layers, **named}
    def predict(self, inputs):
        os.kill(os.getpid(), 9)
    def unload(self):
        pass

server = start_server(Service(Dying), "127.0.0.1:0")
sys.stdout.write(server.address + "\\n")
sys.stdout.flush()
server.wait()
"""


def test_a_program_that_dies_in_mid_call_is_a_fault_and_unload_still_works():
    with subprocess.Popen([sys.executable, "-c", DYING], stdout=subprocess.PIPE, text=True) as process:
        predictor, _ = load(process.stdout.readline().strip())
        fault = refused(lambda: predictor.predict([np.zeros(1, np.float32)]))
        assert fault.code == "predictor_failed"
        assert "during Predict" in fault.message
        predictor.unload()
        assert process.wait(60) == -signal.SIGKILL


def test_an_address_in_use_is_refused(listening):
    address = listening(Echo)
    done = subprocess.run(
        [str(COMMAND), "predictor", "serve", "null", "--address", address], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "another program listens" in done.stderr
    load(address)[0].unload()


def test_a_socket_that_a_dead_server_left_is_taken_over(socket_folder):
    path = socket_folder / "stale.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    process, address = serve("null", "--address", f"unix:{path}")
    assert load(address, outputs=[[1, 2]])[1]["engine"] == "null"
    end(process)
    assert not path.exists()


def test_an_evaluation_that_fails_leaves_no_model_behind(lab, listening):
    lab.photos()
    lab.write("photos/0-red/dark.png", b"no picture")
    model = lab.model(outputs=[{"type": "tensor", "element_type": "float32"}])
    address = listening(Echo, most_models=1)
    done = lab.run(
        *("evaluate", model, "-d", str(lab.root / "photos.yml"), "-f", f"remote@{address}"),
        # with shared memory, the server would know it all the same
        *("--launches", "1", "--queries", "6", "--duration", "0", "--option", "shared_memory=false"),
    )
    assert (done.code, "sample_invalid" in done.err) == (1, True), done.err
    load(address)[0].unload()


KILLED = """
import os, sys
from mlmodelscope.predictors.remote import Predictor

Predictor().load({"graph_path": "", "threads": 1, "options": {"address": sys.argv[1], "shared_memory": sys.argv[2]}})
os.kill(os.getpid(), 9)
"""


def test_a_client_that_was_killed_leaves_no_model_behind(listening, tmp_path):
    made = []

    class Remembered(Echo):
        def __init__(self):
            made.append(self)

    address = listening(Remembered, most_models=1, folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", KILLED, address, str(tmp_path)], timeout=60)
    assert (done.returncode, len(made)) == (-signal.SIGKILL, 1)
    predictor, _ = load(address, shared_memory=str(tmp_path))
    assert predictor._client.shares_memory
    assert "holds 1 models" in refused(lambda: load(address)).message
    predictor.unload()
    assert list(tmp_path.iterdir()) == []


def test_a_server_misses_a_killed_client_without_another_one(monkeypatch, tmp_path):
    unloaded = threading.Event()

    class Freed(Echo):
        def unload(self):
            unloaded.set()

    monkeypatch.setattr("mlmodelscope.rpc.server._LOOK_SECONDS", 0.05)
    server = start_server(Service(Freed, folder=str(tmp_path)), "127.0.0.1:0")
    waiting = threading.Thread(target=server.wait)
    waiting.start()
    subprocess.run([sys.executable, "-c", KILLED, server.address, str(tmp_path)], timeout=60)
    assert unloaded.wait(60)
    assert server.stop()
    waiting.join()


def test_a_client_that_gave_up_while_the_model_was_loaded_leaves_none_behind(listening):
    release, unloaded = threading.Event(), threading.Event()

    class Slow(Echo):
        def load(self, model):
            release.wait(60)
            return super().load(model)

        def unload(self):
            unloaded.set()

    address = listening(Slow, most_models=1)
    fault = refused(lambda: load(address, load_seconds=0.5, shared_memory=False))
    assert "load_seconds" in fault.hint
    release.set()
    assert unloaded.wait(60)
    load(address)[0].unload()


def test_a_call_that_hangs_does_not_keep_the_server(socket_folder):
    release, running = threading.Event(), threading.Event()

    class Hanging(Echo):
        def predict(self, inputs):
            running.set()
            release.wait(60)
            return inputs

    server = start_server(Service(Hanging), f"unix:{socket_folder}/hanging.sock")
    predictor, _ = load(server.address)
    with ThreadPoolExecutor(1) as caller:
        call = caller.submit(refused, lambda: predictor.predict([np.zeros(1, np.float32)]))
        assert running.wait(60)
        assert server.stop() is False
        assert call.result(60).code == "predictor_failed"
    assert list(socket_folder.iterdir()) == []
    release.set()
    predictor.unload()


HANGING = """
import time

class Predictor:
    name, packages, environment, formats = "hanging", (), {}, ()
    def load(self, model):
        layers = [{"name": "x", "shape": None, "element_type": "float32"}]
        return {"framework": "hanging", "version": "1", "threads": 1, "inputs": layers, "outputs": layers}
    def predict(self, inputs):
        print("hangs", flush=True)
        time.sleep(3600)
    def unload(self):
        pass
"""


@pytest.fixture
def hanging(tmp_path):
    """A plug-in whose calls do not come to their end, as a package that is installed."""
    (tmp_path / "hanging_predictor.py").write_text(HANGING)
    facts = tmp_path / "hanging_predictor-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: hanging-predictor\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[mlmodelscope.predictors]\nhanging = hanging_predictor:Predictor\n")
    return str(tmp_path)


@pytest.mark.parametrize("signals, code", [(1, 0), (2, 130)])
def test_ctrl_c_ends_a_server_whose_call_hangs(hanging, socket_folder, signals, code):
    path = socket_folder / "hangs.sock"
    process, address = serve("hanging", "--address", f"unix:{path}", PYTHONPATH=hanging)
    predictor, _ = load(address)
    with ThreadPoolExecutor(1) as caller:
        call = caller.submit(refused, lambda: predictor.predict([np.zeros(1, np.float32)]))
        assert process.stdout.readline() == "hangs\n"
        process.send_signal(signal.SIGINT)
        while path.exists():
            time.sleep(0.01)
        for _ in range(signals - 1):
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, "Traceback" in err) == (code, False), err
        assert call.result(60).code == "predictor_failed"
    predictor.unload()


@pytest.mark.needs("registry", "uv")
@pytest.mark.xdist_group("hosting")
class TestServedFromAnEnvironmentOfItsOwn:
    @pytest.fixture
    def home(self, lab, tmp_path_factory):
        """The lab's, with the environments and packages that other tests have made."""
        shared = tmp_path_factory.getbasetemp().parent / "hosting-home"
        lab.home.mkdir(parents=True, exist_ok=True)
        for name in ("environments", "cache"):
            (shared / name).mkdir(parents=True, exist_ok=True)
            (lab.home / name).symlink_to(shared / name)
        return str(lab.home)

    def test_another_version_than_ours_is_evaluated(self, lab, home):
        process, said = start("onnxruntime@1.17.x", MLMODELSCOPE_HOME=home)
        assert (said["framework"], said["version"], said["environment"]) == ("onnxruntime", "1.17.3", "venv")
        # no model is loaded, and yet it is needed
        (served,) = [one for one in Environments(Path(home)).list() if "onnxruntime" in one.frameworks]
        assert served.is_in_use
        record = lab.evaluate(lab.model(), dataset=lab.photos(), framework=f"remote@{said['address']}")
        assert record.status == "succeeded", record.failure
        assert record.accuracy.top1.value == pytest.approx(5 / 6)
        assert record.software.framework_version == "onnxruntime 1.17.3"
        lab.write("broken.onnx", b"nonsense")
        broken = lab.model("broken", source={"graph_path": "broken.onnx"})
        failed = lab.evaluate(broken, dataset=lab.photos(), framework=f"remote@{said['address']}")
        assert failed.failure.code == "model_format"
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0

    def test_its_process_ends_with_the_server(self, home):
        process, address = serve("onnxruntime@1.17.x", MLMODELSCOPE_HOME=home)
        predictor = Predictor()
        path = Path(home) / "linear.onnx"
        path.write_bytes(linear_onnx("n"))
        predictor.load({"graph_path": str(path), "threads": 1, "options": {"address": address}})
        (child,) = children_of(process.pid)
        with os.fdopen(os.pidfd_open(child)) as ended:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
            assert process.returncode == 0
            readable, _, _ = select.select([ended], [], [], 60)
        assert readable
        predictor.unload()

    def test_a_process_that_dies_is_a_fault_that_says_how(self, home):
        process, address = serve("onnxruntime@1.17.x", MLMODELSCOPE_HOME=home)
        path = Path(home) / "linear.onnx"
        path.write_bytes(linear_onnx("n"))
        predictor = Predictor()
        predictor.load({"graph_path": str(path), "threads": 1, "options": {"address": address}})
        (child,) = children_of(process.pid)
        os.kill(child, signal.SIGSEGV)
        fault = refused(lambda: predictor.predict(SAMPLES[0]))
        assert (fault.code, "SIGSEGV" in fault.message) == ("predictor_failed", True)
        predictor.load({"graph_path": str(path), "threads": 1, "options": {"address": address}})
        np.testing.assert_allclose(predictor.predict(SAMPLES[0])[0], expected()[0][0], rtol=1e-5)
        predictor.unload()
        end(process)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_cleanly(sent):
    process, address = serve("null")
    predictor, _ = load(address)
    process.send_signal(sent)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert refused(lambda: predictor.predict([])).code == "predictor_failed"
    predictor.unload()


@pytest.mark.parametrize(
    "arguments, code, text",
    [
        (["nonsense"], 2, "no framework named"),
        (["remote"], 2, "itself a client"),
        (["null", "-e", "container"], 2, "local or venv"),
        (["null", "-e", "venv"], 2, "no software stack is known for null"),
        (["onnxruntime@99.x", "-e", "local"], 2, "is needed"),
        (["onnxruntime@>=2 <1"], 2, "onnxruntime"),
        (["null", "--address", "nonsense"], 2, "no address"),
        (["null", "--address", "unix:/nowhere/x.sock"], 2, "no folder"),
        (["null", "--address", "192.0.2.1:5500"], 2, "cannot listen"),
    ],
)
def test_what_cannot_be_served_is_refused(arguments, code, text):
    done = subprocess.run([str(COMMAND), "predictor", "serve", *arguments], capture_output=True, text=True, timeout=60)
    assert (done.returncode, text in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
