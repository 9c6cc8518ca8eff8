"""Claims about a framework in its own environment: what it costs to make, to start, to run in, to hand tensors to."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from harness import Absolute, Added, Block, Claim, Skipped, run
from inference import SIDE, slow_model
from mlmodelscope.core.settings import framework_variables
from mlmodelscope.core.stack import BuiltEnvironment
from mlmodelscope.core.versions import parse_constraint
from mlmodelscope.hosting import _Contained
from mlmodelscope.predictors import onnxruntime
from mlmodelscope.provision.containers import Engine
from mlmodelscope.provision.environments import Environments
from mlmodelscope.provision.portable import portable_folder
from mlmodelscope.resolve.stacks import need_of
from mlmodelscope.worker.foreign import ForeignPredictor, open_foreign
from mlmodelscope.worker.job import FrameworkHost
from mlmodelscope.worker.shim import inference_loop
from remote import median_of

HOME = Path(__file__).resolve().parents[1] / ".cache" / "bench-home"
TESTS = Path(__file__).resolve().parents[1] / "tests" / "integration"
QUERIES = 12
MANIFEST = """
name: Slow
version: 1.0.0
license: Apache-2.0
framework: {name: onnxruntime, version: "*"}
inputs:
  - {type: image, layer_name: input, steps: [{decode: {}}, {resize: {dimensions: [3, 112, 112]}}, {layout: CHW}]}
outputs:
  - {type: feature, layer_name: output}
source: {graph_path: slow.onnx}
"""
PLAIN = """
import sys
from concurrent.futures import ThreadPoolExecutor
import grpc
import numpy as np
from mlmodelscope.rpc.channel import OPTIONS
from mlmodelscope.rpc.predictor_pb2 import Tensor
answer = np.zeros((1, 1000), np.float32)
def take(request, context):
    np.frombuffer(request.data, request.element_type).reshape(request.shape)
    return Tensor(element_type="float32", shape=answer.shape, data=answer.tobytes())
