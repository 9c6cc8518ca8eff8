"""The ONNX that the exporters write by hand is what the onnx package and ONNX Runtime take it for."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

FOLDER = Path(__file__).resolve().parents[3] / "frameworks"


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


onnx_model = module(FOLDER / "export" / "onnxfile.py").onnx_model
networks = module(FOLDER / "networks.py")


@pytest.fixture(autouse=True)
def _quiet_runtime(monkeypatch):
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")


@pytest.mark.parametrize("batch", [None, 1])
@pytest.mark.parametrize("network", [networks.linear(), networks.convolutional(), networks.large(1000)])
def test_the_checker_accepts_it(network, batch):
    model = onnx.load_model_from_string(onnx_model(*network, batch))
    onnx.checker.check_model(model, full_check=True)
    size = model.graph.input[0].type.tensor_type.shape.dim[0]
    assert (size.dim_param, size.dim_value) == (("N", 0) if batch is None else ("", 1))
    assert [output.name for output in model.graph.output] == network[0]["outputs"]


def test_it_computes_what_the_network_says():
    session = ort.InferenceSession(onnx_model(*networks.linear(), None))
    x = np.array([[1, 2, 3, 4], [-3, 1, -1, 2]], np.float32)
    y = x @ networks.WEIGHTS.T + networks.BIAS
    for got, expected in zip(session.run(["y", "z"], {"x": x}), [y, np.maximum(y, 0)], strict=True):
        np.testing.assert_array_equal(got, expected)
