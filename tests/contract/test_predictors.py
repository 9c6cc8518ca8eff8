"""Every registered predictor keeps the contract; a predictor without a case here fails."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from mlmodelscope.core.plugins import predictors
from mlmodelscope.core.predictor import Profiles, Reveals
from mlmodelscope.resolve.stacks import RULES
from mlmodelscope.testing.predictors import (
    LifecycleContract,
    PredictorCase,
    PredictorContract,
    ProfilesContract,
    RevealsContract,
)

# both models compute y = x . w + b and z = max(y, 0); whole numbers, so that every framework gives the same floats
WEIGHTS = np.arange(12, dtype=np.float32).reshape(3, 4)
BIAS = np.array([-20, 0, 1], dtype=np.float32)
SAMPLES = [[np.array([row], dtype=np.float32)] for row in ([1, 2, 3, 4], [0, 0, 0, 0], [-3, 1, -1, 2])]


def expected_outputs():
    sums = [sample[0] @ WEIGHTS.T + BIAS for sample in SAMPLES]
    return [[y, np.maximum(y, 0)] for y in sums]


def case_from(folder: Path, ending: str, build) -> PredictorCase:
    contents = {"open": build(open_batch=True), "fixed": build(open_batch=False)}
    contents["corrupt"] = contents["open"][: len(contents["open"]) // 2]
    for name, content in contents.items():
        (folder / f"{name}{ending}").write_bytes(content)
    paths = [str(folder / f"{name}{ending}") for name in contents]
    return PredictorCase(*paths, samples=SAMPLES, expected=expected_outputs())


def onnx_model(*, open_batch: bool) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    batch = "N" if open_batch else 1
    floats = TensorProto.FLOAT
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["product"]),
            helper.make_node("Add", ["product", "b"], ["y"]),
            helper.make_node("Relu", ["y"], ["z"]),
        ],
        "small",
        [helper.make_tensor_value_info("x", floats, [batch, 4])],
        [helper.make_tensor_value_info(name, floats, [batch, 3]) for name in ("y", "z")],
        [numpy_helper.from_array(WEIGHTS.T.copy(), "w"), numpy_helper.from_array(BIAS, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return model.SerializeToString()


def tflite_model(*, open_batch: bool) -> bytes:
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    def tensor(name, shape, buffer=0):
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = name, shape, schema.TensorType.FLOAT32, buffer
        if open_batch and buffer == 0:
            made.shapeSignature = [-1, *shape[1:]]
        return made

    def buffer(data):
        made = schema.BufferT()
        made.data = None if data is None else np.frombuffer(data.tobytes(), np.uint8)
        return made

    def code(builtin):
        made = schema.OperatorCodeT()
        made.builtinCode = made.deprecatedBuiltinCode = builtin
        made.version = 1
        return made

    def operator(index, inputs, outputs):
        made = schema.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = index, inputs, outputs
        return made

    dense, relu = operator(0, [0, 1, 2], [3]), operator(1, [3], [4])
    dense.builtinOptionsType = schema.BuiltinOptions.FullyConnectedOptions
    dense.builtinOptions = schema.FullyConnectedOptionsT()
    graph = schema.SubGraphT()
    graph.tensors = [
        tensor("x", [1, 4]),
        tensor("w", [3, 4], 1),
        tensor("b", [3], 2),
        tensor("y", [1, 3]),
        tensor("z", [1, 3]),
    ]
    graph.inputs, graph.outputs, graph.operators = [0], [3, 4], [dense, relu]
    model = schema.ModelT()
    model.version = 3
    model.operatorCodes = [code(schema.BuiltinOperator.FULLY_CONNECTED), code(schema.BuiltinOperator.RELU)]
    model.buffers = [buffer(None), buffer(WEIGHTS), buffer(BIAS)]
    model.subgraphs = [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def need(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


class TestNull(LifecycleContract):
    framework = "null"

    @pytest.fixture
    def case(self):
        zeros = [np.zeros((1, 1000), np.float32)]
        return PredictorCase("", "", "", samples=SAMPLES, expected=[zeros for _ in SAMPLES])


class TestOnnxruntime(PredictorContract, ProfilesContract, RevealsContract):
    framework = "onnxruntime"

    @pytest.fixture
    def case(self, tmp_path):
        need("onnxruntime", "onnx")
        return case_from(tmp_path, ".onnx", onnx_model)


class TestTflite(PredictorContract, ProfilesContract, RevealsContract):
    framework = "tflite"

    @pytest.fixture
    def case(self, tmp_path):
        need("ai_edge_litert", "flatbuffers")
        return case_from(tmp_path, ".tflite", tflite_model)


@pytest.mark.parametrize(("ability", "contract"), [(Profiles, ProfilesContract), (Reveals, RevealsContract)])
def test_every_predictor_with_an_ability_keeps_its_contract_too(ability, contract):
    classes = [value for value in globals().values() if isinstance(value, type) and hasattr(value, "framework")]
    covered = {cls.framework for cls in classes if issubclass(cls, contract)}
    here = {cls.framework for cls in classes}
    assert {name for name in here if issubclass(predictors().get(name), ability)} == covered


def test_every_registered_predictor_has_a_case():
    classes = [value for value in globals().values() if isinstance(value, type)]
    covered = {cls.framework for cls in classes if issubclass(cls, LifecycleContract) and hasattr(cls, "framework")}
    # a framework with a software stack is tested in its own environment: tests/frameworks fails for one that is not;
    # predictors that drive a program elsewhere keep the contract in tests/integration/test_rpc.py and test_kserve.py
    elsewhere = {name for name in predictors().names() if getattr(predictors().get(name), "takes_address", False)}
    assert set(predictors().names()) - set(RULES) - elsewhere == covered - set(RULES)
