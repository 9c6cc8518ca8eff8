"""The parts of the tflite predictor that a real small model cannot reach, over an interpreter that plays them."""

import types

import numpy as np
import pytest

from mlmodelscope.predictors import tflite
from mlmodelscope.predictors.port import PredictorFault


def detail(index, name, shape, signature=None, dtype=np.float32):
    return {"index": index, "name": name, "shape": shape, "shape_signature": signature or shape, "dtype": dtype}


class Interpreter:
    """Doubles its input; declares an open batch but cannot allocate more than two; has no inner object."""

    weight_type = np.float32
    result_type = np.float32
    delegated = True

    def __init__(self, **arguments):
        self.arguments = arguments
        self.shape = [1, 2]
        self.failing = False

    def allocate_tensors(self):
        if self.shape[0] > 2:
            raise RuntimeError("node 3 (RESHAPE) failed to prepare")
        self.value = np.zeros(self.shape, np.float32)

    def resize_tensor_input(self, index, shape):
        assert index == 0
        self.shape = shape

    def get_input_details(self):
        return [detail(0, "x", self.shape, [-1, 2])]

    def get_output_details(self):
        return [detail(2, "y", self.shape, [-1, 2])]

    def get_tensor_details(self):
        return [
            *self.get_input_details(),
            detail(1, "w", [2, 2], dtype=self.weight_type),
            detail(2, "y", [1, 2], dtype=self.result_type),
        ]

    def _get_ops_details(self):
        delegate = [{"op_name": "DELEGATE", "outputs": [2]}] if self.delegated else []
        return [{"op_name": "FULLY_CONNECTED", "outputs": [2]}, *delegate]

    def set_tensor(self, index, value):
        if list(value.shape) != self.shape:
            raise ValueError("Dimension mismatch")
        self.value = value

    def invoke(self):
        if self.failing:
            raise RuntimeError("node 1 failed to invoke")

    def get_tensor(self, index):
        return self.value * 2


@pytest.fixture
def load(monkeypatch):
    def loaded(interpreter=Interpreter, **changes):
        resolvers = types.SimpleNamespace(BUILTIN_WITHOUT_DEFAULT_DELEGATES="plain")
        module = types.SimpleNamespace(
            __name__="ai_edge_litert.interpreter", Interpreter=interpreter, OpResolverType=resolvers
        )
        monkeypatch.setattr(tflite, "import_framework", lambda name, modules: module)
        predictor = tflite.Predictor()
        return predictor, predictor.load({"graph_path": "model.tflite", "threads": 1, **changes})

    return loaded


def ones(batch):
    return np.ones((batch, 2), np.float32)


def test_an_interpreter_without_an_inner_object_is_called_publicly(load):
    predictor, facts = load()
    np.testing.assert_array_equal(predictor.predict([ones(2)])[0], 2 * ones(2))
    assert facts["provider"] == "XNNPACK"


def test_a_resize_that_fails_leaves_the_model_as_it_was(load):
    predictor, _ = load()
    predictor.predict([ones(2)])
    with pytest.raises(PredictorFault, match="node 3") as caught:
        predictor.predict([ones(3)])
    assert caught.value.code == "batch_unsupported"
    assert (caught.value.fields["expected"], caught.value.fields["got"]) == ([[2, 2]], [[3, 2]])
    np.testing.assert_array_equal(predictor.predict([ones(2)])[0], 2 * ones(2))


def test_a_failure_inside_the_call_is_the_frameworks(load):
    predictor, _ = load()
    predictor._interpreter.failing = True
    with pytest.raises(PredictorFault, match="node 1") as caught:
        predictor.predict([ones(1)])
    assert caught.value.code == "predictor_failed"


def test_the_delegate_can_be_declined(load):
    predictor, _ = load(options={"delegate": "none"})
    assert predictor._interpreter.arguments["experimental_op_resolver_type"] == "plain"
    with pytest.raises(PredictorFault, match="delegate cannot be 'gpu'"):
        load(options={"delegate": "gpu"})


@pytest.mark.parametrize(
    "weight, result, precision",
    [
        (np.float32, np.float32, "float32"),
        (np.float16, np.float32, "float16 weights"),
        (np.int8, np.float32, "int8 weights"),
        (np.uint8, np.uint8, "uint8 quantised"),
    ],
)
def test_precision_is_that_of_weights_and_results(load, weight, result, precision):
    class Typed(Interpreter):
        weight_type, result_type = weight, result

    assert load(Typed)[1]["precision"] == precision


def test_a_delegate_that_took_nothing_is_not_reported(load):
    class Plain(Interpreter):
        delegated = False

    assert load(Plain)[1]["provider"] == "none"


def test_layers_are_shown_by_an_interpreter_that_keeps_every_tensor(load):
    opened = []

    class Keeping(Interpreter):
        delegated = False

        def __init__(self, **arguments):
            super().__init__(**arguments)
            opened.append(arguments)

        def get_tensor_details(self):
            return [*super().get_tensor_details(), detail(3, "y", [1, 2])]

        def _get_ops_details(self):
            return [{"op_name": "RELU", "outputs": [2]}, {"op_name": "RELU", "outputs": [3]}]

    predictor, _ = load(Keeping)
    assert predictor.layer_names() == ["y", "y#3"]
    np.testing.assert_array_equal(predictor.reveal([ones(2)], ["y#3"])[0], 2 * ones(2))
    assert len(opened) == 2
    assert opened[1]["experimental_preserve_all_tensors"] is True
    assert opened[1]["experimental_op_resolver_type"] == "plain"
    with pytest.raises(PredictorFault, match="failed to prepare"):
        predictor.reveal([ones(3)], ["y"])
    predictor.unload()
    with pytest.raises(PredictorFault, match="no model is loaded"):
        predictor.layer_names()


def test_a_version_that_keeps_no_tensors_says_so(load):
    class Old(Interpreter):
        def __init__(self, **arguments):
            if "experimental_preserve_all_tensors" in arguments:
                raise TypeError("unexpected keyword argument")
            super().__init__(**arguments)

    predictor, _ = load(Old)
    with pytest.raises(PredictorFault, match="this version cannot show"):
        predictor.layer_names()
