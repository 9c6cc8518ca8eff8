"""Requests, plans, answers and records: what they refuse, and the way through JSON."""

import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter, ValidationError

from mlmodelscope.core.answer import Answer, Classes, ClassScore, Custom, Prediction, RawTensors, TensorFacts
from mlmodelscope.core.asset import FetchedAsset
from mlmodelscope.core.estimate import Estimate, Interval
from mlmodelscope.core.record import RECORD_FORMAT, STAGES, Accuracy, AssetFacts, Failure, Record
from mlmodelscope.core.request import Batched, EvaluationRequest, Limits, Scenario, SingleStream
from mlmodelscope.core.span import TraceLevel
from mlmodelscope.testing.records import (
    example_artifact,
    example_performance,
    example_record,
    example_system,
    failed_record,
)

finite = st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(max_size=20)
estimates = st.builds(
    Estimate,
    value=finite,
    interval=st.none()
    | st.builds(
        Interval,
        low=finite,
        high=finite,
        confidence=st.just(0.95),
        basis=st.sampled_from(["launches", "single_launch", "samples"]),
    ),
    n=st.integers(1, 10**9),
    launches=st.integers(1, 100),
)
loads = {
    "timed": st.sampled_from(["pipeline", "inference"]),
    "min_duration_ns": st.integers(0, 10**12),
    "min_queries": st.integers(1, 10**6),
    "warmup_queries": st.integers(0, 100),
    "launches": st.integers(1, 100),
    "performance_set": st.integers(1, 10**6),
}
scenarios = st.builds(SingleStream, **loads) | st.builds(Batched, batch_size=st.integers(1, 4096), **loads)
requests = st.builds(
    EvaluationRequest,
    models=st.lists(texts, min_size=1, max_size=3).map(tuple),
    framework=st.none() | texts,
    system=st.none() | texts,
    dataset=st.none() | texts,
    samples=st.none() | st.integers(1, 10**6),
    scenario=scenarios,
    measure=st.sampled_from(["performance", "accuracy", "both"]),
    threads=st.none() | st.integers(1, 256),
    options=st.dictionaries(texts, texts | st.integers() | st.lists(st.integers(), max_size=3), max_size=3),
    trace_level=st.sampled_from(TraceLevel),
    seed=st.integers(),
    limits=st.builds(Limits, sample_seconds=st.none() | st.floats(1e-3, 1e6), memory_bytes=st.none() | st.integers(1)),
)
answers = st.one_of(
    st.builds(
        Classes,
        classes=st.lists(
            st.builds(ClassScore, index=st.integers(), label=st.none() | texts, score=finite), max_size=3
        ).map(tuple),
    ),
    st.builds(
        RawTensors,
        tensors=st.lists(
            st.builds(
                TensorFacts,
                name=texts,
                shape=st.lists(st.integers(0, 9), max_size=4).map(tuple),
                element_type=texts,
                sha256=texts,
                minimum=st.none() | finite,
                maximum=st.none() | finite,
                mean=st.none() | finite,
            ),
            max_size=2,
        ).map(tuple),
    ),
    st.builds(
        Custom, value=st.none() | texts | finite | st.lists(st.dictionaries(texts, finite, max_size=2), max_size=2)
    ),
)


@given(requests)
def test_a_request_survives_json(request):
    assert EvaluationRequest.model_validate_json(request.model_dump_json()) == request


@given(st.builds(Prediction, sample=texts, label=st.none() | st.integers(), answer=answers))
def test_a_prediction_survives_json(prediction):
    again = Prediction.model_validate_json(prediction.model_dump_json())
    assert again == prediction
    assert type(again.answer) is type(prediction.answer)


@given(
    requests,
    estimates,
    st.none() | estimates,
    st.dictionaries(texts, estimates, max_size=3),
    st.none() | st.builds(Failure, stage=st.sampled_from(STAGES), code=texts, message=texts, hint=st.none() | texts),
    st.lists(texts, max_size=3).map(tuple),
)
def test_a_record_survives_json(request, estimate, maybe, named, failure, warnings):
    performance = example_performance(
        latency_median_ns=estimate, memory_bytes=maybe, percentiles_ns=named, parts_ns=named, energy_joules=maybe
    )
    record = example_record(
        request=request,
        scenario=request.scenario,
        limits=request.limits,
        seed=request.seed,
        performance=performance,
        accuracy=Accuracy(samples=1, labelled=1, top1=maybe, top5=None, metrics=named),
        failure=failure,
        warnings=warnings,
    )
    assert Record.model_validate_json(record.model_dump_json()) == record


