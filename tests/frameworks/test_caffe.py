"""What only Caffe does: files that would end the process are refused, any blob is an output, layers are timed alone."""

from pathlib import Path

import numpy as np
import pytest

from mlmodelscope.predictors.port import PredictorFault
from opening import exported_model, opened

pytestmark = pytest.mark.needs("registry", "pythons")


@pytest.fixture(scope="module")
def predictor():
    with opened("caffe") as found:
        yield found


def images(count=2):
    return np.random.default_rng(1).standard_normal((count, 3, 32, 32), dtype=np.float32)


def fault_of(call):
    with pytest.raises(PredictorFault) as caught:
        call()
    return caught.value


def changed(folder, old, new):
    model = exported_model("caffe", "convolutional")
    text = Path(model["graph_path"]).read_text()
    assert old in text
    path = folder / "changed.prototxt"
    path.write_text(text.replace(old, new))
    return {**model, "graph_path": str(path)}


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ("layer {", "layer {{", "model_format", "cannot read"),
        ("num_output", "num_outputs", "model_format", "no field named"),
        ('type: "ReLU"', 'type: "Rectifier"', "predictor_failed", "no layer type 'Rectifier'"),
        ('bottom: "c2"', 'bottom: "c9"', "model_format", "reads 'c9'"),
        ('name: "d"', 'name: "other"', "model_format", "are missing"),
        ("num_output: 10", "num_output: 11", "model_format", "have shapes"),
    ],
)
def test_a_file_that_would_end_the_process_is_refused(predictor, tmp_path, old, new, code, said):
    fault = fault_of(lambda: predictor.load(changed(tmp_path, old, new)))
    assert fault.code == code
    assert said in fault.message


def test_weights_are_needed(predictor):
    fault = fault_of(lambda: predictor.load(exported_model("caffe", "convolutional", weights_path=None)))
    assert "weights_path" in fault.hint


def test_an_inner_blob_can_be_an_output(predictor):
    facts = predictor.load(exported_model("caffe", "convolutional", outputs=[{"layer_name": "r1"}]))
    assert facts["outputs"] == [{"name": "r1", "shape": [None, 8, 16, 16], "element_type": "float32"}]
    inner = predictor.predict([images()])[0]
    predictor.load(exported_model("caffe", "convolutional"))
    np.testing.assert_array_equal(inner, predictor.reveal([images()], ["r1"])[0])


def test_layers_are_those_of_the_file_and_the_copies_in_between(predictor, tmp_path):
    predictor.load(exported_model("caffe", "convolutional"))
    predictor.start_profile(str(tmp_path))
    predictor.predict([images()])
    (layers,) = predictor.stop_profile()
    assert [node for layer in layers for node in layer["nodes"]] == ["c1", "r1", "c2", "c3", "a", "r2", "m", "d", "p"]
    assert [layer["operator"] for layer in layers if not layer["nodes"]] == ["Split"]
    first = layers[0]
    assert first["inputs"] == [{"element_type": "float32", "shape": [2, 3, 32, 32]}]
    assert first["parameter_bytes"] == 4 * (8 * 3 * 3 * 3 + 8)
    ends = [layer["start_ns"] + layer["duration_ns"] for layer in layers]
    assert all(end <= after["start_ns"] for end, after in zip(ends, layers[1:], strict=False))


def test_the_kernel_library_is_named(predictor):
    assert predictor.load(exported_model("caffe", "linear"))["library"] == "OpenBLAS"
