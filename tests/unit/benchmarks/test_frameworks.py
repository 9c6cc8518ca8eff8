"""The two sides of a framework's claim: every framework has its plain calls, and both must agree to be measured."""

import ast
import gc
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]


def loaded(path):
    spec = importlib.util.spec_from_file_location(f"under_test_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


bare = loaded(ROOT / "benchmarks" / "bare.py")
stacks = loaded(ROOT / "frameworks" / "stacks.py")


@pytest.fixture
def case(tmp_path, monkeypatch):
    """The null predictor against a stand-in whose answer the test chooses."""
    np.savez(tmp_path / "samples.npz", np.ones((1, 4), np.float32), np.ones((1, 4), np.float32))
    monkeypatch.setattr(bare, "_BLOCK_NS", 10**6)
    opened = []

    def opener(answer):
        def open_one(model, value):
            opened.append(model["facts"]["framework"])
            return lambda x: [answer]

        monkeypatch.setitem(bare.OPENERS, "stand-in", open_one)
        model = {"graph_path": "", "threads": 1, "options": {"outputs": [[1, 3]]}}
        samples = str(tmp_path / "samples.npz")
        described = {"bare": "stand-in", "entry_point": "mlmodelscope.predictors.null:Predictor", "samples": samples}
        return json.loads(json.dumps({**described, "model": model})), opened

    # every block collects garbage, which takes long with a whole test suite in memory
    gc.freeze()
    yield opener
    gc.unfreeze()


def test_every_tested_framework_has_its_plain_calls():
    assert {tested.framework for tested in stacks.TESTED} == set(bare.OPENERS) - {"litert"}


@pytest.mark.parametrize("name", ["bare.py", "litert.py"])
def test_what_runs_inside_an_environment_keeps_to_the_oldest_syntax(name):
    ast.parse((ROOT / "benchmarks" / name).read_text(), feature_version=(3, 6))


def test_both_sides_answer_with_a_cost(case):
    described, opened = case(np.zeros((1, 3), np.float32))
    sides = bare.Sides(described)
    assert sides.ours() > 0
    assert sides.theirs() > 0
    assert opened == ["null"] * len(sides._predicts)


@pytest.mark.parametrize("answer", [np.ones((1, 3), np.float32), np.zeros((1, 4), np.float32)])
def test_sides_that_differ_are_not_measured(case, answer):
    described, _ = case(answer)
    with pytest.raises(SystemExit, match="same answers"):
        bare.Sides(described)


def test_every_instance_of_a_side_has_its_turns(case):
    described, _ = case(np.zeros((1, 3), np.float32))
    sides = bare.Sides(described)
    used = []
    sides._calls = [lambda x, name=name: used.append(name) for name in "abcde"]
    sides._predicts = [lambda inputs, name=name: used.append(name) for name in "ABCDE"]
    sides._count = 2
    for _ in range(60):
        sides.ours()
        sides.theirs()
    assert set(used) == set("abcdeABCDE")
    # a block is of one instance
    assert all(one == other for one, other in zip(used[::2], used[1::2], strict=True))


@pytest.mark.parametrize(("times", "median"), [([3, 1, 2], 2.0), ([4, 1, 2, 3], 2.5), ([7], 7.0)])
def test_median(times, median):
    assert bare._median(times) == median