@pytest.mark.parametrize(
    "record", [example_record(), failed_record(), failed_record(software=None, system=None, dataset=None)]
)
def test_the_examples_survive_json(record):
    again = Record.model_validate_json(record.model_dump_json())
    assert again == record
    assert again.model_dump_json() == record.model_dump_json()
    assert again.format == RECORD_FORMAT


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_an_estimate_holds_finite_numbers_only(number):
    with pytest.raises(ValueError, match="finite"):
        Estimate(number, None, 1, 1)
    with pytest.raises(ValueError, match="finite"):
        Interval(0.0, number, 0.95, "launches")
    with pytest.raises(ValidationError, match="finite"):
        example_performance(latency_min_ns=number)


def test_a_record_of_another_shape_is_refused():
    values = example_record().model_dump(mode="json")
    for changed in (values | {"colour": "red"}, values | {"status": "lost"}, {**values, "model": None}):
        with pytest.raises(ValidationError):
            Record.model_validate(changed)


def test_artifacts_by_name():
    artifact = example_artifact(name="latencies.npz")
    record = example_record(artifacts=(artifact,))
    assert record.artifact("latencies.npz") == artifact
    assert record.artifact("trace.json") is None


def test_the_facts_of_an_asset_hold_no_path():
    fetched = FetchedAsset(
        path="/home/somebody/model.onnx",
        sha256="a" * 64,
        size_bytes=5,
        location="https://models.example/model.json",
        original_sha256="a" * 64,
        converted_sha256="b" * 64,
        converter="tfjs-to-onnx",
        converter_digest="c" * 64,
    )
    facts = AssetFacts.of("graph", fetched)
    assert "somebody" not in facts.model_dump_json()
    assert (facts.role, facts.sha256, facts.converted_sha256, facts.converter_digest) == (
        "graph",
        "a" * 64,
        "b" * 64,
        "c" * 64,
    )


def test_a_scenario_is_chosen_by_its_type():
    adapter = TypeAdapter(Scenario)
    assert adapter.validate_python({"type": "single_stream"}).batch_size == 1
    assert adapter.validate_python({"type": "batched", "batch_size": 4}) == Batched(batch_size=4)


@pytest.mark.parametrize(
    "values",
    [
        {"type": "batched"},
        {"type": "batched", "batch_size": 0},
        {"type": "single_stream", "batch_size": 2},
        {"type": "single_stream", "launches": 0},
        {"type": "single_stream", "min_queries": 0},
        {"type": "single_stream", "min_duration_ns": -1},
        {"type": "single_stream", "timed": "nothing"},
        {"type": "server"},
        {},
    ],
)
def test_a_scenario_that_cannot_be(values):
    with pytest.raises(ValidationError):
        TypeAdapter(Scenario).validate_python(values)


@pytest.mark.parametrize(
    "values",
    [
        {"models": ()},
        {"models": ("a",), "dataset": "d", "inputs": ("i",)},
        {"models": ("a",), "threads": 0},
        {"models": ("a",), "samples": 0},
        {"models": ("a",), "trace_level": 8},
        {"models": ("a",), "limits": {"run_seconds": 0}},
        {"models": ("a",), "model": "b"},
    ],
)
def test_a_request_that_cannot_be(values):
    with pytest.raises(ValidationError):
        EvaluationRequest(**values)


def test_an_answer_is_chosen_by_its_type():
    adapter = TypeAdapter(Answer)
    assert adapter.validate_python({"type": "custom", "value": [1]}) == Custom(value=[1])
    with pytest.raises(ValidationError):
        adapter.validate_python({"type": "boxes", "value": [1]})


def test_two_examples_are_two_evaluations_of_one_setup():
    first, second = example_record(), example_record()
    assert first.id != second.id
    assert first.model == second.model
    assert first.system == example_system()
