"""The checks inside a framework's process find what they are made to find."""

import gc
import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import numpy as np
import pytest

from mlmodelscope.testing.inside import as_many_threads_as_asked, one_thread_means_one, unloading_frees_the_memory

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


class Computes(Frees):
    """On as many threads as it is told; Python's own lock is free while a digest is taken."""

    beside = 0

    def load(self, model):
        self.count = model["threads"] + self.beside
        self.work = b"x" * (64 << 20)

    def predict(self, inputs):
        with ThreadPoolExecutor(self.count) as pool:
            list(pool.map(lambda _: hashlib.sha256(self.work).digest(), range(self.count)))
        return list(inputs)


class ComputesOnMore(Computes):
    beside = 1


class ComputesOnLess(Computes):
    beside = -1


class FillsOnTwo(Computes):
    """Only its first call takes a second thread, as CNTK's does where it makes a network."""

    beside = 1

    def predict(self, inputs):
        for _ in range(10 if self.count == 2 else 1):
            super().predict(inputs)
        self.count = 1
        return list(inputs)


@pytest.fixture
def case(tmp_path, monkeypatch):
    # every round collects garbage, which takes long with a whole test suite in memory
    gc.freeze()
    module = ModuleType("made_for_inside")
    for made in (Frees, Keeps, Computes, ComputesOnMore, ComputesOnLess, FillsOnTwo):
        setattr(module, made.__name__, made)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    np.savez(tmp_path / "samples.npz", **{"0/0": np.ones((1, 2), np.float32)})
    yield {
        "entry_point": "made_for_inside:Frees",
        "large": {"threads": 1},
        "large_bytes": SIZE,
        "samples": tmp_path / "samples.npz",
    }
    gc.unfreeze()


def test_an_unload_that_leaves_the_work_to_the_end_of_the_object_is_found(case):
    assert "MB more" in unloading_frees_the_memory(case)
    with pytest.raises(AssertionError, match="rounds kept"):
        unloading_frees_the_memory({**case, "entry_point": "made_for_inside:Keeps"})


def test_threads_that_compute_are_counted_as_many_as_asked_for(case):
    case["entry_point"] = "made_for_inside:Computes"
    assert "1 asked for" in one_thread_means_one(case)
    assert "2 asked for" in as_many_threads_as_asked({**case, "threads": 2})


@pytest.mark.parametrize("made", ["ComputesOnMore", "ComputesOnLess"])
def test_threads_that_compute_unasked_or_not_at_all_are_found(case, made):
    with pytest.raises(AssertionError, match="2 asked for; computing at a time"):
        as_many_threads_as_asked({**case, "entry_point": f"made_for_inside:{made}", "threads": 2})


@pytest.mark.parametrize("made", ["ComputesOnMore", "FillsOnTwo"])
def test_a_second_thread_is_found_where_one_was_asked_for(case, made):
    with pytest.raises(AssertionError, match="1 asked for; computing at a time"):
        one_thread_means_one({**case, "entry_point": f"made_for_inside:{made}"})
