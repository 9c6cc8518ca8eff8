"""What only MXNet does: fusion that must not touch outputs, names with a suffix, labels, profiles of fused layers."""

import json
from pathlib import Path

import numpy as np
import pytest

from mlmodelscope.predictors.port import PredictorFault
from opening import exported_model, opened

pytestmark = pytest.mark.needs("registry", "pythons")

X = np.array([[1, 2, 3, 4], [-3, 1, -1, 2]], dtype=np.float32)


@pytest.fixture(scope="module")
def predictor():
    with opened("mxnet") as found:
        yield found


def images(count=2):
    return np.random.default_rng(1).standard_normal((count, 3, 32, 32), dtype=np.float32)


def fault_of(call):
    with pytest.raises(PredictorFault) as caught:
        call()
    return caught.value


def test_an_output_that_is_used_on_is_not_fused_away(predictor):
    facts = predictor.load(exported_model("mxnet", "linear"))
    assert facts["optimization"] == "none"
    y, z = predictor.predict([X])
    np.testing.assert_array_equal(z, np.maximum(y, 0))
    assert (y < 0).any()


def test_fusion_that_would_answer_wrongly_is_refused(predictor):
    model = exported_model("mxnet", "linear", options={"subgraph_backend": "MKLDNN"})
    fault = fault_of(lambda: predictor.load(model))
    assert (fault.code, fault.fields["layers"]) == ("predictor_failed", ["y"])


def test_fused_and_plain_operators_agree(predictor):
    answers = {}
    for backend in ("MKLDNN", "NONE"):
        facts = predictor.load(exported_model("mxnet", "convolutional", options={"subgraph_backend": backend}))
        answers[facts["optimization"]] = predictor.predict([images()])[0]
    assert set(answers) == {"subgraphs MKLDNN", "none"}
    np.testing.assert_allclose(answers["subgraphs MKLDNN"], answers["none"], atol=1e-6)


@pytest.mark.parametrize("name", ["r1", "r1_output"])
def test_an_inner_layer_can_be_an_output(predictor, name):
    facts = predictor.load(exported_model("mxnet", "convolutional", outputs=[{"layer_name": name}]))
    assert facts["outputs"] == [{"name": "r1", "shape": [None, 8, 16, 16], "element_type": "float32"}]
    inner = predictor.predict([images()])[0]
    predictor.load(exported_model("mxnet", "convolutional"))
    np.testing.assert_allclose(inner, predictor.reveal([images()], ["r1"])[0], atol=1e-5)


def test_layers_are_profiled_as_executed_with_the_models_nodes_behind(predictor, tmp_path):
    predictor.load(exported_model("mxnet", "convolutional"))
    predictor.start_profile(str(tmp_path))
    predictor.predict([images()])
    (layers,) = predictor.stop_profile()
    assert [layer["nodes"] for layer in layers] == [["c1", "r1"], ["c3"], ["c2", "a", "r2"], ["m"], ["d"], ["p"]]
    assert layers[0]["operator"] == "_sg_mkldnn_conv"
    assert layers[0]["parameter_bytes"] == 4 * (8 * 3 * 3 * 3 + 8)
    assert layers[0]["outputs"] == [{"element_type": "float32", "shape": [2, 8, 16, 16]}]


def test_a_profile_tells_the_types_that_layers_give(predictor, tmp_path):
    model = exported_model("mxnet", "linear", outputs=[{"layer_name": 0}])
    graph = json.loads(Path(model["graph_path"]).read_text())
    nodes = [
        *graph["nodes"],
        {"op": "Cast", "name": "half", "attrs": {"dtype": "float16"}, "inputs": [[4, 0, 0]]},
        {"op": "Activation", "name": "positive", "attrs": {"act_type": "relu"}, "inputs": [[5, 0, 0]]},
        {"op": "Cast", "name": "whole", "attrs": {"dtype": "int8"}, "inputs": [[6, 0, 0]]},
    ]
    graph.update(nodes=nodes, heads=[[7, 0, 0]], node_row_ptr=list(range(9)))
    path = tmp_path / "cast-symbol.json"
    path.write_text(json.dumps(graph))
    predictor.load({**model, "graph_path": str(path)})
    predictor.start_profile(str(tmp_path))
    predictor.predict([X])
    (layers,) = predictor.stop_profile()
    found = {layer["name"]: layer["outputs"][0]["element_type"] for layer in layers}
    assert (found["half"], found["positive"], found["whole"]) == ("float16", "float16", "int8")


def test_labels_of_a_loss_need_not_be_given(predictor, tmp_path):
    model = exported_model("mxnet", "linear", outputs=[{"layer_name": 0}])
    graph = json.loads(Path(model["graph_path"]).read_text())
    nodes = [
        *graph["nodes"],
        {"op": "null", "name": "softmax_label", "inputs": []},
        {"op": "SoftmaxOutput", "name": "softmax", "inputs": [[4, 0, 0], [5, 0, 0]]},
    ]
    graph.update(nodes=nodes, heads=[[6, 0, 0]], arg_nodes=[*graph["arg_nodes"], 5], node_row_ptr=list(range(8)))
    path = tmp_path / "loss-symbol.json"
    path.write_text(json.dumps(graph))
    facts = predictor.load({**model, "graph_path": str(path)})
    assert [fact["name"] for fact in facts["inputs"]] == ["x"]
    np.testing.assert_allclose(predictor.predict([X])[0].sum(axis=-1), 1, atol=1e-6)


def test_parameters_are_needed_and_must_be_parameters(predictor, tmp_path):
    model = exported_model("mxnet", "linear")
    assert fault_of(lambda: predictor.load({**model, "weights_path": None, "inputs": [{"layer_name": "x"}]})).fields[
        "missing"
    ] == ["w", "b"]
    cut = tmp_path / "cut.params"
    cut.write_bytes(Path(model["weights_path"]).read_bytes()[:60])
    assert fault_of(lambda: predictor.load({**model, "weights_path": str(cut)})).code == "model_format"


def test_the_kernel_library_is_named(predictor):
    assert predictor.load(exported_model("mxnet", "linear"))["library"].startswith("oneDNN 2.")
