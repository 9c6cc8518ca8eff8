"""Inputs and outputs read from model files that are whole, foreign or damaged."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mlmodelscope.predictors.layers import Layer, read_layers

onnx = pytest.importorskip("onnx")


@cache
def onnx_model():
    """A picture in (its weights listed as an input, as old files do), logits, their softmax and its reshape out."""
    from onnx import TensorProto, helper, numpy_helper

    value = helper.make_tensor_value_info
    weights = numpy_helper.from_array(np.zeros((12, 5), np.float32), "w")
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["image"], ["flat"]),
            helper.make_node("MatMul", ["flat", "w"], ["logits"]),
            helper.make_node("Softmax", ["logits"], ["prob"]),
            helper.make_node("Cast", ["prob"], ["cast"], to=TensorProto.DOUBLE),
            helper.make_node("Split", ["logits"], ["left", "right"], axis=1, split=[2, 3]),
        ],
        "g",
        [
            value("image", TensorProto.UINT8, ["batch", 3, 2, 2]),
            value("w", TensorProto.FLOAT, [12, 5]),
        ],
        [
            value("logits", TensorProto.FLOAT, [None, 5]),
            value("cast", TensorProto.DOUBLE, None),
            value("right", TensorProto.BFLOAT16, []),
            value("image", TensorProto.UINT8, ["batch", 3, 2, 2]),
        ],
        [weights],
    )
    return helper.make_model(graph).SerializeToString()


def tflite_model(*, codes, operators, tensors, inputs, outputs):
    """`operators`: (index of a code, inputs, outputs); `tensors`: (name, shape, type, signature, scale, zero)."""
    flatbuffers = pytest.importorskip("flatbuffers")
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    model, graph = schema.ModelT(), schema.SubGraphT()
    model.version, model.buffers, model.subgraphs = 3, [schema.BufferT()], [graph]
    model.operatorCodes = []
    for code in codes:
        made = schema.OperatorCodeT()
        made.builtinCode = 32 if isinstance(code, str) else code
        made.deprecatedBuiltinCode = min(made.builtinCode, 127)
        made.customCode = code if isinstance(code, str) else None
        model.operatorCodes.append(made)
    graph.tensors, graph.operators, graph.inputs, graph.outputs = [], [], inputs, outputs
    for name, shape, kind, signature, scale, zero in tensors:
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.shapeSignature = name, shape, kind, signature
        if scale is not None:
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale, tensor.quantization.zeroPoint = [scale], [zero]
        graph.tensors.append(tensor)
    for code, ins, outs in operators:
        operator = schema.OperatorT()
        operator.opcodeIndex, operator.inputs, operator.outputs = code, ins, outs
        graph.operators.append(operator)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


@cache
def small_tflite():
    return tflite_model(
        codes=[25, 22, "TFLite_Detection_PostProcess", 200],
        operators=[(0, [0], [1]), (1, [1], [2]), (2, [2], [3, 4]), (3, [0], [5])],
        tensors=[
            ("image", [1, 8, 8, 3], 3, [-1, 8, 8, 3], 0.5, 128),
            ("soft", [1, 4], 0, None, None, None),
            ("reshaped", [1, 4, 1], 0, None, None, None),
            ("boxes", None, 0, None, None, None),
            ("classes", None, 0, None, None, None),
            ("other", [1, 4], 9, None, 0.0, 0),
        ],
        inputs=[0],
        outputs=[2, 4, 5],
    )


@pytest.fixture
def read(tmp_path):
    def read(content):
        path = tmp_path / "model"
        path.write_bytes(content)
        return read_layers(str(path))

    return read


def test_onnx(read):
    found = read(onnx_model())
    assert found.format == "onnx"
    assert found.inputs == [Layer("image", [None, 3, 2, 2], "uint8")]
    assert found.outputs == [
        Layer("logits", [None, 5], "float32", producer="MatMul"),
        Layer("cast", None, "float64", producer="Softmax"),
        Layer("right", [], "bfloat16", producer="Split", place=1),
        Layer("image", [None, 3, 2, 2], "uint8"),
    ]


def test_tflite(read):
    found = read(small_tflite())
    assert found.format == "tflite"
    assert found.inputs == [Layer("image", [None, 8, 8, 3], "uint8", 0.5, 128)]
    assert found.outputs == [
        Layer("reshaped", [1, 4, 1], "float32", producer="Softmax"),
        Layer("classes", [], "float32", producer="TFLite_Detection_PostProcess", place=1),
        Layer("other", [1, 4], "int8", producer="operator 200"),
    ]


def test_a_graph_that_runs_in_a_circle(read):
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info("a", TensorProto.FLOAT, [1])
    nodes = [helper.make_node("Identity", ["b"], ["a"]), helper.make_node("Identity", ["a"], ["b"])]
    model = helper.make_model(helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [1])], [value]))
    assert read(model.SerializeToString()).outputs[0].producer == ""


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "an empty file"),
        (b"hello", "a text file"),
        (b"PK\x03\x04junk", "a damaged zip archive"),
        (b"\x10\0\0\0TFL3", "cut short or damaged"),
        (b"\x08\x08\x12\x00", "without inputs or outputs"),
    ],
)
def test_what_is_no_model(read, content, reason):
    with pytest.raises(ValueError, match=reason):
        read(content)


@pytest.mark.parametrize("build", [onnx_model, small_tflite])
@settings(max_examples=300)
@given(data=st.data())
def test_damaged_files_are_a_value_error_or_read(tmp_path_factory, build, data):
    content = bytearray(build())
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=8)
    ):
        content[place] = value
    cut = data.draw(st.none() | st.integers(0, len(content)))
    path = tmp_path_factory.getbasetemp() / f"{build.__name__}.bin"
    path.write_bytes(bytes(content[:cut]))
    try:
        layers = read_layers(str(path))
    except ValueError:
        return
    assert layers.inputs
    assert layers.outputs
