from mlmodelscope.analyse.layers import LayerShare, OperatorShare, TraceSummary
from mlmodelscope.core.record import TraceFacts
from mlmodelscope.core.span import TraceLevel
from mlmodelscope.show.layers import format_layers, format_trace
from mlmodelscope.testing.records import example_record

LAYERS = (
    LayerShare("b", 1, 3_000_000, 0.75, "Conv", ("conv", "relu"), {"outputs": [{"shape": [1, 64, 7, 7]}]}),
    LayerShare("a" * 60, 0, 1_000_000, 0.25, "", (), {}),
)
SUMMARY = TraceSummary(
    clock="monotonic",
    queries=10,
    parts_ns={"decode": 1_000_000, "predict": 4_000_000},
    predict_ns=4_000_000,
    profiled_predict_ns=4_200_000,
    layers=LAYERS,
    operators=(OperatorShare("Conv", 1, 3_000_000, 0.75),),
)
FACTS = TraceFacts(level=TraceLevel.FRAMEWORK, spans=99, is_truncated=False, artifact="trace.npz", queries=10)


def test_layers_show_the_models_own_nodes_and_long_names_are_cut():
    lines = format_layers(LAYERS, 5).splitlines()
    assert lines[0] == "2 layers"
    assert lines[2].split() == ["b", "Conv", "conv", "+", "relu", "1x64x7x7", "3.00", "ms", "75.0", "%"]
    assert "a" * 45 + "...  -         -" in lines[3]


def test_only_the_slowest_are_listed():
    lines = format_layers(LAYERS, 1).splitlines()
    assert lines[0] == "slowest 1 of 2 layers"
    assert len(lines) == 3


def test_the_whole_names_level_clock_and_the_cost_of_the_profile():
    record = example_record()
    text = format_trace(record, FACTS, SUMMARY, 5)
    assert text.startswith(
        f"trace of {record.id}: {record.model.name}, level framework, 99 spans, 10 queries, monotonic"
    )
    assert "decode   1.00 ms  20.0 %" in text
    assert "with the layer profile predict takes 4.20 ms (+5.0 %)" in text
    assert "by operator" in text
    assert "truncated" not in text


def test_a_truncated_trace_says_so():
    assert "truncated" in format_trace(example_record(), FACTS.model_copy(update={"is_truncated": True}), SUMMARY, 5)
