"""What only Caffe2 does: nets in two files, inputs that only their names tell, operators timed one by one."""

from pathlib import Path

import numpy as np
import pytest

from mlmodelscope.predictors.port import PredictorFault
from opening import exported_model, opened

pytestmark = pytest.mark.needs("registry", "pythons")

X = np.array([[1, 2, 3, 4], [-3, 1, -1, 2]], np.float32)


@pytest.fixture(scope="module")
def predictor():
    with opened("caffe2") as found:
        yield found


def fault_of(call):
    with pytest.raises(PredictorFault) as caught:
        call()
    return caught.value


def test_facts_are_asked_of_the_framework(predictor):
    facts = predictor.load(exported_model("caffe2", "linear"))
    assert (facts["precision"], facts["device"], facts["threads"]) == ("float32", "cpu", 1)
    assert facts["library"].startswith("MKL ")
    assert [layer["shape"] for layer in facts["outputs"]] == [[None, 3], [None, 3]]


def test_a_net_without_stated_shapes_says_so(predictor):
    facts = predictor.load(exported_model("caffe2", "linear", options={}))
    assert [layer["shape"] for layer in facts["inputs"] + facts["outputs"]] == [None, None, None]
    fault = fault_of(lambda: predictor.predict([np.zeros((1, 5), np.float32)]))
    assert fault.code == "predictor_failed"
    assert "Dimension mismatch" in fault.message


def test_the_two_files_cannot_change_places(predictor):
    model = exported_model("caffe2", "linear")
    swapped = {**model, "graph_path": model["weights_path"], "weights_path": model["graph_path"]}
    assert fault_of(lambda: predictor.load(swapped)).code == "model_format"


def test_a_missing_or_damaged_init_net_is_a_fault(predictor, tmp_path):
    model = exported_model("caffe2", "linear")
    missing = fault_of(lambda: predictor.load({**model, "weights_path": None}))
    assert missing.code == "predictor_failed"
    assert missing.fields["expected"] == ["x", "b", "w"]
    damaged = tmp_path / "init_net.pb"
    damaged.write_bytes(Path(model["weights_path"]).read_bytes()[:-9])
    assert fault_of(lambda: predictor.load({**model, "weights_path": str(damaged)})).code == "model_format"


def test_operators_are_timed_and_shown(predictor, tmp_path):
    images = np.random.default_rng(1).standard_normal((2, 3, 32, 32), dtype=np.float32)
    predictor.load(exported_model("caffe2", "convolutional"))
    answer = predictor.predict([images])[0]
    predictor.start_profile(str(tmp_path))
    np.testing.assert_array_equal(predictor.predict([images])[0], answer)
    [layers] = predictor.stop_profile()
    assert [layer["name"] for layer in layers] == predictor.layer_names()
    assert layers[0]["operator"] == "Conv"
    assert layers[0]["outputs"] == [{"element_type": "float32", "shape": [2, 8, 16, 16]}]
    assert layers[0]["parameter_bytes"] == 4 * (8 * 3 * 3 * 3 + 8)
    c1, r1 = predictor.reveal([images], ["c1", "r1"])
    np.testing.assert_array_equal(r1, np.maximum(c1, 0))
    assert (c1 < 0).any()
