"""What only trees have: outputs by name, missing features, pickles refused, and the same trees in ONNX."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlmodelscope.predictors.port import PredictorFault
from opening import opened
from stacks import EXPORTERS, TESTED, environment_of, exported, variables_of

pytestmark = pytest.mark.needs("registry", "pythons")

LEAVES = {"lightgbm": "int32", "xgboost": "float32"}


@pytest.fixture(scope="module", params=[one for one in TESTED if not one.has_network], ids=lambda one: one.id)
def tested(request):
    return request.param


@pytest.fixture(scope="module")
def graph(tested):
    return Path(exported(tested, None)["graph_path"])


@pytest.fixture(scope="module")
def folder(graph):
    return graph.parent


@pytest.fixture(scope="module")
def predictor(tested):
    with opened(tested.framework) as found:
        yield found


def model(folder, name, **changes):
    return {"graph_path": str(folder / name), "weights_path": None, "threads": 1, "options": {}, **changes}


def test_leaves_are_an_output_of_their_own(predictor, tested, graph, folder):
    facts = predictor.load(model(folder, graph.name, options={"output": "leaf"}))
    assert facts["outputs"] == [{"name": "leaf", "shape": [None, 24], "element_type": LEAVES[tested.framework]}]
    rows = np.load(folder / "answers.npz")["inputs"]
    assert predictor.predict([rows])[0].shape == (len(rows), 24)


def test_a_classifier_has_probabilities_and_no_prediction(predictor, graph, folder):
    with pytest.raises(PredictorFault) as caught:
        predictor.load(model(folder, graph.name, options={"output": "prediction"}))
    assert caught.value.fields["expected"] == ["probability", "margin", "leaf"]


def test_missing_features_go_where_the_tree_sends_them(predictor, graph, folder, monkeypatch):
    monkeypatch.syspath_prepend(str(EXPORTERS))
    import trees

    rows = np.load(folder / "answers.npz")["inputs"][:8].copy()
    rows[0, 3] = rows[1] = rows[2, ::2] = np.nan
    predictor.load(model(folder, graph.name, outputs=[{"layer_name": "margin"}]))
    walked = trees.margins(json.loads((folder / "trees.json").read_text()), rows)
    np.testing.assert_allclose(predictor.predict([rows])[0], walked, atol=1e-6)


def test_onnxruntime_gives_the_same_answers_for_the_same_trees(folder, tmp_path):
    command = [sys.executable, str(EXPORTERS / "trees_onnx.py"), str(folder), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert max(json.loads(done.stdout).values()) < 1e-6


def test_a_pickle_is_refused(predictor, graph, tmp_path):
    path = tmp_path / graph.name
    path.write_bytes(b"\x80\x04\x95\x00\x00.")
    with pytest.raises(PredictorFault) as caught:
        predictor.load(model(tmp_path, graph.name))
    assert caught.value.code == "model_format"
    assert "pickle" in str(caught.value.hint)


def test_both_formats_give_the_same_answers(predictor, tested, folder):
    if tested.framework != "xgboost":
        pytest.skip("LightGBM has one format")
    rows = np.load(folder / "answers.npz")["inputs"]
    answers = []
    for name in ("model.ubj", "model.json"):
        predictor.load(model(folder, name))
        answers.append(predictor.predict([rows])[0])
    np.testing.assert_array_equal(*answers)


# written by XGBoost itself, beside which it also says what it predicts
_TRAINED = """
import sys
import numpy as np
import xgboost
rows = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
labels = (rows[:, 0] > 0).astype(int) + (rows[:, 1] > 0)
targets = np.stack([rows[:, 0], rows[:, 1] * 2], 1)
several = {"objective": "multi:softprob", "num_class": 3, "num_parallel_tree": 2}
kinds = {
    "parallel": (several, labels),
    "dart": ({**several, "booster": "dart"}, labels),
    "vectors": ({"objective": "reg:squarederror", "multi_strategy": "multi_output_tree"}, targets),
    "linear": ({"objective": "multi:softprob", "num_class": 3, "booster": "gblinear"}, labels),
}
for name, (settings, wanted) in kinds.items():
    booster = xgboost.train({"nthread": 1, **settings}, xgboost.DMatrix(rows, wanted), 3)
    booster.save_model(f"{sys.argv[1]}/{name}.ubj")
    leaves = booster.predict(xgboost.DMatrix(rows), pred_leaf=True) if name != "linear" else rows
    margin = booster.predict(xgboost.DMatrix(rows), output_margin=True)
    np.savez(f"{sys.argv[1]}/{name}.npz", rows=rows, leaves=leaves, margin=margin)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    (version,) = [one.version for one in TESTED if one.framework == "xgboost"]
    built = environment_of("xgboost", version)
    command = [built.python, "-I", "-c", _TRAINED, str(folder)]
    done = subprocess.run(command, env=variables_of("xgboost", built), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder


def arrays_of(path):
    with np.load(path) as arrays:
        return dict(arrays)


@pytest.mark.parametrize(("kind", "trees"), [("parallel", 18), ("dart", 18), ("vectors", 3)])
def test_xgboost_knows_how_many_trees_have_leaves(trained, kind, trees):
    said = arrays_of(trained / f"{kind}.npz")
    with opened("xgboost") as predictor:
        facts = predictor.load(model(trained, f"{kind}.ubj", options={"output": "leaf"}))
        assert facts["outputs"][0]["shape"] == [None, trees]
        np.testing.assert_array_equal(predictor.predict([said["rows"]])[0], said["leaves"])
        predictor.load(model(trained, f"{kind}.ubj", options={"output": "margin"}))
        np.testing.assert_allclose(predictor.predict([said["rows"]])[0], said["margin"], rtol=1e-6)


def test_a_linear_model_has_no_leaves(trained):
    said = arrays_of(trained / "linear.npz")
    with opened("xgboost") as predictor:
        with pytest.raises(PredictorFault) as caught:
            predictor.load(model(trained, "linear.ubj", options={"output": "leaf"}))
        assert caught.value.fields["expected"] == ["probability", "margin"]
        predictor.load(model(trained, "linear.ubj", options={"output": "margin"}))
        np.testing.assert_allclose(predictor.predict([said["rows"]])[0], said["margin"], rtol=1e-6)
