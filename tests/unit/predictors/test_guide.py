"""The predictor in docs/guides/write-a-predictor.md works as printed."""

import re
from pathlib import Path

import numpy as np
import pytest

from mlmodelscope.core.predictor import Predictor
from mlmodelscope.predictors.port import CODES, PredictorFault

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "write-a-predictor.md"


@pytest.fixture
def predictor():
    space = {}
    exec(re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[1], space)
    return space["Predictor"]()


def test_the_example_keeps_the_port(predictor, tmp_path):
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "m.npy", matrix)
    facts = predictor.load({"graph_path": str(tmp_path / "m.npy"), "threads": 1})
    assert isinstance(predictor, Predictor)
    assert facts["inputs"] == [{"name": "x", "shape": [None, 2], "element_type": "float32"}]
    given = np.ones((4, 2), np.float32)
    np.testing.assert_array_equal(predictor.predict([given])[0], given @ matrix)
    with pytest.raises(PredictorFault, match="takes shape"):
        predictor.predict([np.ones((4, 5), np.float32)])
    predictor.unload()
    with pytest.raises(PredictorFault, match="no model is loaded"):
        predictor.predict([given])


def test_the_example_refuses_what_is_no_matrix(predictor):
    with pytest.raises(PredictorFault) as caught:
        predictor.load({"graph_path": str(GUIDE), "threads": 1})
    assert caught.value.code == "model_format"


@pytest.mark.parametrize("code", CODES)
def test_the_guide_explains_every_code(code):
    assert f"| `{code}` |" in GUIDE.read_text()
