from mlmodelscope.core.span import TraceLevel
from mlmodelscope.trace.table import SpanTable, add_query

STAMPS = [0, 100, 200, 300, 1300, 1400]


def rows(table):
    strings = table.strings
    return [
        (strings[name], parent, start, end)
        for name, parent, start, end in zip(table.names, table.parents, table.starts, table.ends, strict=True)
    ]


def traced(level, layers=()):
    table = SpanTable(level)
    add_query(table, STAMPS, "monotonic", -1, {"query": 0}, layers)
    return table


def layer(name, start, duration):
    return {"name": name, "start_ns": start, "duration_ns": duration, "operator": "Conv"}


def test_a_query_has_its_parts_and_reading_lies_before_it():
    assert rows(traced(TraceLevel.MODEL)) == [
        ("read", -1, 0, 100),
        ("query", -1, 100, 1400),
        ("decode", 1, 100, 200),
        ("transform", 1, 200, 300),
        ("predict", 1, 300, 1300),
        ("postprocess", 1, 1300, 1400),
    ]


def test_spans_below_the_level_are_not_taken():
    names = [name for name, *_ in rows(traced(TraceLevel.APPLICATION, [layer("a", 310, 10)]))]
    assert names == ["read", "query", "decode", "transform", "postprocess"]
    assert len(traced(TraceLevel.MODEL, [layer("a", 310, 10)])) == 6


def test_layers_lie_inside_predict_in_the_order_of_time():
    table = traced(TraceLevel.FRAMEWORK, [layer("b", 600, 100), layer("a", 300, 300)])
    assert rows(table)[5:7] == [("a", 4, 300, 600), ("b", 4, 600, 700)]
    assert '{"operator":"Conv"}' in table.strings


def test_a_layer_that_sticks_out_by_a_rounding_is_moved_inside():
    found = rows(traced(TraceLevel.FRAMEWORK, [layer("early", 290, 20), layer("late", 1250, 100)]))
    assert found[5:7] == [("early", 4, 300, 310), ("late", 4, 1250, 1300)]


def test_a_layer_that_encloses_others_is_their_parent():
    found = rows(traced(TraceLevel.FRAMEWORK, [layer("in", 410, 50), layer("loop", 400, 200), layer("next", 600, 5)]))
    assert found[5:8] == [("loop", 4, 400, 600), ("in", 5, 410, 460), ("next", 4, 600, 605)]


def test_equal_texts_are_kept_once():
    table = SpanTable(TraceLevel.MODEL)
    for number in range(3):
        add_query(table, [1000 * number + stamp for stamp in STAMPS], "monotonic", -1, {"query": number})
    assert sorted(set(table.strings)) == sorted(table.strings)
    assert table.seams == [0, 6, 12]
