import sys

import numpy as np
import pytest

from mlmodelscope.predictors.null import Predictor
from mlmodelscope.predictors.port import PredictorFault


def loaded(**options):
    predictor = Predictor()
    facts = predictor.load({"threads": 1, "options": options})
    return predictor, facts


def test_shapes_are_an_option():
    predictor, facts = loaded(outputs=[[2, 3], [4]])
    assert [array.shape for array in predictor.predict([])] == [(2, 3), (4,)]
    assert [layer["shape"] for layer in facts["outputs"]] == [[2, 3], [4]]


def test_every_call_returns_the_same_unchangeable_arrays():
    predictor, _ = loaded()
    assert predictor.predict([np.zeros(3)]) is predictor.predict([])
    with pytest.raises(ValueError):
        predictor.predict([])[0][...] = 1


@pytest.mark.parametrize("outputs", ["x", [1, 1000], [[0]], [["a"]], 3])
def test_impossible_shapes_are_refused(outputs):
    with pytest.raises(PredictorFault, match="outputs"):
        loaded(outputs=outputs)


def test_works_where_numpy_is_absent(monkeypatch):
    monkeypatch.setitem(sys.modules, "numpy", None)
    predictor, _ = loaded(outputs=[[1, 3]])
    (zeros,) = predictor.predict([])
    assert (zeros.shape, zeros.format, zeros.readonly) == ((1, 3), "f", True)
    assert zeros.tolist() == [[0.0, 0.0, 0.0]]
