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
        ('type: "ReLU"', 'type: "Python" python_param { module: "antigravity" }', "model_format", "runs Python code"),
        ('type: "ReLU"', 'type: "HDF5Output"', "model_format", "writes a file"),
        ('bottom: "c2"', 'bottom: "c9"', "model_format", "reads 'c9'"),
        ('name: "d"', 'name: "other"', "model_format", "are missing"),
        ("num_output: 10", "num_output: 11", "model_format", "have shapes"),
    ],
)
def test_a_file_that_would_end_the_process_is_refused(predictor, tmp_path, old, new, code, said):
    fault = fault_of(lambda: predictor.load(changed(tmp_path, old, new)))
    assert fault.code == code
    assert said in fault.message


OLD = """
input: "x" input_dim: 1 input_dim: 2 input_dim: 1 input_dim: 1
{}
"""


def old_model(folder, layers):
    path = folder / "old.prototxt"
    path.write_text(OLD.format(layers))
    return {"graph_path": str(path), "weights_path": None, "threads": 1, "options": {}}


@pytest.mark.parametrize(
    "layers",
    [
        'layers { name: "y" type: RELU bottom: "x" top: "y" }',
        'layers { layer { name: "y" type: "relu" } bottom: "x" top: "y" }',
    ],
    ids=["version 1", "version 0"],
)
def test_files_of_old_versions_run(predictor, tmp_path, layers):
    predictor.load(old_model(tmp_path, layers))
    (y,) = predictor.predict([np.array([[[[-1]], [[2]]]], np.float32)])
    assert y.reshape(-1).tolist() == [0, 2]


@pytest.mark.parametrize(
    "layers",
    [
        'layers { name: "h" type: HDF5_OUTPUT bottom: "x" bottom: "x" PARAMETER }',
        'layers { layer { name: "h" type: "hdf5_output" PARAMETER } bottom: "x" bottom: "x" }',
    ],
    ids=["version 1", "version 0"],
)
def test_a_layer_of_an_old_file_that_writes_is_refused(predictor, tmp_path, layers):
    trace = tmp_path / "trace"
    layers = layers.replace("PARAMETER", f'hdf5_output_param {{ file_name: "{trace}" }}')
    fault = fault_of(lambda: predictor.load(old_model(tmp_path, layers)))
    assert (fault.code, fault.fields["layer"]) == ("model_format", "h")
    assert not trace.exists()


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
