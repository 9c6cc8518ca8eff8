from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper

from mlmodelscope.predictors import onnxruntime
from mlmodelscope.predictors.onnxruntime import Predictor
from mlmodelscope.predictors.port import PredictorFault

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True)
def _quiet_runtime(monkeypatch):
    for name, value in Predictor.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def difference(tmp_path):
    """a - b, where a is [N, 2] and b is [2, M] reshaped to [1, 2]: a wrong M fails inside the run."""
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["b", "shape"], ["row"]), helper.make_node("Sub", ["a", "row"], ["c"])],
        "difference",
        [helper.make_tensor_value_info("a", floats, ["N", 2]), helper.make_tensor_value_info("b", floats, [2, "M"])],
        [helper.make_tensor_value_info("c", floats, ["N", 2])],
        [onnx.numpy_helper.from_array(np.array([1, 2], np.int64), "shape")],
    )
    path = tmp_path / "difference.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    )
    return str(path)


def load(path, **changes):
    predictor = Predictor()
    return predictor, predictor.load({"graph_path": path, "threads": 1, **changes})


A, B = np.array([[5, 7]], np.float32), np.array([[1], [2]], np.float32)


def test_inputs_follow_the_order_asked_for(difference):
    predictor, facts = load(difference, inputs=[{"layer_name": "b"}, {"layer_name": "a"}])
    assert [layer["name"] for layer in facts["inputs"]] == ["b", "a"]
    np.testing.assert_array_equal(predictor.predict([B, A])[0], [[4, 5]])


def test_every_input_must_be_listed(difference):
    with pytest.raises(PredictorFault) as caught:
        load(difference, inputs=[{"layer_name": "b"}])
    assert caught.value.fields["missing"] == ["a"]


def test_a_failure_inside_the_run_is_the_frameworks(difference):
    predictor, _ = load(difference)
    with pytest.raises(PredictorFault) as caught:
        predictor.predict([A, np.zeros((2, 3), np.float32)])
    assert caught.value.code == "predictor_failed"
    np.testing.assert_array_equal(predictor.predict([A, B])[0], [[4, 5]])


@pytest.mark.parametrize("level", ["all", "extended", "basic", "none"])
def test_the_optimization_level_is_read_back(difference, level):
    assert load(difference, options={"optimization": level})[1]["optimization"] == level


def test_options_outside_their_choices_are_refused(difference):
    with pytest.raises(PredictorFault, match="optimization cannot be 'most'"):
        load(difference, options={"optimization": "most"})


def test_a_provider_this_build_lacks_is_refused(difference):
    with pytest.raises(PredictorFault) as caught:
        load(difference, options={"providers": ["NoSuchExecutionProvider"]})
    assert caught.value.code == "environment_missing"
    assert "CPUExecutionProvider" in caught.value.fields["got"]


def test_the_provider_is_the_one_that_holds_nodes(difference):
    import onnxruntime as framework

    for providers in (framework.get_available_providers(), ",".join(framework.get_available_providers())):
        facts = load(difference, options={"providers": providers})[1]
        assert "CPUExecutionProvider" in facts["provider"]
        assert "Azure" not in facts["provider"]


@pytest.mark.parametrize(
    ("registered", "holders", "device"),
    [
        (["CUDA", "CPU"], ["CUDA", "CPU"], "cuda:0"),
        (["CUDA", "CPU"], ["CPU"], "cpu"),
        (["Xnnpack", "CPU"], ["Xnnpack", "CPU"], "cpu"),
        (["OpenVINO", "CPU"], ["OpenVINO", "CPU"], "unknown"),
        (["OpenVINO", "CPU"], ["CPU"], "cpu"),
    ],
)
def test_the_device_is_that_of_the_provider_that_holds_nodes(difference, monkeypatch, registered, holders, device):
    parts = [SimpleNamespace(ep_name=f"{name}ExecutionProvider") for name in holders]
    session = SimpleNamespace(
        get_providers=lambda: [f"{name}ExecutionProvider" for name in registered],
        get_provider_graph_assignment_info=lambda: parts,
    )
    in_force = onnxruntime._providers_in_force
    monkeypatch.setattr(onnxruntime, "_providers_in_force", lambda opened: in_force(session))
    facts = load(difference)[1]
    assert facts["device"] == device
    assert facts["provider"] == "+".join(f"{name}ExecutionProvider" for name in registered if name in holders)
    assert facts["library"] == ("MLAS" if holders == ["CPU"] else "unknown")


@pytest.fixture
def classifier(tmp_path):
    """A label as a tensor, and probabilities as scikit-learn's converter gives them: a list of maps."""
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(onnx.TensorProto.INT64, _float_type(helper)))
    graph = helper.make_graph(
        [
            helper.make_node("ArgMax", ["x"], ["label"], axis=1, keepdims=0),
            helper.make_node("ZipMap", ["x"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]),
        ],
        "classifier",
        [helper.make_tensor_value_info("x", floats, ["N", 2])],
        [
            helper.make_tensor_value_info("label", onnx.TensorProto.INT64, ["N"]),
            helper.make_value_info("maps", maps),
        ],
    )
    versions = [helper.make_opsetid("", 13), helper.make_opsetid("ai.onnx.ml", 1)]
    path = tmp_path / "classifier.onnx"
    path.write_bytes(helper.make_model(graph, opset_imports=versions, ir_version=8).SerializeToString())
    return str(path)


