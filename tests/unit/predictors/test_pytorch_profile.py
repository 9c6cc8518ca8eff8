from mlmodelscope.predictors.torchprofile import Event, layers_of_calls

SHIFT = -1_000_000
CALL = (1000, 2000, SHIFT)


def event(name, start, duration, **facts):
    """An event `start` nanoseconds after the call's begin, on the profiler's clock."""
    return Event(name, 1000 + start - SHIFT, duration, **facts)


def test_only_operators_that_no_operator_called_are_layers():
    events = [
        event("aten::linear", 10, 100, shapes=[[1, 4], [3, 4], []], types=["float", "float", "Scalar"]),
        event("aten::addmm", 20, 80),
        event("aten::relu", 200, 50),
    ]
    [layers] = layers_of_calls(events, [CALL], [])
    assert [(layer["name"], layer["start_ns"], layer["duration_ns"]) for layer in layers] == [
        ("linear", 1010, 100),
        ("relu", 1200, 50),
    ]
    assert layers[0]["inputs"] == [
        {"element_type": "float32", "shape": [1, 4]},
        {"element_type": "float32", "shape": [3, 4]},
    ]
    assert layers[0]["input_bytes"] == 64


def test_marks_name_the_layers_inside_them():
    events = [
        event("mlmodelscope:block", 0, 500),
        event("mlmodelscope:block.conv", 10, 100),
        event("aten::conv2d", 20, 50),
        event("aten::add", 200, 10),
        event("aten::add", 300, 10),
        event("aten::relu", 600, 10),
    ]
    [layers] = layers_of_calls(events, [CALL], [])
    assert [layer["name"] for layer in layers] == ["block.conv", "block/add", "block/add_1", "relu"]
    assert [layer["nodes"] for layer in layers] == [["block.conv"], ["block"], ["block"], []]


def test_a_scripted_functions_own_name_is_no_layer():
    [layers] = layers_of_calls([event("forward", 0, 300), event("aten::relu", 10, 20)], [CALL], [])
    assert [layer["operator"] for layer in layers] == ["aten::relu"]


def test_nodes_name_the_layers_when_the_call_did_exactly_these():
    events = [event("aten::linear", 10, 20), event("aten::relu", 40, 20)]
    [named] = layers_of_calls(events, [CALL], [("y", "aten::linear"), ("z", "aten::relu")])
    assert [layer["name"] for layer in named] == ["y", "z"]
    [other] = layers_of_calls(events, [CALL], [("y", "aten::linear"), ("z", "aten::sigmoid")])
    assert [layer["name"] for layer in other] == ["linear", "relu"]


def test_memory_counts_for_the_layer_that_took_and_kept_it():
    events = [
        event("aten::conv2d", 10, 100),
        event("[memory]", 20, 0, nbytes=500),
        event("[memory]", 30, 0, nbytes=64),
        event("[memory]", 40, 0, nbytes=-500),
        event("[memory]", 150, 0, nbytes=1000),
        event("aten::view", 200, 10),
    ]
    [layers] = layers_of_calls(events, [CALL], [])
    assert layers[0]["output_bytes"] == 64
    assert "output_bytes" not in layers[1]


def test_each_call_has_its_own_layers_and_one_without_is_incomplete():
    calls = [CALL, (3000, 4000, SHIFT), (5000, 6000, SHIFT)]
    events = [event("aten::relu", 10, 20), event("aten::relu", 1500, 20), event("aten::linear", 4100, 20)]
    first, second, third = layers_of_calls(events, calls, [])
    assert [layer["operator"] for layer in first] == ["aten::relu"]
    assert second is None
    assert [layer["operator"] for layer in third] == ["aten::linear"]


def test_no_layer_ends_behind_its_call():
    [layers] = layers_of_calls([event("aten::relu", 900, 500)], [CALL], [])
    assert layers[0]["start_ns"] + layers[0]["duration_ns"] == 2000
