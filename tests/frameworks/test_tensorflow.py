"""Formats, options and profiles of TensorFlow that the contract of all frameworks does not ask for."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import networks
from mlmodelscope.core.plugins import predictors
from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.worker.foreign import open_foreign
from mlmodelscope.worker.job import FrameworkHost
from stacks import HOME, Tested, environment_of, exported, portable, variables_of

pytestmark = pytest.mark.needs("registry", "pythons")

NEW = Tested("tensorflow", "2.21.0", "tensorflow")
OLD = Tested("tensorflow", "1.15.5", "tensorflow1")
SAMPLE = np.array([[1, 2, 3, 4], [-3, 1, -1, 2]], np.float32)
SUMS = SAMPLE @ networks.WEIGHTS.T + networks.BIAS

# numpy has no bfloat16: a model that takes and gives it can only be written beside TensorFlow
NARROW = """
import sys
import tensorflow as tf

if tf.__version__.startswith("1."):
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.bfloat16, [None, 2], "x")
        tf.identity(x + x, "double")
        tf.cast(x, tf.float32, "wide")
    with open(sys.argv[1], "wb") as file:
        file.write(graph.as_graph_def().SerializeToString())
else:
    class Model(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.bfloat16, name="x")])
        def __call__(self, x):
            return {"double": x + x, "wide": tf.cast(x, tf.float32)}

    model = Model()
    tf.saved_model.save(model, sys.argv[1], signatures=model.__call__)
"""
# 1.01 is no number of bfloat16: what arrives shows that it was rounded
NARROW_INPUT = np.array([[1.01, -2]], np.float32)
NARROW_OUTPUTS = {"double": [[2.015625, -4]], "wide": [[1.0078125, -2]]}


@pytest.fixture(scope="module")
def files() -> dict[str, dict[str, Any]]:
    """What the exporters of both versions made of y = x.w + b, z = relu(y)."""
    folder = networks.kept_network(networks.linear(), HOME / "networks")
    return {"new": exported(NEW, folder), "old": exported(OLD, folder)}


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A predictor in a process of its own, of either version."""
    opened = []

    def open_one(tested: Tested = NEW) -> Any:
        built = environment_of(tested.framework, tested.version)
        for name, value in variables_of(tested.framework, built).items():
            monkeypatch.setenv(name, value)
        host = FrameworkHost(python=built.python, portable=str(portable()), variables=dict(built.variables))
        found = predictors().get(tested.framework)
        opened.append(open_foreign(host, f"{found.__module__}:{found.__qualname__}"))
        return opened[-1]

    yield open_one
    for predictor in opened:
        predictor.close()


def model(path: str | Path, **changes: Any) -> dict[str, Any]:
    layers: dict[str, Any] = {"graph_path": str(path), "weights_path": None, "inputs": [], "outputs": []}
    return {**layers, "threads": 1, "options": {}, **changes}


def refusal(call: Any) -> PredictorFault:
    with pytest.raises(PredictorFault) as caught:
        call()
    return caught.value


