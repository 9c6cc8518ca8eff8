"""What a server of the Open Inference Protocol may say, and what becomes of all that it must not say."""

import json
import warnings
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlmodelscope.predictors.kserve import _layers
from mlmodelscope.predictors.kserverest import RestServer
from mlmodelscope.predictors.kservewire import (
    Garbage,
    datatype_of,
    decode_answer,
    decode_outputs,
    element_type_of,
    encode_request,
    whole_numbers,
)
from mlmodelscope.predictors.port import PredictorFault

KEYS = ["inputs", "outputs", "name", "shape", "datatype", "data", "parameters", "binary_data_size"]
WORDS = st.sampled_from([*KEYS, "y", "FP32", "UINT8", "BYTES", "FP16", "BOOL", "a", ""])
NUMBERS = st.one_of(st.integers(), st.sampled_from([0, 1, -1, 2**31, 2**63, 2**64, 10**400]), st.floats())
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=4)),
    max_leaves=20,
)
# close to what is right, so that the depths are reached
OUTPUT = st.fixed_dictionaries(
    {},
    optional={
        "name": st.one_of(st.just("y"), JSON),
        "shape": st.one_of(st.just([1]), st.lists(NUMBERS, max_size=3), JSON),
        "datatype": st.one_of(st.sampled_from(["FP32", "UINT8", "FP16", "INT64", "BOOL", "BYTES"]), JSON),
        "data": st.one_of(st.lists(NUMBERS, max_size=3), JSON),
        "parameters": st.one_of(st.fixed_dictionaries({"binary_data_size": NUMBERS}), JSON),
    },
)
FACTS = [{"name": "y", "element_type": "float32", "shape": [None]}]


@given(described=st.one_of(JSON, st.lists(st.one_of(OUTPUT, JSON), max_size=3)))
def test_any_description_gives_layers_or_a_fault(described):
    layers = []
    with suppress(PredictorFault):
        layers = _layers("http://host/v2/models/m", {"inputs": described}, "inputs")
    for layer in layers:
        assert isinstance(layer["name"], str)
        assert isinstance(layer["element_type"], str)
        assert all(size is None or (type(size) is int and size >= 0) for size in layer["shape"] or [])


@pytest.mark.parametrize(
    "described",
    [
        ["x"],
        "x",
        {"x": 1},
        True,
        [{"datatype": "FP32", "shape": [1]}],
        [{"name": None}],
        [{"name": "x", "shape": ["a"]}],
        [{"name": "x", "shape": "12"}],
        [{"name": "x", "shape": [1.5]}],
        [{"name": "x", "shape": [float("inf")]}],
        [{"name": "x", "shape": [float("nan")]}],
        [{"name": "x", "shape": [True]}],
    ],
)
def test_a_description_that_is_none_is_a_fault(described):
    with pytest.raises(PredictorFault) as caught:
        _layers("http://host/v2/models/m", {"outputs": described}, "outputs")
    assert caught.value.code == "predictor_failed"
    assert "Open Inference Protocol" in caught.value.hint


@pytest.mark.parametrize("described", [{}, {"inputs": None}, {"inputs": []}])
def test_a_server_need_not_describe_its_layers(described):
    assert _layers("http://host", described, "inputs") == []


def test_a_layer_of_any_size():
    told = {"name": "x", "datatype": "FP32", "shape": [-1, 4.0]}
    assert _layers("http://host", {"inputs": [told]}, "inputs") == [
        {"name": "x", "shape": [None, 4], "element_type": "float32"}
    ]
    assert _layers("http://host", {"inputs": [{"name": "x"}]}, "inputs")[0]["shape"] is None


@pytest.mark.parametrize(
    "extensions, has",
    [
        (None, False),
        (True, False),
        (7, False),
        ("binary_tensor_data", False),
        ([], False),
        ([1], False),
        (["binary_tensor_data"], True),
        (["classification", "model_repository(unload_dependents)", "binary_tensor_data"], True),
    ],
)
def test_extensions_are_a_list_of_names(extensions, has):
    assert RestServer("http://host", "m", None, 1).has_binary({"extensions": extensions}) is has