def _float_type(helper):
    return helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)


@pytest.mark.parametrize("outputs", [[], [{"layer_name": "maps"}], [{"layer_name": 0}, {"layer_name": 1}]])
def test_an_output_that_is_no_tensor_is_refused_at_load(classifier, outputs):
    with pytest.raises(PredictorFault, match="'maps' is no tensor") as caught:
        load(classifier, outputs=outputs)
    assert caught.value.fields["known"] == ["label"]
    assert "zipmap" in caught.value.hint


def test_the_tensors_beside_it_can_be_had_by_name(classifier):
    predictor, facts = load(classifier, outputs=[{"layer_name": "label"}])
    assert [fact["name"] for fact in facts["outputs"]] == ["label"]
    assert predictor.predict([np.array([[0.2, 0.8]], np.float32)])[0].tolist() == [1]


def test_an_absent_framework_is_an_absent_environment(difference, monkeypatch):
    monkeypatch.setattr("mlmodelscope.predictors.port.importlib.import_module", _fail_to_import)
    with pytest.raises(PredictorFault) as caught:
        load(difference)
    assert caught.value.code == "environment_missing"
    assert "--environment venv" in caught.value.hint


def _fail_to_import(name):
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_layers_are_the_values_that_nodes_compute(difference):
    predictor, _ = load(difference)
    assert predictor.layer_names() == ["row", "c"]
    row, again = predictor.reveal([A, B], ["row"])[0], predictor.reveal([A + 1, B + 1], ["c", "row"])
    np.testing.assert_array_equal(row, [[1, 2]])
    np.testing.assert_array_equal(again[0], [[4, 5]])
    np.testing.assert_array_equal(again[1], [[2, 3]])
    np.testing.assert_array_equal(predictor.predict([A, B])[0], [[4, 5]])


def test_layers_are_shown_while_profiled_without_a_trace_of_it(difference, tmp_path):
    predictor, _ = load(difference)
    predictor.start_profile(str(tmp_path))
    predictor.predict([A, B])
    predictor.reveal([A, B], ["row"])
    predictor.predict([A, B])
    assert len(predictor.stop_profile()) == 2


def test_inputs_that_do_not_fit_are_refused_by_layers_too(difference):
    predictor, _ = load(difference)
    with pytest.raises(PredictorFault) as caught:
        predictor.reveal([A.astype(np.float64), B], ["row"])
    assert caught.value.code == "shape_mismatch"


@pytest.fixture
def texts(tmp_path):
    """A model that gives texts back."""
    sides = [helper.make_tensor_value_info(name, TensorProto.STRING, [None]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "texts", sides[:1], sides[1:])
    opset = helper.make_opsetid("", 13)
    (tmp_path / "texts.onnx").write_bytes(
        helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()
    )
    return str(tmp_path / "texts.onnx")


@pytest.mark.parametrize("dtype", [None, object])
@pytest.mark.parametrize("items", [["abc", "d", ""], [b"abc", b"d", b""]], ids=["texts", "bytes"])
def test_texts_and_bytes_are_the_same_to_a_model_of_texts(texts, items, dtype):
    predictor, _ = load(texts)
    (found,) = predictor.predict([np.array(items, dtype)])
    assert found.tolist() == ["abc", "d", ""]


@pytest.mark.parametrize("items", [["a", None], [b"\xff", b"a"]], ids=["nothing", "no UTF-8"])
def test_what_is_no_text_is_refused(texts, items):
    predictor, _ = load(texts)
    with pytest.raises(PredictorFault):
        predictor.predict([np.array(items, object)])


@pytest.mark.parametrize("call", [lambda one: one.layer_names(), lambda one: one.reveal([A, B], ["row"])])
def test_there_are_no_layers_without_a_model(difference, call):
    predictor, _ = load(difference)
    predictor.unload()
    with pytest.raises(PredictorFault, match="no model is loaded"):
        call(predictor)


def test_external_data_are_found_by_the_copy_too(tmp_path):
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    weights = np.arange(64, dtype=np.float32).reshape(8, 8)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["z"])],
        "external",
        [helper.make_tensor_value_info("x", floats, ["N", 8])],
        [helper.make_tensor_value_info("z", floats, ["N", 8])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = str(tmp_path / "external.onnx")
    onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    predictor, _ = load(path)
    x = -np.ones((2, 8), np.float32)
    np.testing.assert_array_equal(predictor.reveal([x], ["p"])[0], x @ weights)


def test_a_layer_without_an_array_and_a_file_without_layers_are_refused(tmp_path):
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [
            helper.make_node("SplitToSequence", ["x"], ["parts"], axis=1),
            helper.make_node("ConcatFromSequence", ["parts"], ["z"], axis=1),
        ],
        "sequence",
        [helper.make_tensor_value_info("x", floats, ["N", 2])],
        [helper.make_tensor_value_info("z", floats, ["N", 2])],
    )
    path = tmp_path / "sequence.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.write_bytes(made.SerializeToString())
    predictor, _ = load(str(path))
    with pytest.raises(PredictorFault, match="'parts' computes no array"):
        predictor.reveal([A], ["parts"])
    path.write_bytes(b"\x1c\0\0\0ORTM\0\0")
    with pytest.raises(PredictorFault, match="an ORT-format model"):
        predictor.layer_names()
