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
    np.savez(sys.argv[2] + "/weights.npz", w=np.full((2, 3), 1 / 3, kind if kind != "bfloat16" else "float32"))
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
facts = predictor.load(model("halve", "bfloat16"))
assert facts["inputs"] == [{"name": "x", "shape": [None, 2], "element_type": "float32"}], facts
assert facts["outputs"] == [{"name": "y", "shape": [None, 2], "element_type": "float32"}], facts
(y,) = predictor.predict([np.array([[1.01, 3]], "float32")])
assert y.dtype == "float32" and y.tolist() == [[0.50390625, 1.5]], y
print("callables run")
"""
MADE = """
def multiply(weights, x):
    return {"y": x @ weights["w"]}

def halve(weights, x):
    assert x.dtype == "bfloat16", x.dtype
    return {"y": x / 2}

def fail(weights, x):
    raise ValueError("on purpose")
"""


# numpy has no such types; what is exported with them, or made with them inside, can only be written beside JAX
NARROW = """
import sys
import jax, jax.numpy as jnp

def function(given):
    x = given["x"]
    narrow = {"eighth": x.astype(jnp.float8_e4m3fn), "few": x.astype(jnp.int4)}
    return dict(narrow, half=x / 3, wide=x.astype("float32"))

(batch,) = jax.export.symbolic_shape("batch")
with open(sys.argv[1], "wb") as file:
    given = {"x": jax.ShapeDtypeStruct((batch, 2), jnp.bfloat16)}
    file.write(jax.export.export(jax.jit(function))(given).serialize())
"""
# sorted as paths of keys and sorted as names with dots, these weights have two orders
WEIGHTED = """
import sys
import jax, numpy as np

weights = {"conv": {"w": np.full(2, 1, "float32")}, "conv-bn": {"w": np.full(2, 2, "float32")}}

def function(weights, x):
    return x * weights["conv"]["w"] + 100 * weights["conv-bn"]["w"]

with open(sys.argv[1], "wb") as file:
    given = jax.ShapeDtypeStruct((1, 2), "float32")
    file.write(jax.export.export(jax.jit(function))(weights, given).serialize())
np.savez(sys.argv[1] + ".npz", **{name + ".w": weights[name]["w"] for name in weights})
"""
# takes batches of two or more, and 1 is what a load tries
UNEVEN = """
import sys
import jax

(batch,) = jax.export.symbolic_shape("batch", constraints=["batch >= 2"])
with open(sys.argv[1], "wb") as file:
    given = jax.ShapeDtypeStruct((batch, 2), "float32")
    file.write(jax.export.export(jax.jit(lambda x: x + 1))(given).serialize())
"""
# 1.01 is no number of bfloat16: what arrives shows that it was rounded
NARROW_INPUT = np.array([[1.01, -2]], np.float32)
NARROW_OUTPUTS = {
    "half": np.array([[0.3359375, -0.66796875]], np.float32),
    "eighth": np.array([[1, -2]], np.float32),
    "few": np.array([[1, -2]], np.int8),
    "wide": np.array([[1.0078125, -2]], np.float32),
}


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


def test_a_profile_has_the_shapes_of_the_program_that_ran(predictor, tmp_path):
    predictor.load(exported_model("jax", "linear"))
    batches = [2, 3, 2]
    predictor.start_profile(str(tmp_path))
    for batch in batches:
        predictor.predict([np.ones((batch, 4), np.float32)])
    calls = predictor.stop_profile()
    found = [{layer["outputs"][0]["shape"][0] for layer in layers if layer["operator"] == "dot"} for layers in calls]
    assert found == [{batch} for batch in batches]


def write_with_jax(script, path):
    built = environment_of("jax", "0.10.2")
    command = [built.python, "-I", "-c", script, str(path)]
    done = subprocess.run(command, env=variables_of("jax", built), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


def test_types_that_numpy_does_not_have_cross_as_wider_ones(predictor, tmp_path):
    path = tmp_path / "narrow.jax"
    write_with_jax(NARROW, path)
    facts = predictor.load({"graph_path": str(path), "options": None})
    assert facts["inputs"] == [{"name": "x", "shape": [None, 2], "element_type": "float32"}]
    assert {fact["name"]: fact["element_type"] for fact in facts["outputs"]} == {
        name: str(array.dtype) for name, array in NARROW_OUTPUTS.items()
    }
    for fact, found in zip(facts["outputs"], predictor.predict([NARROW_INPUT]), strict=True):
        expected = NARROW_OUTPUTS[fact["name"]]
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_a_file_that_cannot_be_compiled_is_refused_with_or_without_options(predictor, tmp_path):
    path = tmp_path / "uneven.jax"
    write_with_jax(UNEVEN, path)
    for options in ({}, None):
        fault = fault_of(lambda options=options: predictor.load({"graph_path": str(path), "options": options}))
        assert (fault.code, fault.fields["path"]) == ("model_format", str(path))


def test_every_weight_goes_where_its_name_says(predictor, tmp_path):
    path = tmp_path / "weighted.jax"
    write_with_jax(WEIGHTED, path)
    predictor.load({"graph_path": str(path), "weights_path": f"{path}.npz"})
    assert predictor.predict([np.ones((1, 2), np.float32)])[0].tolist() == [[201, 201]]


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
