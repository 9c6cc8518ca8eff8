from types import SimpleNamespace

import pytest

from mlmodelscope.predictors.opencvfile import ModelFiles, describe_inputs, identify, read_net
from mlmodelscope.predictors.port import PredictorFault


def written(folder, name, text):
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.fixture
def weights(tmp_path):
    return written(tmp_path, "weights", "x")


@pytest.mark.parametrize(("name", "kind"), [("a.cfg", "darknet"), ("a.prototxt", "caffe")])
def test_text_is_told_by_its_ending(tmp_path, weights, name, kind):
    path = written(tmp_path, name, "[net]\n")
    assert identify(path, weights) == ModelFiles(kind, path, weights)


def test_everything_else_is_told_by_its_content(tmp_path):
    path = tmp_path / "any.name"
    path.write_bytes(b"\x00\x00\x00\x00TFL3")
    assert identify(str(path), None).kind == "tflite"


@pytest.mark.parametrize("given", [None, "absent.weights"])
def test_weights_that_are_missing_are_a_fault(tmp_path, given):
    with pytest.raises(PredictorFault) as caught:
        identify(written(tmp_path, "a.cfg", "[net]\n"), given)
    assert caught.value.code == "model_format"


def test_a_foreign_file_is_a_fault(tmp_path):
    with pytest.raises(PredictorFault) as caught:
        identify(written(tmp_path, "model.onnx", "no model"), None)
    assert (caught.value.code, caught.value.fields["got"]) == ("model_format", "a text file")


@pytest.mark.parametrize("kind", ["caffe", "darknet"])
def test_opencv_5_is_refused_where_it_cannot_read(kind):
    cv2 = SimpleNamespace(__version__="5.0.0", dnn=SimpleNamespace())
    with pytest.raises(PredictorFault) as caught:
        read_net(cv2, ModelFiles(kind, "graph", "weights"))
    assert caught.value.code == "environment_missing"
    assert "<5" in caught.value.hint


@pytest.mark.parametrize("size", [0, 4, 7])
def test_darknet_weights_without_a_header_are_a_fault(tmp_path, size):
    path = tmp_path / "short.weights"
    path.write_bytes(b"\0" * size)
    net = SimpleNamespace(empty=lambda: False, getLayerNames=list)
    dnn = SimpleNamespace(readNetFromDarknet=lambda graph, weights: net)
    cv2 = SimpleNamespace(__version__="4.14.0", dnn=dnn, error=ZeroDivisionError)
    with pytest.raises(PredictorFault, match="shorter than a header") as caught:
        read_net(cv2, ModelFiles("darknet", "net.cfg", str(path)))
    assert caught.value.code == "model_format"


def caffe_inputs(tmp_path, text):
    files = ModelFiles("caffe", written(tmp_path, "net.prototxt", text), "weights")
    return [(fact["name"], fact["shape"]) for fact in describe_inputs(files)[0]]


@pytest.mark.parametrize(
    "text",
    [
        'input: "data"\ninput_dim: 10\ninput_dim: 3\ninput_dim: 4\ninput_dim: 5\n',
        'input: "data"\ninput_shape { dim: 10 dim: 3 dim: 4 dim: 5 }\n',
        'layer {\n type: "Input" top: "data"\n input_param { shape: { dim: 10 dim: 3 dim: 4 dim: 5 } }\n}\n',
        '# input: "other"\ninput: "data"\ninput_shape {\n  dim: 1 # one\n  dim: 3\n  dim: 4\n  dim: 5\n}\n',
    ],
)
def test_caffes_inputs_are_found_however_they_are_declared(tmp_path, text):
    assert caffe_inputs(tmp_path, text) == [("data", [None, 3, 4, 5])]


def test_two_inputs_of_caffe_keep_their_shapes(tmp_path):
    text = 'input: "a"\ninput_shape { dim: 1 dim: 2 }\ninput: "b"\ninput_shape { dim: 1 dim: 3 }\n'
    assert caffe_inputs(tmp_path, text) == [("a", [None, 2]), ("b", [None, 3])]


def test_a_caffe_network_without_input_is_a_fault(tmp_path):
    with pytest.raises(PredictorFault) as caught:
        caffe_inputs(tmp_path, 'layer { name: "a" type: "ReLU" }\n')
    assert caught.value.code == "model_format"


def test_darknets_input_is_its_first_section(tmp_path):
    text = "# tiny\n[net]\nbatch=64\nheight = 6\nwidth=8\nchannels=3\n\n[convolutional]\nheight=99\n"
    files = ModelFiles("darknet", written(tmp_path, "net.cfg", text), "weights")
    assert describe_inputs(files)[0] == [{"name": "data", "shape": [None, 3, 6, 8], "element_type": "float32"}]
