import json

from mlmodelscope.predictors import onnxprofile
from mlmodelscope.predictors.modelfile import Node
from mlmodelscope.predictors.onnxprofile import origins, read_layers


def node(operator, inputs, outputs, name=""):
    return Node(name, operator, inputs.split(), outputs.split())


RESIDUAL = [
    node("Pad", "x", "padded", "pad"),
    node("Conv", "padded w1", "c1", "conv1"),
    node("BatchNormalization", "c1 s1", "b1", "bn1"),
    node("Relu", "b1", "r1", "relu1"),
    node("Conv", "r1 w2", "c2", "conv2"),
    node("Add", "c2 x", "sum", "add"),
    node("Relu", "sum", "r2", "relu2"),
    node("Conv", "r2 w3", "c3", "conv3"),
    node("Relu", "c3", "y", "relu3"),
]


class TestOrigins:
    def test_an_unchanged_graph_is_its_own_origin(self):
        graph = [node("MatMul", "x w", "p", "multiply"), node("Relu", "p", "y", "cut")]
        assert origins(graph, graph) == {"multiply": ["multiply"], "cut": ["cut"]}

    def test_merged_nodes_are_found_between_the_tensors_that_are_left(self):
        merged = [node("FusedConv", "x w1 bias", "r1", "fused conv1"), *RESIDUAL[4:]]
        found = origins(RESIDUAL, merged)
        assert found["fused conv1"] == ["pad", "conv1", "bn1", "relu1"]
        assert {name: nodes for name, nodes in found.items() if name != "fused conv1"} == {
            name: [name] for name in ("conv2", "add", "relu2", "conv3", "relu3")
        }

    def test_a_sum_belongs_to_the_convolution_before_it(self):
        blocked = [
            node("Conv", "x reorder", "t0", "r1_nchwc"),
            node("Conv", "t0 t1 t2 x", "t3", "c2_nchwc"),
            node("Conv", "t3 t4", "t5", "y_nchwc"),
            node("ReorderOutput", "t5", "y", "ReorderOutput"),
        ]
        assert origins(RESIDUAL, blocked) == {
            "r1_nchwc": ["pad", "conv1", "bn1", "relu1"],
            "c2_nchwc": ["conv2", "add", "relu2"],
            "y_nchwc": ["conv3", "relu3"],
        }

    def test_a_pattern_without_a_node_of_its_own_name(self):
        original = [
            node("ReduceMean", "x", "m", "mean"),
            node("Sub", "x m", "d", "less"),
            node("Pow", "d two", "q", "square"),
            node("Relu", "q", "y", "relu"),
        ]
        merged = [node("LayerNormalization", "x s", "q", "LayerNormalization_0"), original[3]]
        assert origins(original, merged) == {"LayerNormalization_0": ["mean", "less", "square"], "relu": ["relu"]}

    def test_constants_computed_at_load_belong_to_nobody(self):
        original = [node("Constant", "", "k", "one"), node("Neg", "k", "n", "minus"), node("Add", "x n", "y", "add")]
        assert origins(original, [node("Add", "x n", "y", "add")]) == {"add": ["add"]}

    def test_nodes_without_names_are_called_after_their_outputs(self):
        graph = [node("Mul", "x a", "p"), node("Add", "p b", "y")]
        assert origins(graph, graph) == {"Mul_0": ["p"], "Add_1": ["y"]}


def event(name, ts, dur, cat="Node", **args):
    return json.dumps({"cat": cat, "name": name, "ts": ts, "dur": dur, "args": args}) + ",\n"


RUN = event("model_run", 0, 99, cat="Session")
CONV = event(
    "conv1_kernel_time",
    12,
    30,
    op_name="Conv",
    provider="CPUExecutionProvider",
    input_type_shape=[{"float": [1, 3]}, {"int64": []}],
    output_type_shape=[{"double": [1, 8]}],
    parameter_size="40",
    activation_size="12",
    output_size="64",
)


class TestReadLayers:
    def test_a_layer_has_its_times_on_our_clock_and_its_facts(self):
        ((layer,),) = read_layers(["[\n", CONV, RUN, "]\n"], [1_000_000], {"conv1": ["conv1", "bn1"]})
        assert layer == {
            "name": "conv1",
            "start_ns": 1_012_000,
            "duration_ns": 30_000,
            "operator": "Conv",
            "provider": "CPUExecutionProvider",
            "nodes": ["conv1", "bn1"],
            "inputs": [{"element_type": "float32", "shape": [1, 3]}, {"element_type": "int64", "shape": []}],
            "outputs": [{"element_type": "float64", "shape": [1, 8]}],
            "parameter_bytes": 40,
            "input_bytes": 12,
            "output_bytes": 64,
        }

    def test_each_call_has_its_own_layers_and_time_zero(self):
        session = event("session_initialization", 1, 2, cat="Session")
        fence = event("conv1_fence_before", 11, 0)
        calls = list(read_layers([session, fence, CONV, RUN, CONV, CONV, RUN], [0, 5], {}))
        assert [[layer["start_ns"] for layer in layers] for layers in calls] == [[12_000], [12_005, 12_005]]

    def test_a_profile_that_ends_early_leaves_calls_without_layers(self):
        assert [bool(layers) for layers in read_layers([CONV, RUN, CONV], [0, 0, 0], {})] == [True, False, False]

    def test_a_line_that_cannot_be_read_spoils_its_call_only(self):
        calls = list(read_layers(['{"name": "bad "quote""},\n', CONV, RUN, CONV, RUN], [0, 0], {}))
        assert calls[0] is None
        assert len(calls[1]) == 1

    def test_a_profile_beyond_the_limit_is_not_read_to_its_end(self, monkeypatch):
        monkeypatch.setattr(onnxprofile, "_MOST_LAYERS", 4)
        calls = list(read_layers([CONV, CONV, RUN] * 5, [0] * 5, {}))
        assert [layers is None for layers in calls] == [False, False, True, True, True]
