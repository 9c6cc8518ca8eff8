from types import SimpleNamespace

from mlmodelscope.predictors.litertprofile import add_nodes, layers_of


def event(tag, kind, start_us, elapsed_us, place=0):
    return SimpleNamespace(tag=tag.encode(), kind=kind, start_us=start_us, elapsed_us=elapsed_us, place=place)


def test_operators_of_a_delegate_are_laid_end_to_end_from_the_start_of_the_call():
    events = [
        event("LiteRT::Run[buffer registration]", 1, 90, 5),
        event("invoke", 16, 99, 60),
        event("Invoke", 1, 100, 50),
        event("Convolution (NHWC, F32) IGEMM", 8, 0, 30, 0),
        event("Softmax (NC, F32)", 8, 0, 4, 1),
        event("LiteRT::Run[Buffer sync]", 1, 160, 2),
    ]
    assert [(layer["name"], layer["start_ns"], layer["duration_ns"]) for layer in layers_of(events)] == [
        ("Convolution (NHWC, F32) IGEMM 0", 100_000, 30_000),
        ("Softmax (NC, F32) 1", 130_000, 4_000),
    ]


def test_operators_outside_a_delegate_have_times_of_their_own():
    events = [
        event("Invoke", 1, 100, 50),
        event("Add", 8, 0, 10),
        event("CUSTOM", 2, 120, 7, 5),
        event("Mul", 8, 0, 1, 2),
    ]
    found = layers_of(events)
    assert [layer["start_ns"] for layer in found] == [100_000, 120_000, 127_000]
    assert [layer["provider"] for layer in found] == ["XNNPACK", "none", "XNNPACK"]


def operators(*kinds):
    return [{"operator": kind, "name": f"{kind.lower()}:0", "outputs": []} for kind in kinds]


def layers(*kernels):
    return [{"operator": kernel} for kernel in kernels]


def test_lists_that_go_together_name_the_nodes():
    found = layers("Convolution (NHWC, F32) IGEMM", "Fully Connected (NC, F32) GEMM", "Sigmoid (NC)")
    add_nodes(found, operators("DEPTHWISE_CONV_2D", "CONV_2D", "LOGISTIC"))
    assert [layer["nodes"] for layer in found] == [["depthwise_conv_2d:0"], ["conv_2d:0"], ["logistic:0"]]


def test_a_wrong_name_is_worse_than_none():
    for kinds in (("CONV_2D",), ("SOFTMAX", "CONV_2D")):
        found = layers("Convolution (NHWC, F32) IGEMM", "Softmax (NC, F32)")
        add_nodes(found, operators(*kinds))
        assert all("nodes" not in layer for layer in found)
