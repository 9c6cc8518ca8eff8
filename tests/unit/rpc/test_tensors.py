import numpy as np
import pytest

pytest.importorskip("google.protobuf", reason="protobuf is not installed: pip install 'mlmodelscope[rpc]'")

from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from mlmodelscope.rpc.tensors import GarbledTensor, element_type, read_array, write_bytes

NUMBERS = arrays.scalar_dtypes().filter(lambda dtype: dtype.kind in "biufc" and dtype.isnative and dtype.itemsize <= 16)


@given(arrays.arrays(NUMBERS, arrays.array_shapes(min_dims=0, min_side=0)))
def test_numbers_come_back_as_they_were(array):
    back = read_array(element_type(array), array.shape, write_bytes(array))
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)


@given(st.lists(st.text(), max_size=6))
def test_strings_come_back_as_they_were(texts):
    array = np.empty(len(texts), dtype=object)
    array[:] = texts
    assert read_array("string", array.shape, write_bytes(array)).tolist() == texts


@given(st.binary(max_size=64), st.sampled_from(["float32", "string", "bool", "int64"]), st.lists(st.integers(-2, 9)))
def test_any_bytes_are_a_tensor_or_refused(content, name, shape):
    try:
        array = read_array(name, shape, content)
    except GarbledTensor:
        return
    assert array.shape == tuple(shape)


@pytest.mark.parametrize("array", [np.zeros(2, ">f4"), np.zeros(2, "datetime64[s]"), np.zeros(2, [("a", "i4")])])
def test_what_has_no_name_cannot_be_sent(array):
    with pytest.raises(GarbledTensor, match="cannot be sent"):
        element_type(array)


@pytest.mark.parametrize("name", ["object", "float31", "f4", "datetime64", "", "U", "(1,2", "2147483648V1", "f4,,"])
def test_a_type_that_is_none_is_refused(name):
    with pytest.raises(GarbledTensor, match="no element type"):
        read_array(name, [1], bytes(8))


def test_a_part_of_a_buffer_is_read():
    content = bytes(8) + np.float32([1, 2]).tobytes() + bytes(8)
    assert read_array("float32", [2], content, 8, 8).tolist() == [1, 2]


def test_half_a_character_cannot_be_sent():
    with pytest.raises(GarbledTensor, match="no text that can be sent"):
        write_bytes(np.array(["a\ud800"], object))
