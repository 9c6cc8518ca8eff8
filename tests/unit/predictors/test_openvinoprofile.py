from mlmodelscope.predictors.openvinoprofile import lay_out, precision_of


def test_layers_lie_one_after_the_other_inside_the_call():
    layers = lay_out([{"duration_ns": 3000}, {"duration_ns": 2000}], 100, 9000)
    assert [(layer["start_ns"], layer["duration_ns"]) for layer in layers] == [(100, 3000), (3100, 2000)]


def test_durations_rounded_up_do_not_leave_the_call():
    layers = lay_out([{"duration_ns": 3000}, {"duration_ns": 2000}, {"duration_ns": 1000}], 0, 4500)
    assert [(layer["start_ns"], layer["duration_ns"]) for layer in layers] == [(0, 3000), (3000, 1500), (4500, 0)]


def test_the_precision_is_that_of_the_heavy_nodes():
    nodes = [("Input", "u8"), ("Reorder", "f32"), ("Convolution", "bf16"), ("Convolution", "bf16"), ("Softmax", "f32")]
    assert precision_of(nodes) == "bfloat16"


def test_mixed_precision_names_the_commonest_first():
    nodes = [("FullyConnected", "f32"), ("Convolution", "i8"), ("Convolution", "i8")]
    assert precision_of(nodes) == "int8+float32"


def test_a_model_without_heavy_nodes_has_the_precision_of_the_rest():
    assert precision_of([("Input", "u8"), ("Reorder", "u8"), ("Eltwise", "f16")]) == "float16"
    assert precision_of([("Input", "f32"), ("Output", "f32")]) == "float32"
    assert precision_of([]) == "unknown"
