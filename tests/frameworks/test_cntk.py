"""What only CNTK does: functions by unique id, inner functions as outputs, ONNX files."""

import subprocess

import numpy as np
import pytest

import networks
from mlmodelscope.predictors.port import PredictorFault
from opening import exported_model, opened
from stacks import EXPORTERS, environment_of, variables_of

pytestmark = pytest.mark.needs("registry", "pythons")

X = np.array([[1, 2, 3, 4], [-3, 1, -1, 2]], dtype=np.float32)

# the names that a file gives for a function's module and class are put into a statement and run
USER_FUNCTION = """
import sys
import cntk
from cntk.ops.functions import UserFunction

class Twice(UserFunction):
    def __init__(self, value):
        super().__init__([value], name="twice")
    def infer_outputs(self):
        x = self.inputs[0]
        return [cntk.output_variable(x.shape, x.dtype, x.dynamic_axes)]
    def serialize(self):
        return {}

function = cntk.user_function(Twice(cntk.input_variable(4)))
Twice.__module__ = "os import path; open({!r}, 'w') #".format(sys.argv[2])
function.save(sys.argv[1])
"""


@pytest.fixture(scope="module")
def predictor():
    with opened("cntk") as found:
        yield found


def images(count=2):
    return np.random.default_rng(1).standard_normal((count, 3, 32, 32), dtype=np.float32)


def test_functions_without_a_name_go_by_their_unique_id(predictor):
    predictor.load(exported_model("cntk", "linear"))
    unnamed, *named = predictor.layer_names()
    assert unnamed.startswith("Times")
    assert named == ["y", "z"]
    facts = predictor.load(exported_model("cntk", "linear", outputs=[{"layer_name": unnamed}, {"layer_name": 0}]))
    assert [fact["name"] for fact in facts["outputs"]] == [unnamed, "y"]
    product, y = predictor.predict([X])
    np.testing.assert_allclose(product + networks.BIAS, y, atol=1e-5)


def test_inner_functions_are_revealed_in_the_order_asked_for(predictor):
    predictor.load(exported_model("cntk", "convolutional"))
    r2, c1 = predictor.reveal([images()], ["r2", "c1"])
    assert (r2.shape, c1.shape) == ((2, 8, 16, 16), (2, 8, 16, 16))
    assert r2.min() == 0
    assert c1.min() < 0


def test_facts_name_what_computes(predictor):
    facts = predictor.load(exported_model("cntk", "convolutional"))
    assert facts["library"].startswith("MKL ")
    assert (facts["precision"], facts["device"]) == ("float32", "cpu")


def test_an_onnx_file_of_its_time_is_read(predictor, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXPORTERS))
    from onnxfile import onnx_model

    path = tmp_path / "linear.onnx"
    path.write_bytes(onnx_model(*networks.linear(), 2))
    facts = predictor.load({**exported_model("cntk", "linear"), "graph_path": str(path)})
    assert facts["inputs"] == [{"name": "x", "shape": [2, 4], "element_type": "float32"}]
    y = X @ networks.WEIGHTS.T + networks.BIAS
    answers = predictor.predict([X])
    assert any(np.array_equal(answer, np.maximum(y, 0)) for answer in answers)
    assert any(np.array_equal(answer, y) for answer in answers)


def test_a_file_with_code_of_its_own_is_refused_before_it_runs(predictor, tmp_path):
    path, trace = tmp_path / "user.model", tmp_path / "trace"
    built = environment_of("cntk", "2.7.post2")
    done = subprocess.run(
        [built.python, "-c", USER_FUNCTION, str(path), str(trace)],
        env=variables_of("cntk", built),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with pytest.raises(PredictorFault, match="user-defined function") as caught:
        predictor.load({**exported_model("cntk", "linear"), "graph_path": str(path)})
    assert caught.value.code == "model_format"
    assert not trace.exists()


def test_an_onnx_file_that_cntk_cannot_read_says_what_it_can(predictor, tmp_path):
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"\x08\x07\x12\x04none" * 4)
    with pytest.raises(PredictorFault, match="cannot read") as caught:
        predictor.load({**exported_model("cntk", "linear"), "graph_path": str(path)})
    assert caught.value.code == "model_format"
    assert "opset 9" in caught.value.hint
