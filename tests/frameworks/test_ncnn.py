"""What only ncnn does: batches as single runs, inputs that layers write to, files that it would not survive."""

from pathlib import Path

import numpy as np
import pytest

from mlmodelscope.predictors.port import PredictorFault
from opening import exported_model, opened

pytestmark = pytest.mark.needs("registry", "pythons")


@pytest.fixture(scope="module")
def predictor():
    with opened("ncnn") as found:
        yield found


def fault_of(call):
    with pytest.raises(PredictorFault) as caught:
        call()
    return caught.value


def written(folder, text, weights=b""):
    (folder / "network.param").write_text(text)
    (folder / "network.bin").write_bytes(weights)
    return {"graph_path": str(folder / "network.param"), "weights_path": None, "threads": 1}


def test_facts_say_that_samples_run_one_by_one_in_float32(predictor):
    facts = predictor.load(exported_model("ncnn", "convolutional"))
    assert "one sample at a time" in facts["optimization"]
    assert facts["precision"] == "float32"
    assert facts["inputs"][0]["shape"] == [None, 3, 32, 32]
    assert facts["outputs"] == [{"name": "p", "shape": [None, 10], "element_type": "float32"}]


def test_a_layer_that_writes_to_its_input_leaves_ours_alone(predictor, tmp_path):
    predictor.load(written(tmp_path, "7767517\n2 2\nInput x 0 1 x 0=5 1=5 2=3\nReLU r 1 1 x r\n"))
    # 25 numbers per channel: ncnn pads channels to multiples of four
    x = np.arange(150, dtype=np.float32).reshape(2, 3, 5, 5) - 70
    given = x.copy()
    np.testing.assert_array_equal(predictor.predict([given])[0], np.maximum(x, 0))
    np.testing.assert_array_equal(given, x)


def test_an_input_without_sizes_takes_any(predictor, tmp_path):
    facts = predictor.load(written(tmp_path, "7767517\n2 2\nInput x 0 1 x\nReLU r 1 1 x r\n"))
    assert facts["inputs"][0]["shape"] is None
    for shape in ((1, 3), (2, 2, 7), (1, 3, 4, 5)):
        assert predictor.predict([np.ones(shape, np.float32)])[0].shape == shape
    assert fault_of(lambda: predictor.predict([np.ones((0, 3), np.float32)])).code == "shape_mismatch"
    assert fault_of(lambda: predictor.predict([np.ones(3, np.float32)])).code == "shape_mismatch"


def test_a_network_that_cannot_be_tried_leaves_no_model(predictor, tmp_path):
    # the piece begins behind the end of the input
    model = written(tmp_path, "7767517\n2 2\nInput x 0 1 x 0=5 1=5 2=3\nCrop r 1 1 x r 0=9 1=9 2=9 3=9 4=9 5=9\n")
    assert fault_of(lambda: predictor.load(model)).code == "predictor_failed"
    assert "no model is loaded" in fault_of(lambda: predictor.predict([np.ones((1, 3, 5, 5), np.float32)])).message


def test_inner_layers_can_be_seen(predictor):
    predictor.load(exported_model("ncnn", "convolutional"))
    x = np.random.default_rng(1).standard_normal((2, 3, 32, 32), dtype=np.float32)
    before, after, last = predictor.reveal([x], ["c1", "r1/made", "p"])
    assert before.min() < 0
    np.testing.assert_allclose(after, np.maximum(before, 0), atol=1e-6)
    np.testing.assert_allclose(last, predictor.predict([x])[0], atol=1e-6)


def test_weights_that_are_cut_short_are_a_fault(predictor, tmp_path):
    model = exported_model("ncnn", "linear")
    path = tmp_path / "short.bin"
    path.write_bytes(Path(model["weights_path"]).read_bytes()[:-9])
    assert fault_of(lambda: predictor.load({**model, "weights_path": str(path)})).code == "model_format"
    absent = {**model, "weights_path": str(tmp_path / "absent.bin")}
    assert fault_of(lambda: predictor.load(absent)).fields["expected"] == absent["weights_path"]


def test_an_operator_that_ncnn_lacks_is_named(predictor, tmp_path):
    fault = fault_of(lambda: predictor.load(written(tmp_path, "7767517\n2 2\nInput x 0 1 x 0=4\nNope r 1 1 x r\n")))
    assert fault.code == "model_format"
    assert "Nope" in fault.message
