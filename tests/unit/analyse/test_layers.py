import pytest

from mlmodelscope.analyse.layers import layer_shares, operator_shares, summarise_trace
from mlmodelscope.core.span import Span, Trace, TraceLevel


class Spans(list):
    """Spans under construction: `add` answers with the place of the new one."""

    def add(self, name, parent, start, length, level=TraceLevel.APPLICATION, **attributes):
        self.append(
            Span(
                trace_id="t",
                span_id=len(self),
                parent_id=parent,
                name=name,
                level=level,
                clock="monotonic",
                start_ns=start,
                end_ns=start + length,
                attributes=attributes,
            )
        )
        return len(self) - 1


def query(spans, start, deepest, predict_ns, layers=()):
    place = spans.add("query", 0, start, predict_ns + 30, deepest_level=deepest)
    spans.add("decode", place, start, 20)
    predict = spans.add("predict", place, start + 20, predict_ns, TraceLevel.MODEL)
    spans.add("postprocess", place, start + 20 + predict_ns, 10)
    now = start + 20
    for name, length, operator in layers:
        spans.add(name, predict, now, length, TraceLevel.FRAMEWORK, operator=operator, nodes=[f"{name}.node"])
        now += length
    return predict


@pytest.fixture
def spans():
    made = Spans()
    made.add("launch", None, 0, 10**6)
    for number, predict_ns in enumerate((100, 300, 120)):
        query(made, 1000 * number, "model", predict_ns)
    for number, scale in enumerate((1, 2, 10)):
        layers = [("a", 10 * scale, "Conv"), ("b", 60 * scale, "Conv"), ("c", 30 * scale, "Relu")]
        query(made, 10_000 * (number + 1), "framework", 110 * scale, layers)
    return made


def test_layers_are_medians_over_queries_slowest_first(spans):
    found = layer_shares(spans)
    assert [(layer.name, layer.time_ns, layer.share, layer.place) for layer in found] == [
        ("b", 120, 0.6, 1),
        ("c", 60, 0.3, 2),
        ("a", 20, 0.1, 0),
    ]
    assert (found[0].operator, found[0].nodes) == ("Conv", ("b.node",))


def test_operators_sum_their_layers(spans):
    found = operator_shares(layer_shares(spans))
    assert [(item.operator, item.layers, item.time_ns) for item in found] == [("Conv", 2, 140), ("Relu", 1, 60)]
    assert sum(item.share for item in found) == pytest.approx(1)


def test_time_inside_another_layer_counts_once():
    spans = Spans()
    spans.add("launch", None, 0, 1000)
    predict = query(spans, 0, "framework", 100)
    loop = spans.add("loop", predict, 20, 90, TraceLevel.FRAMEWORK, operator="Loop")
    spans.add("body", loop, 25, 30, TraceLevel.FRAMEWORK, operator="Add")
    spans.add("body", loop, 60, 40, TraceLevel.FRAMEWORK, operator="Add")
    assert {layer.name: layer.time_ns for layer in layer_shares(spans)} == {"loop": 20, "body": 70}


def test_a_layer_that_most_queries_skip_has_no_median_time():
    spans = Spans()
    spans.add("launch", None, 0, 1000)
    for number in range(3):
        query(
            spans, 1000 * number, "framework", 50, [("always", 10, "Add"), *([("rare", 5, "If")] if not number else [])]
        )
    assert {layer.name: layer.time_ns for layer in layer_shares(spans)} == {"always": 10, "rare": 0}


def test_parts_come_from_queries_without_the_layer_profile(spans):
    summary = summarise_trace(Trace("t", TraceLevel.FRAMEWORK, "", 0, tuple(spans)))
    assert summary.queries == 3
    assert summary.parts_ns == {"decode": 20, "predict": 120, "postprocess": 10}
    assert (summary.predict_ns, summary.profiled_predict_ns) == (120, 220)
    assert (summary.clock, len(summary.layers)) == ("monotonic", 3)


def test_a_trace_without_layers_or_queries_has_none():
    made = Spans()
    made.add("launch", None, 0, 1)
    summary = summarise_trace(Trace("t", TraceLevel.MODEL, "", 0, tuple(made)))
    assert (summary.layers, summary.operators, summary.parts_ns, summary.profiled_predict_ns) == ((), (), {}, None)
