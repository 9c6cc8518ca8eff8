"""What only JAX does: functions compiled per shape, callables with weights, 64-bit types, XLA's own profile."""

import subprocess

import numpy as np
import pytest

from mlmodelscope.predictors.port import PredictorFault
from opening import exported_model, opened
from stacks import environment_of, portable, variables_of

pytestmark = pytest.mark.needs("registry", "pythons")

# a callable must be importable beside JAX, so the whole test runs there
CALLABLES = """
import sys
sys.path[:0] = sys.argv[1:3]
import numpy as np
from mlmodelscope.predictors.jax import Predictor
from mlmodelscope.predictors.port import PredictorFault

def model(function, kind):
    np.savez(sys.argv[2] + "/weights.npz", w=np.full((2, 3), 1 / 3, kind))
    inputs = [{"name": "x", "shape": [None, 2], "element_type": kind}]
    return {"graph_path": sys.argv[2] + "/weights.npz", "options": {"callable": "made:" + function, "inputs": inputs}}

predictor = Predictor()
for kind in ("float32", "float64", "float32"):
    facts = predictor.load(model("multiply", kind))
    assert facts["precision"] == kind, facts
    assert facts["outputs"] == [{"name": "y", "shape": [None, 3], "element_type": kind}], facts
    for batch in (1, 4):
        x = np.arange(2 * batch).reshape(batch, 2).astype(kind)
        (y,) = predictor.predict([x])
        assert y.dtype == kind and np.abs(y - x @ np.full((2, 3), 1 / 3, kind)).max() < 1e-6
for function, code in (("fail", "predictor_failed"), ("absent", "environment_missing")):
    try:
        predictor.load(model(function, "float32"))
    except PredictorFault as fault:
        assert fault.code == code, fault.message
    else:
        raise AssertionError(function)
print("callables run")
"""
MADE = """
def multiply(weights, x):
    return {"y": x @ weights["w"]}

def fail(weights, x):
    raise ValueError("on purpose")
"""


@pytest.fixture(scope="module")
def predictor():
    with opened("jax") as found:
        yield found


def fault_of(call):
    with pytest.raises(PredictorFault) as caught:
        call()
    return caught.value


def test_facts_are_asked_of_the_compiled_program(predictor):
    facts = predictor.load(exported_model("jax", "convolutional"))
    assert (facts["provider"], facts["device"], facts["precision"]) == ("XLA CPU", "cpu", "float32")
    assert facts["library"].startswith("XLA")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_pool_has_the_threads_asked_for_in_one_process(predictor, threads):
    assert predictor.load(exported_model("jax", "linear", threads=threads))["threads"] == threads


def test_a_profile_names_the_operations_of_the_program(predictor, tmp_path):
    predictor.load(exported_model("jax", "convolutional"))
    x = np.ones((1, 3, 32, 32), np.float32)
    predictor.predict([x])
    predictor.start_profile(str(tmp_path))
    predictor.predict([x])
    (layers,) = predictor.stop_profile()
    assert {"convolution", "dot"} & {layer["operator"] for layer in layers}
    assert all(layer["outputs"] for layer in layers)


def test_a_callable_must_say_what_it_takes(predictor, tmp_path):
    np.savez(tmp_path / "weights.npz", w=np.eye(2, dtype=np.float32))
    model = {"graph_path": str(tmp_path / "weights.npz"), "options": {"callable": "os.path:join"}}
    assert fault_of(lambda: predictor.load(model)).fields["option"] == "inputs"


def test_callables_run_with_their_weights_and_widths(tmp_path):
    built = environment_of("jax", "0.10.2")
    (tmp_path / "made.py").write_text(MADE)
    command = [built.python, "-I", "-c", CALLABLES, str(portable()), str(tmp_path)]
    done = subprocess.run(command, env=variables_of("jax", built), capture_output=True, text=True, timeout=300)
    assert done.stdout.strip().endswith("callables run"), done.stderr[-3000:]
