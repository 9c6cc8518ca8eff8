"""TensorRT on a real GPU; and where there is none, the fault that says so."""

import shutil

import numpy as np
import pytest

import networks
from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.predictors.tensorrt import Predictor
from stacks import EXPORTERS


@pytest.fixture
def path(tmp_path, monkeypatch):
    # the folder of the exporters has an onnx.py, which must not stay before the package of that name
    monkeypatch.syspath_prepend(str(EXPORTERS))
    from onnxfile import onnx_model

    described, weights = networks.linear()
    (tmp_path / "linear.onnx").write_bytes(onnx_model(described, weights, None))
    return str(tmp_path / "linear.onnx")


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a driver")
def test_without_a_driver_the_fault_says_exactly_that(path):
    with pytest.raises(PredictorFault) as caught:
        Predictor().load({"graph_path": path, "threads": 1})
    assert caught.value.code == "environment_missing"
    assert "no NVIDIA driver here: libcuda.so.1 is not found" in caught.value.message


@pytest.mark.needs("nvidia")
def test_a_model_is_built_and_answers(path, tmp_path):
    predictor = Predictor()
    facts = predictor.load({"graph_path": path, "threads": 1})
    assert facts["precision"] == "float32"
    x = np.array([[1, 2, 3, 4], [-3, 1, -1, 2]], np.float32)
    y, z = predictor.predict([x])
    expected = x @ networks.WEIGHTS.T + networks.BIAS
    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(z, np.maximum(expected, 0), atol=1e-5)
    predictor.start_profile(str(tmp_path))
    predictor.predict([x])
    assert all(predictor.stop_profile())
    predictor.unload()
