"""Models of inference servers: MLServer and KServe's own for real, and small servers of ours for what goes wrong.

The one for REST follows the protocol's text (with the binary tensor extension) and shares no code with the predictor;
that for gRPC shares the messages.
"""

import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import numpy as np
import pytest

from mlmodelscope.predictors.kserve import Predictor
from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.rpc import inference_pb2 as inference

HERE = Path(__file__).parent
WEIGHTS = np.float32([[1, -2, 3], [0.5, 0, -1], [2, 2, 2], [-1, 1, 0]])
BIAS = np.float32([0.25, -0.5, 0])
X = np.float32([[1, 2, 3, 4], [-1, 0.5, 0, 2]])
Y = X @ WEIGHTS + BIAS
LAYERS = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
    "outputs": [{"name": name, "datatype": "FP32", "shape": [-1, 3]} for name in ("y", "z")],
}


def free_port():
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(command, address, folder):
    """A server process, once it answers."""
    with (
        (folder / "server.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, cwd=folder) as process,
    ):
        try:
            for _ in range(600):
                assert process.poll() is None, (folder / "server.log").read_text()
                try:
                    urllib.request.urlopen(f"{address}/v2/health/ready", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield address
        finally:
            process.kill()


@pytest.fixture(scope="module")
def model_servers():
    folder = os.environ.get("MODEL_SERVERS")
    return Path(folder) if folder else Path(shutil.which("mlserver")).parent


@pytest.fixture(scope="module")
def mlservers(tmp_path_factory, model_servers):
    folder = tmp_path_factory.mktemp("mlserver")
    ports = [free_port() for _ in range(3)]
    names = ("http_port", "grpc_port", "metrics_port")
    settings = {"host": "127.0.0.1", "parallel_workers": 0, **dict(zip(names, ports, strict=True))}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "kserve_runtime.py").write_text((HERE / "kserve_runtime.py").read_text())
    model = {"name": "linear", "implementation": "kserve_runtime.Linear", "platform": "numpy", **LAYERS}
    (folder / "model-settings.json").write_text(json.dumps(model))
    with running([str(model_servers / "mlserver"), "start", "."], f"http://127.0.0.1:{ports[0]}", folder) as rest:
        yield rest, f"grpc://127.0.0.1:{ports[1]}"


@pytest.fixture(scope="module")
def kserves(tmp_path_factory, model_servers):
    folder, ports = tmp_path_factory.mktemp("kserve"), [free_port() for _ in range(2)]
    command = [str(model_servers / "python"), str(HERE / "kserve_server.py"), *map(str, ports)]
    with running(command, f"http://127.0.0.1:{ports[0]}", folder) as rest:
        yield rest, f"grpc://127.0.0.1:{ports[1]}"


def load(address, **changes):
    options = {"address": address, "model": "linear", **changes.pop("options", {})}
    predictor = Predictor()
    facts = predictor.load({"graph_path": "", "threads": 1, "options": options, **changes})
    return predictor, facts


def refused(call):
    with pytest.raises(PredictorFault) as caught:
        call()
    json.dumps(caught.value.fields)
    return caught.value


@pytest.mark.needs("model-servers")
class TestRealServers:
    @pytest.fixture(params=["mlservers", "kserves"])
    def addresses(self, request):
        return request.getfixturevalue(request.param)

    @pytest.fixture(params=[0, 1], ids=["rest", "grpc"])
    def address(self, request, addresses):
        return addresses[request.param]

    @pytest.mark.parametrize("way", [0, 1], ids=["rest", "grpc"])
    def test_facts_are_the_servers(self, mlservers, way):
        predictor, facts = load(mlservers[way])
        assert (facts["engine"], facts["provider"]) == ("mlserver", "mlserver: numpy")
        assert facts["version"][0].isdigit()
        assert facts["inputs"] == [{"name": "x", "shape": [None, 4], "element_type": "float32"}]
        predictor.unload()

    def test_a_batch_is_answered(self, address):
        predictor, _ = load(address)
        y, z = predictor.predict([X])
        np.testing.assert_allclose(y, Y, rtol=1e-5)
        np.testing.assert_allclose(z, np.maximum(Y, 0), rtol=1e-5)
        assert y.dtype == np.float32
        predictor.unload()

    def test_outputs_are_chosen(self, address):
        predictor, _ = load(address, outputs=[{"layer_name": "z"}, {"layer_name": 0}])
        z, y = predictor.predict([X])
        np.testing.assert_allclose(y, Y, rtol=1e-5)
        np.testing.assert_allclose(z, np.maximum(Y, 0), rtol=1e-5)
        predictor.unload()

    def test_bytes_are_understood(self, kserves):
        predictor, _ = load(kserves[0], options={"binary": True})
        np.testing.assert_array_equal(predictor.predict([X])[0], Y)
        predictor.unload()

    def test_by_grpc_numbers_are_understood_too(self, addresses):
        predictor, _ = load(addresses[1], options={"binary": False})
        np.testing.assert_allclose(predictor.predict([X])[0], Y, rtol=1e-5)
        predictor.unload()

    def test_the_wrong_port_is_named(self, addresses):
        rest, spoken = addresses
        fault = refused(lambda: load(spoken.replace("grpc:", "http:")))
        assert (fault.code, "does not speak HTTP" in fault.message) == ("environment_missing", True)
        assert f"kserve-v2@{spoken}" in fault.hint
        fault = refused(lambda: load(rest.replace("http:", "grpc:")))
        assert (fault.code, "does not speak gRPC" in fault.message) == ("environment_missing", True)


class Handler(BaseHTTPRequestHandler):
    """The protocol's text in a few lines. `server.answer` replaces the body of an inference where a test wants that."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        metadata = {"name": "tiny", "version": "0.1", "extensions": self.server.extensions}
        found = {
            "/v2": metadata,
            "/v2/models/linear": {"name": "linear", "platform": "numpy", **self.server.layers},
            "/v2/models/linear/ready": {},
        }
        if self.path.endswith("/ready") and self.server.pending:
            self.server.pending -= 1
            self.reply(self.server.pending_status, b"{}")
        elif self.path in found:
            self.reply(200, json.dumps(found[self.path]).encode())
        else:
            self.reply(404, b'{"error": "no such model"}')

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        size = int(self.headers.get("Inference-Header-Content-Length", len(body)))
        request = json.loads(body[:size])
        self.server.requests.append(request)
        if self.server.answer is not None:
            return self.server.answer(self)
        (given,) = request["inputs"]
        if size < len(body):
            x = np.frombuffer(body[size:], np.float32)
            assert given["parameters"] == {"binary_data_size": x.nbytes}
        else:
            x = np.float32(given["data"])
        sums = x.reshape(given["shape"]) @ WEIGHTS + BIAS
        found = {"y": sums, "z": np.maximum(sums, 0)}
        outputs, tail = [], b""
        for wanted in request["outputs"]:
            array = found[wanted["name"]]
            output = {"name": wanted["name"], "datatype": "FP32", "shape": list(array.shape)}
            if wanted.get("parameters", {}).get("binary_data"):
                output["parameters"] = {"binary_data_size": array.nbytes}
                tail += array.tobytes()
            else:
                output["data"] = array.ravel().tolist()
            outputs.append(output)
        text = json.dumps({"model_name": "linear", "outputs": outputs}).encode()
        headers = {"Inference-Header-Content-Length": str(len(text))} if tail else {}
        return self.reply(200, text + tail, **headers)

    def reply(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def tiny():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.extensions, server.layers, server.answer, server.pending, server.requests = [], LAYERS, None, 0, []
    server.pending_status, server.daemon_threads = 503, True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    server.address = f"http://127.0.0.1:{server.server_port}"
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("extensions", [[], ["classification", "binary_tensor_data"]])
def test_bytes_are_sent_where_the_server_offers_it(tiny, extensions):
    tiny.extensions = extensions
    predictor, _ = load(tiny.address)
    y, z = predictor.predict([np.asfortranarray(X)])
    np.testing.assert_array_equal(y, Y)
    np.testing.assert_array_equal(z, np.maximum(Y, 0))
    assert y.flags.writeable
    assert ("data" in tiny.requests[0]["inputs"][0]) is not bool(extensions)
    predictor.unload()


def test_a_model_that_is_still_loading_is_waited_for(tiny):
    tiny.pending = 2
    load(tiny.address)[0].unload()
    assert tiny.pending == 0
    tiny.pending = 1000
    assert "503" in refused(lambda: load(tiny.address, options={"load_seconds": 0.3})).message


@pytest.mark.parametrize("status", [400, 401, 404, 405, 500])
def test_a_refusal_is_not_waited_out(tiny, status):
    tiny.pending, tiny.pending_status = 1000, status
    assert f"status {status}" in refused(lambda: load(tiny.address, options={"load_seconds": 60})).message
    assert tiny.pending == 999


@pytest.mark.parametrize(("binary", "text"), [(True, "a\ud800"), (False, "a\ud800"), (False, b"\xff")])
@pytest.mark.parametrize("way", ["rest", "grpc"])
def test_texts_that_cannot_be_sent_are_refused(tiny, spoken, way, binary, text):
    layers = {side: [{"name": "t", "datatype": "BYTES", "shape": [-1]}] for side in LAYERS}
    tiny.layers, spoken.answers["ModelMetadata"] = layers, inference.ModelMetadataResponse(**layers)
    predictor, _ = load(tiny.address if way == "rest" else spoken.address, options={"binary": binary})
    assert refused(lambda: predictor.predict([np.array([text], object)])).code == "shape_mismatch"
    predictor.unload()


@pytest.mark.parametrize(
    "given, code",
    [
        ([X.astype(np.float64)], "shape_mismatch"),
        ([X[:, :3]], "shape_mismatch"),
        ([X, X], "shape_mismatch"),
        ([X.tolist()], "shape_mismatch"),
        ([X.astype(">f4")], "shape_mismatch"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_before_they_are_sent(tiny, given, code):
    predictor, _ = load(tiny.address)
    fault = refused(lambda: predictor.predict(given))
    assert fault.code == code
    assert tiny.requests == []
    predictor.unload()


def test_a_fixed_batch_is_respected(tiny):
    tiny.layers = {**LAYERS, "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4]}]}
    predictor, _ = load(tiny.address)
    assert refused(lambda: predictor.predict([X])).code == "batch_unsupported"
    predictor.unload()


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_an_unknown_layer_lists_those_that_exist(tiny, side):
    fault = refused(lambda: load(tiny.address, **{side: [{"layer_name": "nonsense"}]}))
    assert fault.fields["known"] == [layer["name"] for layer in LAYERS[side]]


def test_a_server_that_does_not_tell_its_layers_needs_them_from_the_manifest(tiny):
    tiny.layers = {}
    assert "name every input" in refused(lambda: load(tiny.address)).hint
    layers = {
        "inputs": [{"layer_name": "x", "element_type": "float32"}],
        "outputs": [{"layer_name": "y"}],
    }
    predictor, facts = load(tiny.address, **layers)
    np.testing.assert_array_equal(predictor.predict([X])[0], Y)
    assert facts["inputs"][0]["shape"] is None
    predictor.unload()


def answering(outputs):
    return lambda handler: handler.reply(200, json.dumps({"outputs": outputs}).encode())


Z = {"name": "z", "datatype": "FP32", "shape": [1], "data": [0]}
GARBAGE = {
    "no JSON": lambda handler: handler.reply(200, b"\xff\xfe"),
    "no outputs": lambda handler: handler.reply(200, b"[]"),
    "an output is missing": answering([Z]),
    "too few numbers": answering([{"name": "y", "datatype": "FP32", "shape": [2, 3], "data": [1]}, Z]),
    "another type": answering([{"name": "y", "datatype": "FP64", "shape": [1], "data": [1]}, Z]),
    "an unknown type": answering([{"name": "y", "datatype": "FP31", "shape": [1], "data": [1]}, Z]),
    "words for numbers": answering([{"name": "y", "datatype": "FP32", "shape": [1], "data": ["a"]}, Z]),
    "bytes that are not there": answering(
        [{"name": "y", "datatype": "FP32", "shape": [9], "parameters": {"binary_data_size": 36}}, Z]
    ),
    "a header that lies": lambda handler: handler.reply(200, b"{}", Inference_Header_Content_Length="999"),
    "a header that is no number": lambda handler: handler.reply(200, b"{}", Inference_Header_Content_Length="x"),
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_is_a_typed_fault(tiny, garbage):
    tiny.answer = GARBAGE[garbage]
    predictor, _ = load(tiny.address)
    fault = refused(lambda: predictor.predict([X]))
    assert fault.code == "predictor_failed"
    assert "garbage" in fault.message
    predictor.unload()


DESCRIBED = {
    "names for layers": {"inputs": ["x"]},
    "a layer without a name": {"inputs": [{"datatype": "FP32", "shape": [1]}]},
    "words for sizes": {"inputs": [{"name": "x", "datatype": "FP32", "shape": ["a"]}]},
    "no list": {"outputs": True},
}


@pytest.mark.parametrize("described", DESCRIBED)
def test_a_model_that_is_described_with_garbage_is_a_typed_fault(tiny, described):
    tiny.layers = {**LAYERS, **DESCRIBED[described]}
    fault = refused(lambda: load(tiny.address))
    assert (fault.code, "garbage" in fault.message) == ("predictor_failed", True)


def test_extensions_that_are_no_list_offer_nothing(tiny):
    tiny.extensions = True
    predictor, _ = load(tiny.address)
    np.testing.assert_array_equal(predictor.predict([X])[0], Y)
    predictor.unload()


def test_a_refusal_that_is_no_text_is_told_as_it_came(tiny):
    tiny.answer = lambda handler: handler.reply(500, b'{"error": {"code": 7}}')
    predictor, _ = load(tiny.address)
    assert refused(lambda: predictor.predict([X])).message.endswith('status 500: {"error": {"code": 7}}')
    predictor.unload()


@pytest.mark.parametrize("has_source", [True, False])
def test_a_model_of_the_server_is_evaluated_without_files(lab, tiny, has_source):
    def means(handler):
        (given,) = handler.server.requests[-1]["inputs"]
        scores = np.float32(given["data"]).reshape(given["shape"]).mean((2, 3)) * 10
        output = {"name": "scores", "datatype": "FP32", "shape": list(scores.shape), "data": scores.ravel().tolist()}
        return answering([output])(handler)

    tiny.layers = {
        "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 3, 8, 8]}],
        "outputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, 3]}],
    }
    tiny.answer = means
    changes = {} if has_source else {"source": None}
    model = lab.model("linear", framework={"name": "kserve-v2"}, **changes)
    record = lab.evaluate(model, dataset=lab.photos(), framework=f"kserve-v2@{tiny.address}")
    assert record.failure is None, record.failure
    assert record.accuracy.top1.value == pytest.approx(5 / 6)
    assert (record.software.framework, record.software.framework_version) == ("kserve-v2", "tiny 0.1")
    assert (record.model.weights_digest is None) is not has_source


def test_what_the_server_says_is_told(tiny):
    tiny.answer = lambda handler: handler.reply(500, b'{"error": "out of memory\\nat line 3"}')
    predictor, _ = load(tiny.address)
    fault = refused(lambda: predictor.predict([X]))
    assert fault.message.endswith("status 500: out of memory")
    predictor.unload()


def test_a_server_that_hangs_is_given_up(tiny):
    release = threading.Event()
    tiny.answer = lambda handler: release.wait(60)
    predictor, _ = load(tiny.address, options={"predict_seconds": 0.5})
    fault = refused(lambda: predictor.predict([X]))
    release.set()
    assert "within 0.5 s" in fault.message
    predictor.unload()


def test_a_server_that_dies_in_mid_call_is_a_fault(tiny):
    def die(handler):
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)

    tiny.answer = die
    predictor, _ = load(tiny.address)
    fault = refused(lambda: predictor.predict([X]))
    assert (fault.code, "ended or broke off" in fault.message) == ("predictor_failed", True)
    predictor.unload()


def test_a_connection_that_was_idle_for_too_long_is_made_anew(tiny):
    predictor, _ = load(tiny.address)
    predictor._server._connection.sock.shutdown(socket.SHUT_RDWR)
    np.testing.assert_array_equal(predictor.predict([X])[0], Y)
    predictor.unload()


DEAD = ["http://127.0.0.1:1", "127.0.0.1:8000", "ftp://host", "http://host:x", "", None]
DEAD += ["http://a..b:8000", f"http://{'a' * 64}:80", "http://127.0.0.1/ä", "http://127.0.0.1/a b"]
DEAD_BY_GRPC = ["grpc://127.0.0.1:1", "grpc://unix:/tmp/s", "grpc://host", "grpc://", "grpc://a..b:80"]


@pytest.mark.parametrize("address", [*DEAD, *DEAD_BY_GRPC])
def test_a_dead_address_says_so(address):
    fault = refused(lambda: load(address))
    assert fault.code == "environment_missing"


@pytest.mark.parametrize(
    "options",
    [
        {"nonsense": 1},
        {"load_seconds": 0},
        {"predict_seconds": True},
        {"predict_seconds": "long"},
        {"model": ""},
        {"model": 3},
        {"binary": "perhaps"},
    ],
)
def test_options_are_checked(tiny, options):
    (name,) = options
    assert refused(lambda: load(tiny.address, options=options)).fields["option"] == name


def test_options_are_taken_as_the_command_line_gives_them(tiny):
    predictor, _ = load(tiny.address, options={"load_seconds": "20", "predict_seconds": "20.5", "binary": "true"})
    np.testing.assert_array_equal(predictor.predict([X])[0], Y)
    assert "data" not in tiny.requests[0]["inputs"][0]
    predictor.unload()


def test_the_manifests_name_is_the_models_name(tiny):
    predictor = Predictor()
    predictor.load({"name": "linear", "threads": 1, "options": {"address": tiny.address}})
    np.testing.assert_array_equal(predictor.predict([X])[0], Y)
    predictor.unload()
    assert refused(lambda: predictor.predict([X])).code == "predictor_failed"


class Inference:
    """A gRPC server of the protocol whose answers a test chooses: a message, a status to refuse with, or a wait."""

    def __init__(self):
        self.answers = {
            "ServerMetadata": inference.ServerMetadataResponse(name="tiny", version="0.1"),
            "ModelReady": inference.ModelReadyResponse(ready=True),
            "ModelMetadata": inference.ModelMetadataResponse(
                platform="numpy", **{side: [{**one} for one in LAYERS[side]] for side in LAYERS}
            ),
            "ModelInfer": self.infer,
        }
        self.requests = []
        self.server = grpc.server(ThreadPoolExecutor(2))
        serving = {
            name: grpc.unary_unary_rpc_method_handler(
                lambda request, context, name=name: self.reply(name, request, context),
                getattr(inference, f"{name}Request").FromString,
                lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            )
            for name in self.answers
        }
        handler = grpc.method_handlers_generic_handler("inference.GRPCInferenceService", serving)
        self.server.add_generic_rpc_handlers((handler,))
        self.address = f"grpc://127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def reply(self, name, request, context):
        answer = self.answers[name]
        if isinstance(answer, grpc.StatusCode):
            context.abort(answer, f"{name} is refused\nin two lines")
        return answer(request) if callable(answer) else answer

    def infer(self, request):
        self.requests.append(request)
        x = np.frombuffer(request.raw_input_contents[0], np.float32).reshape(list(request.inputs[0].shape))
        sums = x @ WEIGHTS + BIAS
        found = {"y": sums, "z": np.maximum(sums, 0)}
        answer = inference.ModelInferResponse()
        for wanted in request.outputs:
            answer.outputs.add(name=wanted.name, datatype="FP32", shape=sums.shape)
            answer.raw_output_contents.append(found[wanted.name].tobytes())
        return answer


@pytest.fixture
def spoken():
    made = Inference()
    yield made
    made.server.stop(0).wait()


def test_by_grpc_a_batch_is_bytes_there_and_back(spoken):
    predictor, facts = load(spoken.address, options={"model_version": 3})
    y, z = predictor.predict([np.asfortranarray(X)])
    np.testing.assert_array_equal(y, Y)
    np.testing.assert_array_equal(z, np.maximum(Y, 0))
    assert y.flags.writeable
    assert (facts["engine"], facts["version"], facts["provider"]) == ("tiny", "0.1", "tiny: numpy")
    (request,) = spoken.requests
    assert (request.model_name, request.model_version) == ("linear", "3")
    predictor.unload()
    assert refused(lambda: predictor.predict([X])).code == "predictor_failed"


def test_by_grpc_a_model_that_is_still_loading_is_waited_for(spoken):
    asked = []

    def ready(request):
        asked.append(request)
        return inference.ModelReadyResponse(ready=len(asked) > 2)

    spoken.answers["ModelReady"] = ready
    load(spoken.address)[0].unload()
    assert len(asked) == 3
    spoken.answers["ModelReady"] = inference.ModelReadyResponse()
    fault = refused(lambda: load(spoken.address, options={"load_seconds": 0.3}))
    assert "was not ready within 0.3 s" in fault.message


def told(*outputs, raw=()):
    return inference.ModelInferResponse(outputs=outputs, raw_output_contents=raw)


EMPTY = {"name": "z", "datatype": "FP32", "shape": [0]}
GARBLED = {
    "no message": b"\xff\xff\xff",
    "no outputs": told(),
    "too few bytes": told({"name": "y", "datatype": "FP32", "shape": [2, 3]}, EMPTY, raw=[b"1234", b""]),
    "bytes of one only": told(EMPTY, {"name": "y", "datatype": "FP32", "shape": [1]}, raw=[b""]),
    "another type": told({"name": "y", "datatype": "FP64", "shape": [0]}, EMPTY),
    "an unknown type": told({"name": "y", "datatype": "FP31", "shape": [0]}, EMPTY),
    "elements of another type": told(
        {"name": "y", "datatype": "FP32", "shape": [1], "contents": {"int_contents": [1]}}, EMPTY
    ),
    "a size below zero": told({"name": "y", "datatype": "FP32", "shape": [-1]}, EMPTY),
}


@pytest.mark.parametrize("garbage", GARBLED)
def test_by_grpc_garbage_is_a_typed_fault(spoken, garbage):
    spoken.answers["ModelInfer"] = GARBLED[garbage]
    predictor, _ = load(spoken.address)
    fault = refused(lambda: predictor.predict([X]))
    assert (fault.code, "garbage" in fault.message) == ("predictor_failed", True)
    predictor.unload()


@pytest.mark.parametrize("datatype, name", [("INT8", "int"), ("UINT64", "uint64"), ("BOOL", "bool"), ("FP64", "fp64")])
def test_by_grpc_numbers_come_in_the_list_of_their_type(spoken, datatype, name):
    spoken.answers["ModelMetadata"].outputs[0].datatype = datatype
    spoken.answers["ModelInfer"] = told(
        {"name": "y", "datatype": datatype, "shape": [2, 1], "contents": {f"{name}_contents": [1, 0]}}, EMPTY
    )
    predictor, _ = load(spoken.address)
    y, z = predictor.predict([X])
    assert (y.tolist(), z.shape) == ([[1], [0]], (0,))
    predictor.unload()


def test_by_grpc_texts_and_halves_cross(spoken):
    spoken.answers["ModelMetadata"] = inference.ModelMetadataResponse(
        inputs=[{"name": "t", "datatype": "BYTES", "shape": [-1]}, {"name": "h", "datatype": "FP16", "shape": [-1]}],
        outputs=[{"name": "t", "datatype": "BYTES", "shape": [-1]}, {"name": "h", "datatype": "FP16", "shape": [-1]}],
    )

    def echo(request):
        assert len(request.raw_input_contents) == 2
        outputs = [{"name": one.name, "datatype": one.datatype, "shape": one.shape} for one in request.inputs]
        return told(*outputs, raw=request.raw_input_contents)

    spoken.answers["ModelInfer"] = echo
    predictor, _ = load(spoken.address, options={"binary": False})
    texts, halves = np.array(["one", "zwei"], object), np.float16([1.5, 2])
    t, h = predictor.predict([texts, halves])
    assert (t.tolist(), h.tolist(), h.dtype) == (["one", "zwei"], [1.5, 2], np.float16)
    predictor.unload()


@pytest.mark.parametrize("call", ["ServerMetadata", "ModelReady", "ModelMetadata", "ModelInfer"])
@pytest.mark.parametrize("status", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL])
def test_by_grpc_what_the_server_says_is_told(spoken, call, status):
    spoken.answers[call] = status

    def ask():
        predictor, _ = load(spoken.address)
        try:
            predictor.predict([X])
        finally:
            predictor.unload()

    fault = refused(ask)
    assert (fault.code, fault.fields["status"]) == ("predictor_failed", status.name)
    assert call in fault.message
    if status is not grpc.StatusCode.UNIMPLEMENTED:
        assert fault.message.endswith(f"{call} is refused")
    if call in ("ModelReady", "ModelMetadata") and status is grpc.StatusCode.NOT_FOUND:
        assert "option model" in fault.hint


@pytest.mark.parametrize("status", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_by_grpc_a_server_that_is_busy_has_not_ended(spoken, status):
    spoken.answers["ModelInfer"] = status
    predictor, _ = load(spoken.address)
    fault = refused(lambda: predictor.predict([X]))
    assert "failed in ModelInfer: ModelInfer is refused" in fault.message
    predictor.unload()


def test_by_grpc_a_server_that_hangs_is_given_up(spoken):
    release = threading.Event()
    spoken.answers["ModelInfer"] = lambda _: release.wait(60) and told()
    predictor, _ = load(spoken.address, options={"predict_seconds": 0.5})
    fault = refused(lambda: predictor.predict([X]))
    release.set()
    assert "within 0.5 s" in fault.message
    predictor.unload()


def test_by_grpc_a_server_that_ends_is_a_fault(spoken):
    predictor, _ = load(spoken.address)
    spoken.server.stop(0).wait()
    fault = refused(lambda: predictor.predict([X]))
    assert (fault.code, "ended or broke off" in fault.message) == ("predictor_failed", True)
    predictor.unload()


def test_by_grpc_a_model_of_the_server_is_evaluated(lab, spoken):
    def means(request):
        given = np.frombuffer(request.raw_input_contents[0], np.float32).reshape(list(request.inputs[0].shape))
        scores = given.mean((2, 3)) * 10
        return told({"name": "scores", "datatype": "FP32", "shape": scores.shape}, raw=[scores.tobytes()])

    spoken.answers["ModelMetadata"] = inference.ModelMetadataResponse(
        inputs=[{"name": "image", "datatype": "FP32", "shape": [-1, 3, 8, 8]}],
        outputs=[{"name": "scores", "datatype": "FP32", "shape": [-1, 3]}],
    )
    spoken.answers["ModelInfer"] = means
    model = lab.model("linear", framework={"name": "kserve-v2"}, source=None)
    record = lab.evaluate(model, dataset=lab.photos(), framework=f"kserve-v2@{spoken.address}")
    assert record.failure is None, record.failure
    assert record.accuracy.top1.value == pytest.approx(5 / 6)
    assert (record.software.framework, record.software.framework_version) == ("kserve-v2", "tiny 0.1")
