"""One network in one framework -> nanoseconds per query, by our predictor and by the framework's own plain calls.

It runs inside the framework's environment (Python 3.6 syntax, numpy and the framework, the portable layer on the path)
and is asked on stdin: each line `ours` or `theirs` is answered with the median of one block. The plain calls are those
that the framework's own guide shows, set up once and with the same number of threads, precision and kernels; both sides
answer with the same numbers, or nothing is measured.
"""

# ruff: noqa: ARG001 - the plain calls are all opened alike, and some need to know the shape

import contextlib
import gc
import importlib
import itertools
import json
import os
import random
import sys
from array import array
from typing import Any, Callable, Dict, Iterator, List, Sequence

import numpy as np

__all__ = ["OPENERS", "main"]

Call = Callable[[Any], List[Any]]

_BLOCK_NS = 100 * 10**6
_FEWEST, _MOST = 3, 300
_INSTANCES = 5


def caffe(model: Dict[str, Any], value: Any) -> Call:
    framework = importlib.import_module("caffe")
    net = framework.Net(model["graph_path"], model["weights_path"], framework.TEST)
    (name,) = net.inputs
    net.blobs[name].reshape(*value.shape)
    net.reshape()
    given = net.blobs[name]

    def call(x: Any) -> List[Any]:
        given.data[...] = x
        return list(net.forward().values())

    return call


def caffe2(model: Dict[str, Any], value: Any) -> Call:
    workspace = importlib.import_module("caffe2.python.workspace")
    messages = importlib.import_module("caffe2.proto.caffe2_pb2")
    nets = []
    for path in (model["weights_path"], model["graph_path"]):
        nets.append(messages.NetDef())
        with open(path, "rb") as file:
            nets[-1].ParseFromString(file.read())
    workspace.RunNetOnce(nets[0])
    made = {name for operator in nets[0].op for name in operator.output}
    (given,) = [name for name in nets[1].external_input if name not in made]
    workspace.FeedBlob(given, value)
    workspace.CreateNet(nets[1], overwrite=True)
    run, name, outputs = workspace.RunNet, nets[1].name, list(nets[1].external_output)

    def call(x: Any) -> List[Any]:
        workspace.FeedBlob(given, x)
        run(name)
        return [workspace.FetchBlob(output) for output in outputs]

    return call


def cntk(model: Dict[str, Any], value: Any) -> Call:
    framework = importlib.import_module("cntk")
    function = framework.Function.load(model["graph_path"], device=framework.cpu())
    (argument,) = function.arguments
    if len(function.outputs) > 1:
        return lambda x: list(function.eval({argument: x}).values())
    return lambda x: [function.eval({argument: x})]


def jax(model: Dict[str, Any], value: Any) -> Call:
    framework = importlib.import_module("jax")
    export = importlib.import_module("jax.export")
    with open(model["graph_path"], "rb") as file:
        exported = export.deserialize(bytearray(file.read()))
    (name,) = exported.in_tree.unflatten(exported.in_avals)[0][0]
    function = framework.jit(exported.call)
    return lambda x: [np.asarray(result) for result in function({name: x}).values()]


def litert(model: Dict[str, Any], value: Any) -> Call:
    return importlib.import_module("litert").open_model(model, value)  # type: ignore[no-any-return]


def lightgbm(model: Dict[str, Any], value: Any) -> Call:
    booster = importlib.import_module("lightgbm").Booster(model_file=model["graph_path"])
    threads = model["threads"]
    return lambda x: [booster.predict(x, num_threads=threads)]


def mxnet(model: Dict[str, Any], value: Any) -> Call:
    mx = importlib.import_module("mxnet")
    prefix = model["weights_path"][: -len("-0000.params")]
    symbol, parameters, states = mx.model.load_checkpoint(prefix, 0)
    (name,) = [name for name in symbol.list_arguments() if name not in parameters]
    # where a fused layer is an output too, its answer would be that of the next layer
    os.environ["MXNET_SUBGRAPH_BACKEND"] = "NONE" if model["facts"]["optimization"] == "none" else "MKLDNN"
    executor = symbol.simple_bind(mx.cpu(), grad_req="null", **{name: value.shape})
    executor.copy_params_from(parameters, states)
    return lambda x: [output.asnumpy() for output in executor.forward(is_train=False, **{name: x})]


def ncnn(model: Dict[str, Any], value: Any) -> Call:
    framework = importlib.import_module("ncnn")
    net = framework.Net()
    net.opt.num_threads = model["threads"]
    for name in dir(net.opt):
        if name.startswith(("use_fp16", "use_bf16")):
            setattr(net.opt, name, False)
    net.load_param(model["graph_path"])
    net.load_model(model["weights_path"])
    (given,), outputs = net.input_names(), net.output_names()

    def call(x: Any) -> List[Any]:
        extractor = net.create_extractor()
        extractor.input(given, framework.Mat(x[0]))
        return [np.array(extractor.extract(name)[1])[None] for name in outputs]

    return call


