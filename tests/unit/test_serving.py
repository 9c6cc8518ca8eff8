"""Which predictors are served, from where, and when their processes end."""

from contextlib import contextmanager
from pathlib import Path

import pytest

from mlmodelscope import serving
from mlmodelscope.core.errors import UnknownNameError, UnsatisfiableError, UsageError
from mlmodelscope.core.predictor import Simulates
from mlmodelscope.core.release import VERSION
from mlmodelscope.hosting import Preparation
from mlmodelscope.worker.job import FrameworkHost

HERE = Preparation(Path("/absent"))


class Built:
    """An environment that was found."""


class Host:
    def __init__(self):
        self.opened_now = 0

    @contextmanager
    def opened(self, run_folder, files):
        self.opened_now += 1
        try:
            yield FrameworkHost(python="/absent/python", portable="/absent", variables={"OMP_NUM_THREADS": "7"})
        finally:
            self.opened_now -= 1

    def close(self):
        pass


class Foreign:
    """The stand-in of a predictor in another process."""

    def __init__(self, host, fails=False):
        self.host, self.fails = host, fails
        self.is_closed = self.is_killed = False

    def load(self, model):
        if self.fails:
            raise RuntimeError("no model")
        return {"version": "1"}

    def predict(self, inputs):
        return inputs

    def close(self):
        self.is_closed = True

    def kill(self):
        self.is_killed = True


class Simulating(Foreign):
    def now_ns(self):
        return 5


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """A supply from a venv that is not there, its host, and what `open_foreign` was asked for."""
    host, opened = Host(), []

    def supply(kind=Foreign, text="onnxruntime@1.17.x", **facts):
        def open_foreign(place, entry_point):
            opened.append((place, entry_point, kind(place, **facts)))
            return opened[-1][2]

        monkeypatch.setattr(serving, "venv_host", lambda wanted, name, preparation: (Built(), host))
        monkeypatch.setattr(serving, "version_in", lambda built, distribution: "1.17.3")
        monkeypatch.setattr(serving, "open_foreign", open_foreign)
        return serving.prepare_supply(text, None, Preparation(tmp_path)), host, opened

    return supply


def test_what_is_here_is_served_from_here():
    supply = serving.prepare_supply("null", None, HERE)
    assert (supply.framework, supply.version, supply.environment) == ("null", VERSION, "local")
    assert supply.make().load({"options": {"outputs": [[1, 2]]}})["outputs"][0]["shape"] == [1, 2]


@pytest.mark.parametrize(
    "text, environment, error",
    [
        ("nonsense", None, UnknownNameError),
        ("remote", None, UsageError),
        ("null", "container", UsageError),
        ("null", "container=image", UsageError),
        ("null", "venv", UnsatisfiableError),
        ("null@>=99", "local", UnsatisfiableError),
        ("onnxruntime@0.1", None, UnsatisfiableError),
    ],
)
def test_what_cannot_be_served_says_so(text, environment, error):
    with pytest.raises(error):
        serving.prepare_supply(text, environment, HERE)


def test_a_version_that_is_not_here_has_a_process_for_each_model(elsewhere):
    supply, host, opened = elsewhere()
    assert (supply.version, supply.environment) == ("1.17.3", "venv")
    one, two = supply.make(), supply.make()
    assert opened == []
    assert one.load({"threads": 3}) == {"version": "1"}
    two.load({"threads": 4})
    (place, entry_point, process), _ = opened
    assert entry_point == "mlmodelscope.predictors.onnxruntime:Predictor"
    assert place.variables["MKL_NUM_THREADS"] == "3"
    assert place.variables["OMP_NUM_THREADS"] == "7", "what the environment itself needs comes last"
    assert place.variables["ORT_DISABLE_TELEMETRY"] == "1"
    assert one.predict([1]) == [1]
    one.unload()
    assert (process.is_closed, host.opened_now) == (True, 1)
    one.unload()
    supply.end()
    assert [item[2].is_killed for item in opened] == [False, True]


def test_loading_again_replaces_the_process(elsewhere):
    supply, host, opened = elsewhere()
    predictor = supply.make()
    for _ in range(2):
        predictor.load({"threads": 1})
    assert [item[2].is_closed for item in opened] == [True, False]
    assert host.opened_now == 1


def test_a_model_that_cannot_be_loaded_leaves_no_process(elsewhere):
    supply, host, opened = elsewhere(fails=True)
    predictor = supply.make()
    with pytest.raises(RuntimeError):
        predictor.load({"threads": 1})
    assert (opened[0][2].is_closed, host.opened_now) == (True, 0)
    predictor.unload()


@pytest.mark.parametrize("kind", [Foreign, Simulating])
def test_a_clock_of_its_own_is_there_while_a_model_is(elsewhere, kind):
    predictor = elsewhere(kind)[0].make()
    predictor.load({"threads": 1})
    assert isinstance(predictor, Simulates) is (kind is Simulating)
    predictor.unload()
    assert not isinstance(predictor, Simulates)