@given(outputs=st.one_of(JSON, st.lists(st.one_of(OUTPUT, JSON), max_size=2)), tail=st.binary(max_size=8))
def test_any_answer_gives_arrays_or_garbage(outputs, tail):
    text = json.dumps({"outputs": outputs}).encode()
    with warnings.catch_warnings():
        # numpy's, where a number is too large for its type: infinity then
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            (array,) = decode_answer(text + tail, len(text), FACTS)
        except Garbage:
            return
    assert array.dtype == np.float32


@given(body=st.binary(max_size=40), size=st.one_of(st.none(), st.integers(-50, 50)))
def test_any_bytes_give_garbage(body, size):
    with pytest.raises(Garbage):
        decode_answer(body, size, FACTS)


@pytest.mark.parametrize(
    "output",
    [
        {"name": "y", "datatype": "UINT8", "shape": [1], "data": [300]},
        {"name": "y", "datatype": "INT64", "shape": [1], "data": [1e400]},
        {"name": "y", "datatype": "FP32", "shape": [float("inf")], "data": [1]},
        {"name": "y", "datatype": "FP32", "shape": [10**400], "data": [1]},
        {"name": 3, "datatype": "FP32", "shape": [1], "data": [1]},
        {"name": ["y"], "datatype": "FP32", "shape": [1], "data": [1]},
        {"name": "y", "datatype": "BYTES", "shape": [1], "data": [1]},
        {"name": "y", "datatype": "BYTES", "shape": [1], "data": {"a": 1}},
        {"name": "y", "datatype": "FP32", "shape": [1], "parameters": [1]},
    ],
)
def test_an_output_that_is_none_is_garbage(output):
    with pytest.raises(Garbage):
        decode_answer(json.dumps({"outputs": [output]}).encode(), None, FACTS)


def test_what_is_nested_without_end_is_garbage():
    with pytest.raises(Garbage):
        decode_answer(b'{"outputs": ' + b"[" * 200_000, None, FACTS)


def test_sizes_are_whole_numbers():
    assert whole_numbers([1, -1, 2.0]) == [1, -1, 2]


@given(
    array=st.one_of(
        st.lists(st.floats(width=32, allow_nan=False), min_size=1).map(np.float32),
        st.lists(st.text()).map(lambda texts: np.array(texts, dtype=object)),
    ),
    is_binary=st.booleans(),
)
def test_what_is_sent_can_be_read_back(array, is_binary):
    parts, size = encode_request(["y"], [array], [], is_binary)
    request = json.loads(parts[0])
    text = json.dumps({"outputs": request["inputs"]}).encode()
    kind = "string" if datatype_of(array) == "BYTES" else "float32"
    (back,) = decode_answer(
        text + b"".join(parts[1:]), len(text) if size else None, [{**FACTS[0], "element_type": kind}]
    )
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    ("datatype", "data"),
    [("INT64", [1.7, 2.0]), ("INT8", ["1", "2"]), ("FP32", ["1.5", "2"]), ("BOOL", [2, 0]), ("UINT8", [None, 1])],
)
def test_elements_of_another_type_are_garbage(datatype, data):
    output = {"name": "y", "datatype": datatype, "shape": [2], "data": data}
    with pytest.raises(Garbage):
        decode_outputs([(output, None)], [{"name": "y", "element_type": element_type_of(datatype)}])


def test_whole_numbers_may_be_written_as_others():
    output = {"name": "y", "datatype": "INT64", "shape": [2], "data": [1.0, 2]}
    (array,) = decode_outputs([(output, None)], [{"name": "y", "element_type": "int64"}])
    assert (array.tolist(), array.dtype) == ([1, 2], np.int64)


@pytest.mark.parametrize("content", [None, b"\x01\x00\x00\x00\xff"])
def test_texts_that_are_not_utf_8_are_garbage(content):
    output = {"name": "y", "datatype": "BYTES", "shape": [1], "data": [b"\xff"]}
    with pytest.raises(Garbage):
        decode_outputs([(output, content)], [{"name": "y", "element_type": "string"}])