def onnxruntime(model: Dict[str, Any], value: Any) -> Call:
    framework = importlib.import_module("onnxruntime")
    options = framework.SessionOptions()
    options.intra_op_num_threads = model["threads"]
    session = framework.InferenceSession(model["graph_path"], options, providers=["CPUExecutionProvider"])
    name, outputs = session.get_inputs()[0].name, [output.name for output in session.get_outputs()]
    return lambda x: list(session.run(outputs, {name: x}))


def opencv(model: Dict[str, Any], value: Any) -> Call:
    framework = importlib.import_module("cv2")
    framework.setNumThreads(model["threads"])
    net = framework.dnn.readNetFromONNX(model["graph_path"])
    names = net.getUnconnectedOutLayersNames()

    def call(x: Any) -> List[Any]:
        net.setInput(x)
        return list(net.forward(names))

    return call


def openvino(model: Dict[str, Any], value: Any) -> Call:
    core = importlib.import_module("openvino").Core()
    settings = {"INFERENCE_NUM_THREADS": model["threads"], "INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1}
    request = core.compile_model(model["graph_path"], "CPU", settings).create_infer_request()
    return lambda x: list(request.infer({0: x}, share_inputs=True).values())


def paddle(model: Dict[str, Any], value: Any) -> Call:
    inference = importlib.import_module("paddle.inference")
    config = inference.Config(model["graph_path"], model["weights_path"])
    config.disable_gpu()
    config.disable_glog_info()
    config.set_cpu_math_library_num_threads(model["threads"])
    config.enable_mkldnn()
    predictor = inference.create_predictor(config)
    given = predictor.get_input_handle(predictor.get_input_names()[0])
    results = [predictor.get_output_handle(name) for name in predictor.get_output_names()]

    def call(x: Any) -> List[Any]:
        given.copy_from_cpu(x)
        predictor.run()
        return [result.copy_to_cpu() for result in results]

    return call


def pytorch(model: Dict[str, Any], value: Any) -> Call:
    torch = importlib.import_module("torch")
    torch.set_num_threads(model["threads"])
    module = torch.export.load(model["graph_path"]).module()
    return lambda x: [result.numpy() for result in module(torch.from_numpy(x)).values()]


def tensorflow(model: Dict[str, Any], value: Any) -> Call:
    tf = importlib.import_module("tensorflow")
    if tf.__version__.startswith("1."):
        return _tensorflow1(tf, model)
    owner = tf.saved_model.load(model["graph_path"])
    function = owner.signatures["serving_default"]
    (name,) = function.structured_input_signature[1]

    def call(x: Any) -> List[Any]:
        assert owner is not None  # it holds the variables
        return [result.numpy() for result in function(**{name: tf.constant(x)}).values()]

    return call


def _tensorflow1(tf: Any, model: Dict[str, Any]) -> Call:
    config = tf.ConfigProto(
        intra_op_parallelism_threads=model["threads"], inter_op_parallelism_threads=1, use_per_session_threads=True
    )
    described, graph = tf.GraphDef(), tf.Graph()
    with open(model["graph_path"], "rb") as file:
        described.ParseFromString(file.read())
    with graph.as_default():
        tf.import_graph_def(described, name="")
    operations = graph.get_operations()
    (given,) = [operation.outputs[0] for operation in operations if operation.type == "Placeholder"]
    used = {tensor.name for operation in operations for tensor in operation.inputs}
    outputs = [tensor for operation in operations for tensor in operation.outputs if tensor.name not in used]
    session = tf.Session(graph=graph, config=config)
    return lambda x: list(session.run(outputs, {given: x}))


def tflite(model: Dict[str, Any], value: Any) -> Call:
    framework = importlib.import_module("ai_edge_litert.interpreter")
    interpreter = framework.Interpreter(model["graph_path"], num_threads=model["threads"])
    interpreter.allocate_tensors()
    given = interpreter.get_input_details()[0]["index"]
    results = [detail["index"] for detail in interpreter.get_output_details()]

    def call(x: Any) -> List[Any]:
        interpreter.set_tensor(given, x)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in results]

    return call


def xgboost(model: Dict[str, Any], value: Any) -> Call:
    booster = importlib.import_module("xgboost").Booster({"nthread": model["threads"]})
    booster.load_model(model["graph_path"])
    booster.set_param({"nthread": model["threads"]})
    return lambda x: [booster.inplace_predict(x)]


