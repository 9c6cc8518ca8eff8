"""What the tensorflow predictor refuses before any framework is there."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.predictors.tensorflow import Predictor
from mlmodelscope.predictors.tensorflowgraph import OWN_POOLS, SessionModel, choose_signature


def refusal(call: Any) -> PredictorFault:
    with pytest.raises(PredictorFault) as caught:
        call()
    return caught.value


def model(**changes: Any) -> dict[str, Any]:
    return {"graph_path": "absent.pb", "inputs": [], "outputs": [], "threads": 1, "options": {}, **changes}


def test_an_absent_framework_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    assert refusal(lambda: Predictor().load(model())).code == "environment_missing"


@pytest.mark.parametrize("options", [{"device": "tpu"}, {"optimization": "some"}, {"delegate": "none"}])
def test_options_are_checked_before_the_framework_is_imported(monkeypatch, options):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    fault = refusal(lambda: Predictor().load(model(options=options)))
    assert (fault.code, fault.fields["option"]) == ("predictor_failed", next(iter(options)))


def test_without_a_model_there_is_nothing_to_do(tmp_path):
    predictor = Predictor()
    sample = [np.zeros((1, 4), np.float32)]
    for call in (
        lambda: predictor.predict(sample),
        lambda: predictor.start_profile(str(tmp_path)),
        predictor.layer_names,
        lambda: predictor.reveal(sample, []),
    ):
        assert "no model is loaded" in refusal(call).message
    assert predictor.stop_profile() == []
    predictor.unload()


def test_float32_is_not_shortened_and_every_session_has_its_threads():
    assert Predictor.environment[OWN_POOLS] == "1"
    assert Predictor.environment["ONEDNN_DEFAULT_FPMATH_MODE"] == "STRICT"
    assert Predictor.environment["NVIDIA_TF32_OVERRIDE"] == "0"


def test_a_shared_pool_cannot_change_its_size(monkeypatch):
    monkeypatch.setattr(SessionModel, "_pool_threads", None)
    monkeypatch.delenv(OWN_POOLS, raising=False)
    SessionModel._check_pool(2)
    SessionModel._check_pool(2)
    fault = refusal(lambda: SessionModel._check_pool(1))
    assert (fault.fields["expected"], fault.fields["got"]) == (1, 2)
    assert OWN_POOLS in str(fault.hint)
    monkeypatch.setenv(OWN_POOLS, "1")
    SessionModel._check_pool(1)


def test_a_signature_is_the_one_asked_for_the_usual_or_the_only_one():
    assert choose_signature("score", ["score", "serving_default"], "m") == "score"
    assert choose_signature(None, ["score", "serving_default"], "m") == "serving_default"
    assert choose_signature(None, ["__saved_model_init_op", "score"], "m") == "score"


@pytest.mark.parametrize(("asked", "known"), [("absent", ["a", "b"]), (None, ["a", "b"]), (None, [])])
def test_an_unknown_signature_lists_those_that_exist(asked, known):
    fault = refusal(lambda: choose_signature(asked, known, "m"))
    assert (fault.code, fault.fields["known"]) == ("predictor_failed", known)
    assert all(name in str(fault.hint) for name in known)
