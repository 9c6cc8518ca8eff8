import contextlib
import json
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mlmodelscope.predictors.modelfile import describe_file, onnx_precision, onnx_with_outputs, read_onnx

GRAPH_DEF = b"\x0a\x14\x0a\x05input\x12\x0bPlaceholder"


@pytest.mark.parametrize(
    "content, looks",
    [
        (b"", "an empty file"),
        (b"\x1c\0\0\0TFL3\0\0", "a TensorFlow Lite model"),
        (b"\x1c\0\0\0ORTM\0\0", "an ORT-format model"),
        (b"\x89HDF\r\n\x1a\n\0\0", "an HDF5 file (Keras weights or model)"),
        (b"PK\x03\x04 cut short", "a damaged zip archive"),
        (b"\x1f\x8b\x08", "a gzip file"),
        (json.dumps({"format": "layers-model"}, indent=1).encode(), "a JSON file"),
        (b"[]", "a JSON file"),
        (b"[section]\nkey = 1\n", "a text file"),
        ("étiquette\n".encode(), "a text file"),
        ("é".encode() * 400, "a text file"),
        (b"\n<!DOCTYPE html><html>", "an HTML page (a failed download?)"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer, not the file it stands for"),
        (GRAPH_DEF, "a TensorFlow graph (protobuf)"),
        (b"\x08\x08\x12\x07backend", "an ONNX model"),
        (b"\x00\x01\x02\x03\x04", "of no known format"),
    ],
)
def test_files_are_described(tmp_path, content, looks):
    path = tmp_path / "model"
    path.write_bytes(content)
    assert describe_file(str(path)) == looks


def test_archives_and_folders_are_described(tmp_path):
    with zipfile.ZipFile(tmp_path / "torch.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    assert describe_file(str(tmp_path / "torch.pt")) == "a PyTorch file (zip)"
    assert describe_file(str(tmp_path)) == "a folder"
    (tmp_path / "saved_model.pb").touch()
    assert describe_file(str(tmp_path)) == "a TensorFlow SavedModel"
    assert describe_file(str(tmp_path / "absent")).startswith("unreadable")


@given(st.binary(max_size=600))
@settings(max_examples=200)
def test_any_bytes_are_described_without_failing(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(content)
    assert describe_file(str(path))
    if content:
        with contextlib.suppress(ValueError):
            read_onnx(str(path))


def save(path, nodes, *weights):
    onnx = pytest.importorskip("onnx")
    tensors = [onnx.numpy_helper.from_array(array, f"w{index}") for index, array in enumerate(weights)]
    graph = onnx.helper.make_graph(nodes, "small", [], [], tensors)
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    return str(path)


def node(kind, **attributes):
    return pytest.importorskip("onnx").helper.make_node(kind, ["a"], ["b"], **attributes)


def test_operators_and_weights_are_counted_in_subgraphs_too(tmp_path):
    onnx = pytest.importorskip("onnx")
    inner = onnx.helper.make_graph([node("Neg")], "inner", [], [], [onnx.numpy_helper.from_array(np.zeros(5), "v")])
    constant = node("Constant", value=onnx.numpy_helper.from_array(np.zeros((2, 2), np.int64)))
    path = save(tmp_path / "m", [node("If", then_branch=inner, else_branch=inner), constant], np.zeros((3, 4), "f4"))
    assert read_onnx(path) == {
        "operators": {"If": 1, "Neg": 2, "Constant": 1},
        "weights": {"float32": 12, "float64": 10, "int64": 4},
    }


@pytest.mark.parametrize(
    "kinds, weights, precision",
    [
        (["Conv"], [np.zeros(9, "f4"), np.zeros(99, "i8")], "float32"),
        (["Conv"], [np.zeros(9, "f4"), np.zeros(10, "f2")], "float16"),
        (["QLinearConv"], [np.zeros(9, "i1"), np.zeros(99, "f4")], "int8 quantised"),
        (["QuantizeLinear", "DequantizeLinear"], [np.zeros(9, "u1")], "uint8 quantised"),
        (["DynamicQuantizeLinear", "MatMulInteger"], [np.zeros(9, "i1")], "int8 quantised"),
        (["DequantizeLinear", "MatMul"], [np.zeros(9, "i1"), np.zeros(9, "f4")], "int8 weights"),
        (["Relu"], [], "unknown"),
    ],
)
def test_precision_is_that_of_weights_and_operators(tmp_path, kinds, weights, precision):
    assert onnx_precision(read_onnx(save(tmp_path / "m", [node(kind) for kind in kinds], *weights))) == precision


def test_a_file_cut_short_is_no_model(tmp_path):
    path = save(tmp_path / "m", [node("Relu")], np.zeros(50, "f4"))
    (tmp_path / "cut").write_bytes((tmp_path / "m").read_bytes()[:-60])
    read_onnx(path)
    with pytest.raises(ValueError):
        read_onnx(str(tmp_path / "cut"))


def test_values_become_outputs_as_the_onnx_package_reads_them(tmp_path):
    onnx = pytest.importorskip("onnx")
    save(tmp_path / "m", [node("Relu")], np.zeros(3, "f4"))
    content = (tmp_path / "m").read_bytes()
    before = onnx.load_model_from_string(content)
    # a name longer than one byte can count
    names = ["b", "a/" * 100, "größer"]
    after = onnx.load_model_from_string(onnx_with_outputs(content, names))
    assert [value.name for value in after.graph.output][len(before.graph.output) :] == names
    del after.graph.output[len(before.graph.output) :]
    assert after == before
    (tmp_path / "more").write_bytes(onnx_with_outputs(content, names))
    assert read_onnx(str(tmp_path / "more")) == read_onnx(str(tmp_path / "m"))
