"""MXNet's profile text becomes layers per call, or None where operators are missing."""

import json
from types import SimpleNamespace

import numpy as np

from mlmodelscope.predictors.mxnetprofile import _shapes, read_events, read_layers


def event(name, phase, at, category="operator"):
    return json.dumps({"name": name, "cat": category, "ph": phase, "ts": at, "pid": 0, "tid": 7})


def text_of(*events):
    return '{"traceEvents": [ {"ph": "M", "args": {"name": "cpu/0"}, "pid": 0},\n' + "\n,\n".join(events)


LAYERS = [{"name": "c1", "operator": "Convolution"}, {"name": "p", "operator": "softmax"}]


def test_begins_and_ends_are_joined_and_other_kinds_left_out():
    text = text_of(
        event("Convolution", "B", 10),
        event("Convolution", "E", 14),
        event("Convolution", "b", 10),
        event("Convolution", "e", 14),
        event("memory", "B", 11, "memory"),
        event("softmax", "B", 15),
        event("softmax", "E", 16),
    )
    assert read_events(text) == [("Convolution", 10, 14), ("softmax", 15, 16)]


def test_an_event_without_its_end_is_left_out():
    assert read_events(text_of(event("softmax", "B", 15)) + "{broken") == []


def test_calls_get_the_layers_inside_them_on_our_clock():
    events = [("Convolution", 10, 14), ("softmax", 15, 16), ("Convolution", 30, 33), ("softmax", 33, 35)]
    first, second = read_layers(events, [(9, 17, 500), (29, 36, 700)], [LAYERS, LAYERS])
    assert [(layer["name"], layer["start_ns"], layer["duration_ns"]) for layer in first] == [
        ("c1", 10_500, 4000),
        ("p", 15_500, 1000),
    ]
    assert [layer["start_ns"] for layer in second] == [30_700, 33_700]
    assert "start_ns" not in LAYERS[0]


def test_a_call_with_other_operators_than_its_graph_is_none():
    events = [("Convolution", 10, 14), ("softmax", 30, 33)]
    assert read_layers(events, [(9, 17, 0), (29, 36, 0)], [LAYERS, LAYERS[1:]]) == [
        None,
        [{"name": "p", "operator": "softmax", "start_ns": 30_000, "duration_ns": 3000}],
    ]


def test_layers_have_the_types_that_mxnet_infers_and_none_where_it_knows_none():
    types = {"a": np.float16, "b": np.int8, "c": np.dtype([("bfloat16", np.uint16)]), "d": None}
    internals = SimpleNamespace(
        list_outputs=lambda: list(types),
        infer_shape_partial=lambda **_: (None, [(2, 3) for _ in types], None),
        infer_type_partial=lambda **_: (None, list(types.values()), None),
    )
    found = _shapes(SimpleNamespace(get_internals=lambda: internals), SimpleNamespace(arg_dict={}))
    assert found == {
        "a": {"element_type": "float16", "shape": [2, 3]},
        "b": {"element_type": "int8", "shape": [2, 3]},
        "c": {"element_type": "bfloat16", "shape": [2, 3]},
        "d": {"shape": [2, 3]},
    }
