"""A profile that fails, wherever it does, costs the layers and not the rest of the trace."""

from itertools import count
from types import SimpleNamespace

import pytest

from mlmodelscope.core.errors import FunctionError, PredictorError
from mlmodelscope.core.span import TraceLevel
from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.trace.file import decode_trace
from mlmodelscope.worker.tracing import TRACE_FILE, Tracer

ENTERED = [("load", 2), ("trace", 3)]


class Predictor:
    """Fails with `error` in the call of that name."""

    def __init__(self, error, where):
        self.error, self.where = error, where

    def load(self, model): ...

    def unload(self): ...

    def predict(self, inputs):
        return inputs

    def start_profile(self, folder):
        self.do("start")

    def stop_profile(self):
        self.do("stop")
        return [[] for _ in range(3)]

    def do(self, what):
        if what == self.where:
            raise self.error


def traced(tmp_path, predictor):
    job = SimpleNamespace(
        trace_queries=1,
        trace_level=TraceLevel.FRAMEWORK,
        trace_id="0" * 32,
        run_folder=str(tmp_path),
        spawned_ns=1,
        scenario=SimpleNamespace(batch_size=1),
    )
    clock = count(10).__next__
    dataset = SimpleNamespace(get=lambda position: position, ids=lambda: ["a"])
    tracer = Tracer(job, predictor, lambda samples: ([clock() for _ in range(5)], []), dataset, clock, "monotonic")
    tracer.record(iter([[0]] * 9), [0])
    return tracer.write(ENTERED, "2026-01-01T00:00:00+00:00", 5)


def test_a_profile_that_works_reaches_the_framework(tmp_path):
    assert traced(tmp_path, Predictor(None, ""))["level"] == TraceLevel.FRAMEWORK


@pytest.mark.parametrize("where", ["start", "stop"])
@pytest.mark.parametrize(
    "error",
    [PredictorFault("predictor_failed", "no room"), PredictorError("no room"), PermissionError(13, "no room")],
    ids=lambda error: type(error).__name__,
)
def test_a_profile_that_fails_costs_the_layers_only(tmp_path, error, where):
    said = traced(tmp_path, Predictor(error, where))
    assert (said["level"], said["queries"]) == (TraceLevel.MODEL, 1)
    assert "no room" in said["reason"]
    trace = decode_trace((tmp_path / TRACE_FILE).read_bytes())
    assert "predict" in {span.name for span in trace.spans}


def test_what_is_not_the_profiles_fault_is_told(tmp_path):
    with pytest.raises(FunctionError):
        traced(tmp_path, Predictor(FunctionError("broken"), "start"))
