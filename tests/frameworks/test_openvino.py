"""What only OpenVINO does: formats beside its own, precision, threads, kernels behind the layers."""

from pathlib import Path

import numpy as np
import pytest

import networks
from mlmodelscope.predictors.port import PredictorFault
from opening import exported_model, opened
from stacks import HOME

pytestmark = pytest.mark.needs("registry", "pythons")


@pytest.fixture(scope="module")
def predictor():
    with opened("openvino") as found:
        yield found


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(1).standard_normal((3, 3, 32, 32), dtype=np.float32) / 20


def fault_of(call):
    with pytest.raises(PredictorFault) as caught:
        call()
    return caught.value


def test_ir_and_onnx_give_the_same_answers(predictor, images):
    answers = []
    for framework in ("openvino", "onnxruntime"):
        facts = predictor.load(exported_model(framework, "convolutional"))
        assert facts["framework"] == "openvino"
        answers.append(predictor.predict([images])[0])
    np.testing.assert_allclose(*answers, rtol=1e-5, atol=1e-6)


def test_weights_are_found_beside_the_graph(predictor):
    predictor.load(exported_model("openvino", "linear", weights_path=None))
    x = np.array([[1, 2, 3, 4]], np.float32)
    np.testing.assert_array_equal(predictor.predict([x])[0], x @ networks.WEIGHTS.T + networks.BIAS)


def test_weights_that_are_cut_short_are_a_fault(predictor, tmp_path):
    model = exported_model("openvino", "linear")
    weights = tmp_path / "network.bin"
    weights.write_bytes(Path(model["weights_path"]).read_bytes()[:-9])
    assert fault_of(lambda: predictor.load({**model, "weights_path": str(weights)})).code == "model_format"


def test_the_kernels_compute_in_float32_unless_asked(predictor):
    facts = predictor.load(exported_model("openvino", "convolutional"))
    assert (facts["precision"], facts["device"], facts["provider"]) == ("float32", "cpu", "CPU")
    assert "oneDNN" in facts["library"]


def test_another_precision_is_in_force_or_refused(predictor):
    model = exported_model("openvino", "convolutional", options={"precision": "bf16"})
    refused = None
    try:
        facts = predictor.load(model)
    except PredictorFault as fault:
        refused = fault
    # which of the two depends on the processor
    if refused is None:
        assert "bfloat16" in facts["precision"]
    else:
        assert "f32" in refused.fields["expected"]
        assert "bf16" not in refused.fields["expected"]


def test_the_profile_names_kernels_the_models_nodes_and_the_shapes_of_each_call(predictor, images, tmp_path):
    predictor.load(exported_model("openvino", "convolutional"))
    predictor.start_profile(str(tmp_path))
    for batch in (1, 3):
        predictor.predict([images[:batch]])
    for batch, layers in zip((1, 3), predictor.stop_profile(), strict=True):
        nodes = [node for layer in layers for node in layer["nodes"]]
        assert {"c1", "r1", "c2", "c3", "a", "r2", "m", "d", "p"} <= set(nodes)
        convolution = next(layer for layer in layers if "c1" in layer["nodes"])
        assert (convolution["operator"], convolution["nodes"][-1]) == ("Convolution", "r1")
        assert convolution["provider"].endswith("f32")
        assert convolution["outputs"] == [{"element_type": "float32", "shape": [batch, 8, 16, 16]}]
        assert convolution["parameter_bytes"] >= 4 * 8 * 3 * 3 * 3


def test_fused_layers_can_be_seen(predictor, images):
    predictor.load(exported_model("openvino", "convolutional"))
    before, after = predictor.reveal([images], ["c1", "r1"])
    assert before.min() < 0
    np.testing.assert_allclose(after, np.maximum(before, 0), atol=1e-6)


def test_nothing_is_left_in_the_home(predictor):
    predictor.load(exported_model("openvino", "linear"))
    assert not (HOME / "worker-home" / "intel").exists()
