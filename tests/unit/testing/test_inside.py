"""The checks inside a framework's process find what they are made to find."""

import sys
from types import ModuleType

import numpy as np
import pytest

from mlmodelscope.testing.inside import unloading_frees_the_memory

SIZE = 16 << 20


class Frees:
    """A predictor of the least kind: its model is an array."""

    def load(self, model):
        self.weights = np.ones(SIZE, np.uint8)

    def predict(self, inputs):
        return list(inputs)

    def unload(self):
        self.weights = None


class Keeps(Frees):
    def unload(self):
        """Left to whoever drops the predictor."""


@pytest.fixture
def case(tmp_path, monkeypatch):
    module = ModuleType("made_for_inside")
    module.Frees, module.Keeps = Frees, Keeps
    monkeypatch.setitem(sys.modules, module.__name__, module)
    np.savez(tmp_path / "samples.npz", **{"0/0": np.ones((1, 2), np.float32)})
    return {
        "entry_point": "made_for_inside:Frees",
        "large": {"threads": 1},
        "large_bytes": SIZE,
        "samples": tmp_path / "samples.npz",
    }


def test_an_unload_that_leaves_the_work_to_the_end_of_the_object_is_found(case):
    assert "MB more" in unloading_frees_the_memory(case)
    with pytest.raises(AssertionError, match="rounds kept"):
        unloading_frees_the_memory({**case, "entry_point": "made_for_inside:Keeps"})
