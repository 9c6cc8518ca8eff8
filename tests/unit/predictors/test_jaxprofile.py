"""XLA's events are given to the calls they lie in, with what the compiled program says of them."""

from mlmodelscope.predictors.jaxprofile import layers_of, read_program

PROGRAM = """
ENTRY %main.1 (x.1: f32[2,4]) -> (f32[2,3], f32[2,3]) {
  %x.1 = f32[2,4]{1,0} parameter(0), metadata={op_name="x"}
  %constant.3 = f32[4,3]{1,0} constant({...})
  %dot.1 = f32[2,3]{1,0} dot(%x.1, %constant.3), lhs_contracting_dims={1}, metadata={op_name="jit(f)/dot_general"}
  ROOT %tuple.1 = (f32[2,3]{1,0}, s32[]) tuple(%dot.1, %x.1)
}
"""


def tensor(kind, *shape):
    return {"element_type": kind, "shape": list(shape)}


def test_a_program_tells_operators_shapes_and_origins():
    found = read_program(PROGRAM)
    assert found["dot.1"] == {
        "operator": "dot",
        "provider": "XLA CPU",
        "nodes": ["jit(f)/dot_general"],
        "inputs": [tensor("float32", 2, 4), tensor("float32", 4, 3)],
        "outputs": [tensor("float32", 2, 3)],
    }
    assert found["tuple.1"]["outputs"] == [tensor("float32", 2, 3), tensor("int32")]


def test_events_go_to_the_call_they_start_in():
    events = [(5, 1, "before"), (12, 3, "dot.1"), (16, 2, "max"), (25, 1, "between"), (31, 4, "dot.1")]
    first, second, third = layers_of(events, [(10, 20), (30, 40), (50, 60)], [{"dot.1": {"operator": "dot"}}] * 3)
    assert first == [
        {"operator": "dot", "name": "dot.1", "start_ns": 12, "duration_ns": 3},
        {"name": "max", "start_ns": 16, "duration_ns": 2},
    ]
    assert [layer["start_ns"] for layer in second] == [31]
    assert third is None


def test_no_layer_ends_after_its_call():
    ((layer,),) = layers_of([(12, 30, "dot.1")], [(10, 20)], [{}])
    assert layer["duration_ns"] == 8


def test_a_layer_is_described_by_the_program_of_its_call():
    small, large = read_program(PROGRAM), read_program(PROGRAM.replace("[2,", "[8,"))
    events = [(12, 3, "dot.1"), (31, 4, "dot.1"), (52, 3, "dot.1")]
    calls = layers_of(events, [(10, 20), (30, 40), (50, 60)], [small, large, small])
    assert [layer["outputs"] for (layer,) in calls] == [[tensor("float32", size, 3)] for size in (2, 8, 2)]
