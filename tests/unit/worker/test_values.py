"""Values of a manifest's functions cross as they are, into memory of their own, or are refused by name."""

import enum
import math
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlmodelscope.worker.tensors import Inbox, Outbox
from mlmodelscope.worker.values import ValueFault, pack_value, unpack_value


class Colour(enum.IntEnum):
    RED = 3


def crossed(value, folder=None):
    arrays = pack_value(value)
    if folder is None:
        return unpack_value(arrays)
    outbox = Outbox(str(folder), "out")
    try:
        return unpack_value(Inbox(str(folder)).get(outbox.put(arrays)))
    finally:
        outbox.close()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(PLAIN)
def test_plain_values_come_back_equal_and_of_their_kind(value):
    found = crossed(value)
    assert repr(found) == repr(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=np.int64).reshape(2, 3)),
        np.arange(10, dtype=np.uint8)[::2],
        np.array(2.5),
        np.empty((0, 3), np.float32),
        np.array(["a", "bcd"]),
        np.array([True, False]),
        np.array([1, 2], dtype=">i4"),
        np.array(["2024-01-01"], dtype="datetime64[D]"),
    ],
    ids=str,
)
def test_arrays_come_back_equal_through_shared_memory(array, tmp_path):
    found = crossed({"inner": [array, b"bytes"]}, tmp_path)["inner"]
    assert (found[0].dtype, found[0].shape, found[1]) == (array.dtype, array.shape, b"bytes")
    np.testing.assert_array_equal(found[0], array)


def test_what_arrives_is_writable_and_lasts(tmp_path):
    outbox, inbox = Outbox(str(tmp_path), "out"), Inbox(str(tmp_path))
    first = unpack_value(inbox.get(outbox.put(pack_value([np.zeros(4), b"one"]))))
    unpack_value(inbox.get(outbox.put(pack_value([np.ones(4), b"two"]))))
    assert first[0].tolist() == [0, 0, 0, 0]
    assert first[1] == b"one"
    first[0][0] = 7
    outbox.close()


def test_numbers_without_end_and_of_numpy_survive():
    found = crossed([math.inf, -math.inf, math.nan, np.float32(0.1), np.int64(3), np.str_(""), Colour.RED])
    assert found[:2] == [math.inf, -math.inf]
    assert math.isnan(found[2])
    assert (found[3], type(found[3]), found[4], found[5], found[6]) == (np.float32(0.1), np.float32, 3, "", 3)


def test_containers_of_other_classes_become_plain_ones():
    assert crossed(OrderedDict(b=1, a=2)) == {"b": 1, "a": 2}
    assert crossed(bytearray(b"x")) == b"x"


def test_arrays_of_objects_keep_what_is_in_them():
    array = np.empty((2, 1), object)
    array[0, 0], array[1, 0] = [1, [2]], "text"
    found = crossed(array)
    assert (found.dtype, found.shape, found.tolist()) == (array.dtype, (2, 1), [[[1, [2]]], ["text"]])


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        ({1, 2}, "a value of type set"),
        ([{"a": Path("x")}], "type PosixPath|type Path"),
        (np.zeros(2, [("a", "i4")]), "an array of"),
        (10**5000, "a number that cannot be written"),
    ],
    ids=["set", "path", "fields", "long number"],
)
def test_what_cannot_cross_is_named(value, holds):
    with pytest.raises(ValueFault, match=holds):
        pack_value(value)


def test_a_list_that_holds_itself_is_refused():
    endless = []
    endless.append(endless)
    with pytest.raises(ValueFault, match="without end"):
        pack_value(endless)


@pytest.mark.parametrize("text", [b"nonsense", b'["array", 7]', b'["unheard", 1]', b"[]", b'["float", "x"]', b"\xff"])
def test_arrays_that_are_no_value_are_refused(text):
    with pytest.raises(ValueFault, match="no value"):
        unpack_value([np.frombuffer(text, np.uint8)])