OPENERS: Dict[str, Callable[[Dict[str, Any], Any], Call]] = {
    "caffe": caffe,
    "caffe2": caffe2,
    "cntk": cntk,
    "jax": jax,
    "lightgbm": lightgbm,
    "litert": litert,
    "mxnet": mxnet,
    "ncnn": ncnn,
    "onnxruntime": onnxruntime,
    "opencv": opencv,
    "openvino": openvino,
    "paddle": paddle,
    "pytorch": pytorch,
    "tensorflow": tensorflow,
    "tflite": tflite,
    "xgboost": xgboost,
}


@contextlib.contextmanager
def _around(name: str) -> Iterator[None]:
    """What a user puts round the whole loop, not round each call."""
    if name != "pytorch":
        yield
        return
    with importlib.import_module("torch").inference_mode():
        yield


class Sides(object):
    """The same queries through both; a block is as many as fit into a tenth of a second, within bounds.

    How fast a network is depends on where in memory it came to lie: of equal ones the first of a process was up to a
    fifth slower than the others (LightGBM), and with two of each side the ratio of processes differed by 5 % (ncnn). So
    the first is set aside, each side has several, made in turns, and a block takes one of them by lot.
    """

    def __init__(self, case: Dict[str, Any]) -> None:
        shim = importlib.import_module("mlmodelscope.worker.shim")
        self._loop, self._clock = shim.inference_loop, shim.monotonic_ns
        self._name, self._model = case["bare"], case["model"]
        self._entry_point, self._open_predictor = case["entry_point"], shim.open_predictor
        with np.load(case["samples"]) as samples:
            self._values = [samples[name] for name in samples.files]
        self._aside = self._opened()
        self._lot = random.Random(0)
        self._predicts, self._calls = [], []  # type: List[Call], List[Call]
        for _ in range(_INSTANCES):
            self._predicts.append(self._opened())
            self._calls.append(self._opened_bare())
        self._check()
        self._count = max(_FEWEST, min(_MOST, int(_BLOCK_NS / self._warm())))

    def _opened(self) -> Call:
        predictor = self._open_predictor(self._entry_point)
        self._model["facts"] = predictor.load(self._model)
        predict = predictor.predict  # type: Call
        predict([self._values[0]])
        return predict

    def _opened_bare(self) -> Call:
        return OPENERS[self._name](self._model, self._values[0])

    def _check(self) -> None:
        with _around(self._name):
            others = self._calls[0](self._values[0])
        for result in self._predicts[0]([self._values[0]]):
            if not any(_is_same(result, other) for other in others):
                raise SystemExit("{}: the two sides do not give the same answers".format(self._name))

    def _warm(self) -> float:
        """Compilers and caches settle, for every one of them; the cost of one query then."""
        begin = self._clock()
        self._count = _FEWEST
        costs = []  # type: List[float]
        while len(costs) < 2 * len(self._predicts) or self._clock() - begin < 10 * _BLOCK_NS:
            costs += [self._ours(predict) for predict in self._predicts]
            for call in self._calls:
                self._theirs(call)
        return max(1, _median(costs[-len(self._predicts) :]))

    def ours(self) -> float:
        return self._ours(self._lot.choice(self._predicts))

    def theirs(self) -> float:
        return self._theirs(self._lot.choice(self._calls))

    def _ours(self, predict: Call) -> float:
        queries = [[value] for value in self._values]
        progress = memoryview(array("q", [0]))
        begins, ends = self._loop(predict, queries, 0, self._count, self._clock, progress)
        return _median([end - begin for begin, end in zip(begins, ends)])

    def _theirs(self, call: Call) -> float:
        clock, times = self._clock, []  # type: Callable[[], int], List[int]
        gc.collect()
        gc.disable()
        with _around(self._name):
            for value in itertools.islice(itertools.cycle(self._values), self._count):
                begin = clock()
                call(value)
                times.append(clock() - begin)
        gc.enable()
        return _median(times)


def _is_same(one: Any, other: Any) -> bool:
    return one.size == other.size and bool(np.allclose(one.ravel(), np.asarray(other).ravel(), rtol=1e-3, atol=1e-4))


def _median(times: Sequence[float]) -> float:
    ordered = sorted(times)
    middle = len(ordered) // 2
    return float(ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)


def main(arguments: Sequence[str]) -> int:
    # frameworks write to stdout as they please; the answers have a channel of their own
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with open(arguments[0]) as file:
        sides = Sides(json.load(file))
    answers.write("ready\n")
    answers.flush()
    for line in sys.stdin:
        answers.write("{!r}\n".format(getattr(sides, line.strip())()))
        answers.flush()
    # frameworks may crash or hang in their own exit handlers
    os._exit(0)