def assert_answers(predictor: Any) -> None:
    sums, positive = predictor.predict([SAMPLE])
    np.testing.assert_allclose(sums, SUMS, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(positive, np.maximum(SUMS, 0), rtol=1e-5, atol=1e-5)


def test_a_keras_file_answers_as_its_saved_model(opening, files):
    predictor = opening()
    path = Path(files["new"]["graph_path"]).parent / files["new"]["keras"]
    facts = predictor.load(model(path))
    assert [layer["name"] for layer in facts["outputs"]] == ["y", "z"]
    assert (facts["precision"], facts["device"]) == ("float32", "cpu")
    assert_answers(predictor)


def test_an_archive_answers_as_the_folder_in_it(opening, files, tmp_path):
    folder = Path(files["new"]["graph_path"])
    path = shutil.make_archive(str(tmp_path / "model"), "gztar", folder.parent, folder.name)
    predictor = opening()
    predictor.load(model(path))
    assert_answers(predictor)


def test_a_frozen_graph_runs_in_both_versions_with_any_number_of_threads(opening, files):
    for tested in (NEW, OLD):
        predictor = opening(tested)
        for threads in (2, 1):
            facts = predictor.load(model(files["old"]["graph_path"], threads=threads))
            assert (facts["threads"], facts["provider"]) == (threads, "session")
            assert_answers(predictor)


def test_any_tensor_of_a_frozen_graph_can_be_an_output(opening, files):
    predictor = opening(OLD)
    asked = [{"layer_name": "z:0"}, {"layer_name": "network/MatMul:0"}]
    facts = predictor.load(model(files["old"]["graph_path"], outputs=asked))
    assert [layer["name"] for layer in facts["outputs"]] == ["z", "network/MatMul:0"]
    positive, product = predictor.predict([SAMPLE])
    np.testing.assert_allclose(product, SUMS - networks.BIAS, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(positive, np.maximum(SUMS, 0), rtol=1e-5, atol=1e-5)


def test_the_runtime_of_version_2_keeps_its_number_of_threads(opening, files):
    predictor = opening()
    predictor.load(model(files["new"]["graph_path"], threads=2))
    fault = refusal(lambda: predictor.load(model(files["new"]["graph_path"], threads=1)))
    assert (fault.code, fault.fields["got"]) == ("predictor_failed", 2)


def test_an_unknown_signature_lists_those_that_exist(opening, files):
    fault = refusal(lambda: opening().load(model(files["new"]["graph_path"], options={"signature": "absent"})))
    assert fault.fields["known"] == ["serving_default"]


def test_half_a_frozen_graph_and_half_a_saved_model_are_refused(opening, files, tmp_path):
    content = Path(files["old"]["graph_path"]).read_bytes()
    graph = tmp_path / "half.pb"
    graph.write_bytes(content[: len(content) // 2])
    folder = tmp_path / "half"
    shutil.copytree(files["new"]["graph_path"], folder)
    content = (folder / "saved_model.pb").read_bytes()
    (folder / "saved_model.pb").write_bytes(content[: len(content) // 2])
    predictor = opening()
    for path in (graph, folder):
        assert refusal(lambda path=path: predictor.load(model(path))).code == "model_format"


@pytest.mark.parametrize(("tested", "made"), [(NEW, "new"), (OLD, "old")], ids=lambda part: getattr(part, "id", part))
def test_a_profile_names_the_operators_and_layers_can_be_seen(opening, files, tested, made, tmp_path):
    predictor = opening(tested)
    predictor.load(model(files[made]["graph_path"]))
    predictor.start_profile(str(tmp_path))
    predictor.predict([SAMPLE])
    (layers,) = predictor.stop_profile()
    operators = [layer["operator"] for layer in layers]
    assert "Relu" in operators
    assert any(operator.endswith("MatMul") for operator in operators)
    shown = [name for name in predictor.layer_names() if name.endswith("Relu")]
    (positive,) = predictor.reveal([SAMPLE], shown)
    np.testing.assert_allclose(positive, np.maximum(SUMS, 0), rtol=1e-5, atol=1e-5)


def test_an_unoptimised_graph_runs_its_nodes_one_by_one(opening, files, tmp_path):
    predictor = opening()
    facts = predictor.load(model(files["new"]["graph_path"], options={"optimization": "none"}))
    assert facts["optimization"] == "none"
    predictor.start_profile(str(tmp_path))
    predictor.predict([SAMPLE])
    (layers,) = predictor.stop_profile()
    assert {"MatMul", "BiasAdd", "Relu"} <= {layer["operator"] for layer in layers}


@pytest.mark.parametrize("tested", [NEW, OLD], ids=lambda tested: tested.id)
def test_types_that_numpy_does_not_have_cross_as_wider_ones(opening, tested, tmp_path):
    path = tmp_path / ("graph.pb" if tested is OLD else "saved")
    built = environment_of(tested.framework, tested.version)
    done = subprocess.run(
        [built.python, "-c", NARROW, str(path)],
        env=variables_of(tested.framework, built),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    predictor = opening(tested)
    facts = predictor.load(model(path))
    assert facts["inputs"] == [{"name": "x", "shape": [None, 2], "element_type": "float32"}]
    assert {fact["name"]: fact["element_type"] for fact in facts["outputs"]} == {"double": "float32", "wide": "float32"}
    for fact, found in zip(facts["outputs"], predictor.predict([NARROW_INPUT]), strict=True):
        assert (found.dtype, found.tolist()) == (np.float32, NARROW_OUTPUTS[fact["name"]])
    predictor.start_profile(str(tmp_path))
    assert [array.dtype for array in predictor.predict([NARROW_INPUT])] == [np.float32, np.float32]
    assert len(predictor.stop_profile()) == 1
    shown = predictor.reveal([NARROW_INPUT], predictor.layer_names())
    assert all(array.dtype == np.float32 for array in shown)
    assert any(array.tolist() == NARROW_OUTPUTS["double"] for array in shown)
    assert refusal(lambda: predictor.predict([NARROW_INPUT.astype(np.float16)])).code == "shape_mismatch"


@pytest.mark.parametrize("name", ["new", "old"])
def test_a_surplus_input_is_refused_after_a_call_that_fitted(opening, files, name):
    predictor = opening()
    predictor.load(model(files[name]["graph_path"]))
    assert_answers(predictor)
    fault = refusal(lambda: predictor.predict([SAMPLE, SAMPLE]))
    assert (fault.code, fault.fields["got"]) == ("shape_mismatch", 2)
