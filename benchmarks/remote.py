"""Claims about predictors behind an address: a tensor through gRPC and shared memory against plain gRPC of its bytes.

The peer is the plain way to send a tensor with gRPC: a message with type, shape and bytes, read as an array without a
copy on both sides. The same bytes with no message round them, which no program could make an array of, are printed too.
"""

from __future__ import annotations

import atexit
import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from harness import Block, Claim, Skipped, run

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "600 KB to a remote predictor and back: shared memory / plain gRPC"
LIMIT = 0.5
CALLS = 40
SERVER = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc
import numpy as np
from mlmodelscope.rpc.channel import OPTIONS
from mlmodelscope.rpc.predictor_pb2 import Tensor
from mlmodelscope.rpc.server import Service, start_server

class Echo:
    name, packages, environment, formats = "echo", (), {}, ()
    def load(self, model):
        layers = [{"name": "x", "shape": None, "element_type": "float32"}]
        named = dict.fromkeys(("framework", "version", "provider", "optimization", "precision"), "none")
        return {"threads": 1, "inputs": layers, "outputs": layers, **named}
    def predict(self, inputs):
        return inputs
    def unload(self):
        pass

ours = start_server(Service(Echo), "unix:" + sys.argv[1])
plain = grpc.server(ThreadPoolExecutor(1), options=OPTIONS)
def tensor_echo(request, context):
    array = np.frombuffer(request.data, request.element_type).reshape(request.shape)
    return Tensor(element_type=array.dtype.name, shape=array.shape, data=array.tobytes())
handlers = {
    "Bytes": grpc.unary_unary_rpc_method_handler(lambda request, context: request),
    "Tensor": grpc.unary_unary_rpc_method_handler(tensor_echo, Tensor.FromString, Tensor.SerializeToString),
}
plain.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("plain", handlers),))
plain.add_insecure_port("unix:" + sys.argv[2])
plain.start()
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.read()
ours.stop()
plain.stop(None).wait()
"""


def echoes() -> dict[str, Callable[[], object]]:
    """One call of each kind with a tensor of 600 KB, there and back, to one server process over a Unix socket."""
    import grpc

    from mlmodelscope.predictors.remote import Predictor
    from mlmodelscope.rpc.channel import OPTIONS
    from mlmodelscope.rpc.predictor_pb2 import Tensor

    folder = tempfile.TemporaryDirectory(prefix="bench-")
    paths = [str(Path(folder.name) / name) for name in ("ours", "plain")]
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, *paths], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    tensor = np.random.default_rng(0).random((1, 3, 224, 224), np.float32)

    def remote(*, shared_memory: bool) -> Predictor:
        predictor = Predictor()
        options = {"address": f"unix:{paths[0]}", "shared_memory": shared_memory}
        predictor.load({"graph_path": "", "threads": 1, "options": options})
        return predictor

    shared, inline = remote(shared_memory=True), remote(shared_memory=False)
    channel = grpc.insecure_channel(f"unix:{paths[1]}", options=OPTIONS)
    raw: Any = channel.unary_unary("/plain/Bytes")
    message: Any = channel.unary_unary("/plain/Tensor", Tensor.SerializeToString, Tensor.FromString)
    content = tensor.tobytes()

    def plain() -> object:
        answer = message(Tensor(element_type="float32", shape=tensor.shape, data=tensor.tobytes()))
        return np.frombuffer(answer.data, answer.element_type).reshape(answer.shape)

    def end() -> None:
        for predictor in (shared, inline):
            predictor.unload()
        channel.close()
        server.communicate(timeout=30)
        folder.cleanup()

    atexit.register(end)
    return {
        "shared memory": lambda: shared.predict([tensor]),
        "in messages": lambda: inline.predict([tensor]),
        "plain gRPC": plain,
        "bare bytes": lambda: raw(content),
    }


def median_of(call: Callable[[], object]) -> Block:
    def block() -> float:
        times = []
        for _ in range(CALLS):
            began = time.perf_counter_ns()
            call()
            times.append(time.perf_counter_ns() - began)
        return statistics.median(times) / 1e9

    return block


def claims() -> list[Claim | Skipped]:
    if importlib.util.find_spec("grpc") is None:
        return [Skipped(NAME, "gRPC is not installed")]
    calls = echoes()
    return [Claim(NAME, LIMIT, median_of(calls["shared memory"]), median_of(calls["plain gRPC"]))]


if __name__ == "__main__":
    sys.exit(run(claims()))