server = grpc.server(ThreadPoolExecutor(1), options=OPTIONS)
handler = grpc.unary_unary_rpc_method_handler(take, Tensor.FromString, Tensor.SerializeToString)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("plain", {"Take": handler}),))
server.add_insecure_port("unix:" + sys.argv[1])
server.start()
sys.stdout.write("ready\\n")
sys.stdout.flush()
sys.stdin.read()
server.stop(None).wait()
"""


def built() -> BuiltEnvironment:
    """The same ONNX Runtime as ours, in an environment of its own."""
    import onnxruntime as installed

    return Environments(HOME).make(need_of("onnxruntime", parse_constraint(installed.__version__)))


def opened(environment: BuiltEnvironment, entry_point: str) -> ForeignPredictor:
    variables = framework_variables(2, onnxruntime.Predictor.environment)
    host = FrameworkHost(python=environment.python, portable=str(portable_folder(HOME)), variables=variables)
    predictor = open_foreign(host, entry_point)
    atexit.register(predictor.close)
    return predictor


def starting(folder: Path) -> Callable[[str], Block]:
    """Milliseconds of a whole `mlmodelscope predict` in an environment of the given kind."""
    from PIL import Image

    (folder / "slow.yml").write_text(MANIFEST)
    Image.new("RGB", (64, 64)).save(folder / "photo.png")
    command = [sys.executable, "-m", "mlmodelscope.cli.main", "predict", str(folder / "slow.yml")]

    def of_kind(kind: str) -> Block:
        def block() -> float:
            begin = time.perf_counter()
            subprocess.run(
                [*command, str(folder / "photo.png"), "--environment", kind, "--json"],
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "MLMODELSCOPE_HOME": str(HOME)},
            )
            return 1000 * (time.perf_counter() - begin)

        return block

    return of_kind


def cold() -> Block:
    """Seconds to make an environment whose packages are in the cache."""
    environments = Environments(HOME)
    need = need_of("onnxruntime", parse_constraint("1.17.3"))
    environments.make(need)

    def block() -> float:
        environments.remove(environments.make(need).digest)
        begin = time.perf_counter()
        environments.make(need)
        return time.perf_counter() - begin

    return block


def in_venv(predictor: ForeignPredictor, queries: list[list[np.ndarray]], folder: Path) -> Block:
    progress = folder / "progress"
    progress.write_bytes(bytes(8))

    def block() -> float:
        begins, ends = predictor.inference_loop(queries, 0, QUERIES, progress)
        return statistics.median([end - begin for begin, end in zip(begins, ends, strict=True)])

    return block


def in_process(predictor: onnxruntime.Predictor, queries: list[list[np.ndarray]]) -> Block:
    progress = memoryview(array("q", [0]))

    def block() -> float:
        begins, ends = inference_loop(predictor.predict, queries, 0, QUERIES, time.monotonic_ns, progress)
        return statistics.median([end - begin for begin, end in zip(begins, ends, strict=True)])

    return block


def in_container(stack: ExitStack, model: dict[str, object], folder: Path) -> ForeignPredictor:
    """ONNX Runtime in a container of a private Podman, as an evaluation starts one."""
    spec = importlib.util.spec_from_file_location("engine", TESTS / "engine.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["engine"] = module
    spec.loader.exec_module(module)
    private = stack.enter_context(module.private_engine())
    engine = stack.enter_context(Engine(private.address, HOME))
    facts = engine.inspect(private.full)
    host = _Contained(
        engine=engine,
        image=facts.digest,
        python=facts.interpreter("onnxruntime").path,
        portable=portable_folder(HOME),
        variables=framework_variables(2, onnxruntime.Predictor.environment),
        memory_bytes=None,
        network=False,
    )
    opened_host = stack.enter_context(host.opened(folder, [str(model["graph_path"])]))
    assert opened_host is not None
    assert opened_host.listener is not None
    # the worker has a copy of the descriptor, and closes that
    opened_host = opened_host.model_copy(update={"listener": os.dup(opened_host.listener)})
    predictor = open_foreign(opened_host, "mlmodelscope.predictors.onnxruntime:Predictor")
    stack.callback(predictor.close)
    return predictor


def plain_grpc(folder: Path, tensor: np.ndarray) -> Callable[[], object]:
    import grpc

    from mlmodelscope.rpc.channel import OPTIONS
    from mlmodelscope.rpc.predictor_pb2 import Tensor

    path = str(folder / "plain.sock")
    server = subprocess.Popen(
        [sys.executable, "-c", PLAIN, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    channel = grpc.insecure_channel(f"unix:{path}", options=OPTIONS)
    take = channel.unary_unary("/plain/Take", Tensor.SerializeToString, Tensor.FromString)

    def end() -> None:
        channel.close()
        server.communicate(timeout=30)

    atexit.register(end)

    def call() -> object:
        answer = take(Tensor(element_type="float32", shape=tensor.shape, data=tensor.tobytes()))
        return np.frombuffer(answer.data, answer.element_type).reshape(answer.shape)

    return call


def claims() -> list[Claim | Added | Absolute | Skipped]:
    if importlib.util.find_spec("uv") is None:
        return [Skipped("environments", "uv is not installed")]
    folder = Path(tempfile.mkdtemp(prefix="mlmodelscope-bench-"))
    slow_model(folder / "slow.onnx")
    model = {"graph_path": str(folder / "slow.onnx"), "inputs": [], "outputs": [], "threads": 2, "options": {}}
    environment = built()
    foreign = opened(environment, "mlmodelscope.predictors.onnxruntime:Predictor")
    local = onnxruntime.Predictor()
    foreign.load(model)
    local_facts = local.load(model)
    queries = [[np.random.default_rng(i).random((1, 3, SIDE, SIDE), np.float32)] for i in range(8)]
    start = starting(folder)
    found: list[Claim | Added | Absolute | Skipped] = [
        Added("warm venv: ms more to start than local", 300, start("venv"), start("local")),
        Absolute("cold onnxruntime venv, warm package cache: s", 3, cold()),
        Claim("latency in a venv / local", 1.02, in_venv(foreign, queries, folder), in_process(local, queries)),
    ]
    if shutil.which("podman") is None:
        found.append(Skipped("latency in a container / local", "podman is not installed"))
    else:
        stack = ExitStack()
        atexit.register(stack.close)
        contained = in_container(stack, model, folder)
        facts = contained.load(model)
        same = facts["version"] == local_facts["version"]
        name = "latency in a container / local" + ("" if same else f" (onnxruntime {facts['version']})")
        found.append(Claim(name, 1.02, in_venv(contained, queries, folder), in_process(local, queries)))
    if importlib.util.find_spec("grpc") is None:
        return [*found, Skipped("600 KB to the portable layer / plain gRPC", "gRPC is not installed")]
    null = opened(environment, "mlmodelscope.predictors.null:Predictor")
    null.load({"graph_path": "", "inputs": [], "outputs": [], "threads": 1, "options": {}})
    tensor = np.random.default_rng(0).random((1, 3, 224, 224), np.float32)
    ours, theirs = median_of(lambda: null.predict([tensor])), median_of(plain_grpc(folder, tensor))
    return [*found, Claim("600 KB to the portable layer / plain gRPC", 0.15, ours, theirs)]


if __name__ == "__main__":
    sys.exit(run(claims()))
