"""What only trees have, for LightGBM: outputs by name, missing features, and the same trees in ONNX."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlmodelscope.predictors.port import PredictorFault
from opening import opened
from stacks import EXPORTERS, TESTED, exported

pytestmark = pytest.mark.needs("registry", "pythons")


@pytest.fixture(scope="module")
def folder():
    tested = next(one for one in TESTED if one.framework == "lightgbm")
    return Path(exported(tested, None)["graph_path"]).parent


@pytest.fixture(scope="module")
def predictor():
    with opened("lightgbm") as found:
        yield found


def model(folder, name="model.txt", **changes):
    return {"graph_path": str(folder / name), "weights_path": None, "threads": 1, "options": {}, **changes}


def test_leaves_are_an_output_of_their_own(predictor, folder):
    facts = predictor.load(model(folder, options={"output": "leaf"}))
    assert facts["outputs"] == [{"name": "leaf", "shape": [None, 24], "element_type": "int32"}]
    rows = np.load(folder / "answers.npz")["inputs"]
    assert predictor.predict([rows])[0].shape == (len(rows), 24)


def test_a_classifier_has_probabilities_and_no_prediction(predictor, folder):
    with pytest.raises(PredictorFault) as caught:
        predictor.load(model(folder, options={"output": "prediction"}))
    assert caught.value.fields["expected"] == ["probability", "margin", "leaf"]


def test_missing_features_go_where_the_tree_sends_them(predictor, folder, monkeypatch):
    monkeypatch.syspath_prepend(str(EXPORTERS))
    import trees

    rows = np.load(folder / "answers.npz")["inputs"][:8].copy()
    rows[0, 3] = rows[1] = rows[2, ::2] = np.nan
    predictor.load(model(folder, outputs=[{"layer_name": "margin"}]))
    walked = trees.margins(json.loads((folder / "trees.json").read_text()), rows)
    np.testing.assert_allclose(predictor.predict([rows])[0], walked, atol=1e-6)


def test_onnxruntime_gives_the_same_answers_for_the_same_trees(folder, tmp_path):
    pytest.importorskip("onnxruntime")
    command = [sys.executable, str(EXPORTERS / "trees_onnx.py"), str(folder), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert max(json.loads(done.stdout).values()) < 1e-6


def test_a_pickle_is_refused(predictor, folder, tmp_path):
    path = tmp_path / "model.txt"
    path.write_bytes(b"\x80\x04\x95\x00\x00.")
    with pytest.raises(PredictorFault) as caught:
        predictor.load(model(tmp_path))
    assert caught.value.code == "model_format"
    assert "pickle" in str(caught.value.hint)
