"""What only OpenCV does: Darknet and Caffe files, networks set up again for another batch size, fused layers."""

import struct

import numpy as np
import pytest

import networks
from mlmodelscope.predictors.port import PredictorFault
from opening import exported_model, opened

pytestmark = pytest.mark.needs("registry", "pythons")

GENERATOR = np.random.default_rng(0)


@pytest.fixture(scope="module")
def predictor():
    with opened("opencv") as found:
        yield found


def fault_of(call):
    with pytest.raises(PredictorFault) as caught:
        call()
    return caught.value


@pytest.fixture
def darknet(tmp_path):
    """A 1x1 convolution, and what it computes."""
    bias, kernel = GENERATOR.standard_normal(2, dtype=np.float32), GENERATOR.standard_normal((2, 3), dtype=np.float32)
    net = "[net]\nbatch=1\nwidth=8\nheight=6\nchannels=3\n\n"
    layer = "[convolutional]\nfilters=2\nsize=1\nstride=1\npad=0\nactivation=linear\n"
    (tmp_path / "tiny.cfg").write_text(net + layer)
    (tmp_path / "tiny.weights").write_bytes(struct.pack("<iiiq", 0, 2, 0, 0) + bias.tobytes() + kernel.tobytes())
    model = {"graph_path": str(tmp_path / "tiny.cfg"), "weights_path": str(tmp_path / "tiny.weights"), "threads": 1}
    return model, lambda x: np.einsum("oc,nchw->nohw", kernel, x) + bias.reshape(1, 2, 1, 1)


def varint(value):
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def field(number, value):
    return varint(number << 3 | 2) + varint(len(value)) + value


def blob(array):
    shape = field(7, field(1, b"".join(varint(size) for size in array.shape)))
    return field(7, shape + field(5, array.tobytes()))


@pytest.fixture
def caffe(tmp_path):
    """A dense layer and a softmax; field numbers are those of caffe.proto."""
    text = 'layer { name: "data" type: "Input" top: "data" input_param { shape: { dim: 10 dim: 4 } } }\n'
    text += 'layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 3 } }\n'
    text += 'layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }\n'
    weights = blob(networks.WEIGHTS / 10) + blob(networks.BIAS / 10)
    (tmp_path / "tiny.prototxt").write_text(text)
    (tmp_path / "tiny.caffemodel").write_bytes(field(100, field(1, b"fc") + field(2, b"InnerProduct") + weights))
    files = {"graph_path": str(tmp_path / "tiny.prototxt"), "weights_path": str(tmp_path / "tiny.caffemodel")}
    return {**files, "threads": 1}


def test_darknet_runs_under_opencvs_name(predictor, darknet):
    model, expected = darknet
    facts = predictor.load(model)
    assert facts["framework"] == "opencv"
    assert facts["inputs"] == [{"name": "data", "shape": [None, 3, 6, 8], "element_type": "float32"}]
    x = GENERATOR.standard_normal((2, 3, 6, 8), dtype=np.float32)
    np.testing.assert_allclose(predictor.predict([x])[0], expected(x), rtol=1e-5, atol=1e-5)
    assert fault_of(lambda: predictor.predict([x[:, :, :5]])).code == "shape_mismatch"


def test_darknet_weights_that_are_cut_short_are_a_fault(predictor, darknet, tmp_path):
    path = tmp_path / "tiny.weights"
    path.write_bytes(path.read_bytes()[:-5])
    fault = fault_of(lambda: predictor.load(darknet[0]))
    assert fault.code == "model_format"
    assert "8 are needed" in fault.message


def test_caffe_runs_under_opencvs_name_with_any_batch(predictor, caffe):
    facts = predictor.load(caffe)
    assert (facts["framework"], facts["outputs"][0]["name"]) == ("opencv", "prob")
    x = np.array([[1, 2, 3, 4], [-3, 1, -1, 2], [0, 0, 1, 0]], np.float32)
    scores = np.exp((x @ networks.WEIGHTS.T + networks.BIAS) / 10)
    for batch in (1, 3):
        expected = scores[:batch] / scores[:batch].sum(1, keepdims=True)
        np.testing.assert_allclose(predictor.predict([x[:batch]])[0], expected, rtol=1e-5)
    np.testing.assert_allclose(predictor.reveal([x], ["fc"])[0], np.log(scores), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b""])
def test_caffe_weights_that_do_not_fit_are_a_fault(predictor, caffe, tmp_path, damage):
    path = tmp_path / "tiny.caffemodel"
    path.write_bytes(damage(path.read_bytes()))
    assert fault_of(lambda: predictor.load(caffe)).code == "model_format"


@pytest.fixture
def shortcut(tmp_path):
    """A residual block with a normalised shortcut: OpenCV 4.14 itself answers nonsense when its batch size changes."""
    onnx = pytest.importorskip("onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    shapes = {"w1": (4, 3, 3, 3), "w2": (4, 4, 3, 3), "w3": (4, 4, 1, 1), "s": (4,), "b": (4,), "m": (4,), "v": (4,)}
    weights = {name: GENERATOR.random(shape, dtype=np.float32) + np.float32(0.1) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["c2"], pads=[1] * 4),
        helper.make_node("Conv", ["r", "w3"], ["c3"]),
        helper.make_node("BatchNormalization", ["c3", "s", "b", "m", "v"], ["n"]),
        helper.make_node("Add", ["c2", "n"], ["a"]),
        helper.make_node("Relu", ["a"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "shortcut",
        [helper.make_tensor_value_info("x", floats, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("y", floats, ["N", 4, 8, 8])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = tmp_path / "shortcut.onnx"
    path.write_bytes(model.SerializeToString())
    return str(path)


@pytest.mark.parametrize("optimization", ["all", "none"])
def test_another_batch_size_after_the_first_call_changes_no_answer(predictor, shortcut, optimization):
    facts = predictor.load({"graph_path": shortcut, "threads": 1, "options": {"optimization": optimization}})
    assert facts["optimization"] == optimization
    x = np.random.default_rng(1).standard_normal((4, 3, 8, 8), dtype=np.float32)
    singles = np.concatenate([predictor.predict([x[place : place + 1]])[0] for place in range(4)])
    for batch in (4, 2, 4):
        np.testing.assert_allclose(predictor.predict([x[:batch]])[0], singles[:batch], rtol=1e-4, atol=1e-4)


def test_fused_layers_can_be_seen_and_are_not_profiled(predictor, tmp_path):
    predictor.load(exported_model("opencv", "convolutional"))
    x = np.random.default_rng(1).standard_normal((2, 3, 32, 32), dtype=np.float32) / 20
    before, after = predictor.reveal([x], ["c1", "r1"])
    assert before.min() < 0
    np.testing.assert_allclose(after, np.maximum(before, 0), atol=1e-6)
    predictor.start_profile(str(tmp_path))
    predictor.predict([x])
    (layers,) = predictor.stop_profile()
    nodes = [node for layer in layers for node in layer["nodes"]]
    assert "c1" in nodes
    assert "r1" not in nodes
    convolution = next(layer for layer in layers if layer["nodes"] == ["c1"])
    assert convolution["outputs"] == [{"element_type": "float32", "shape": [2, 8, 16, 16]}]
