import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.errors import StepError
from mlmodelscope.core.steps import Crop, Resize
from mlmodelscope.process.elements import arithmetic, cast_array, reverse_channels, saturated
from mlmodelscope.process.geometry import crop_window, rounded, scaled_size

INTEGERS = ["uint8", "int8", "uint16", "int16", "int32", "int64"]
FLOATS = ["float16", "float32", "float64"]


@given(
    source=st.sampled_from(INTEGERS),
    target=st.sampled_from(INTEGERS),
    values=st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=8),
)
def test_cast_between_integers_saturates(source, target, values):
    own, limits = np.iinfo(source), np.iinfo(target)
    inside = [min(max(value, own.min), own.max) for value in values]
    found = cast_array(np.array(inside, source), np.dtype(target))
    assert found.dtype == target
    assert found.tolist() == [min(max(value, limits.min), limits.max) for value in inside]


@given(
    source=st.sampled_from(FLOATS),
    target=st.sampled_from(INTEGERS),
    values=st.lists(
        st.floats(width=16) | st.sampled_from([2.0**63, -(2.0**63), 1e300, -1e300]), min_size=1, max_size=8
    ),
)
def test_cast_from_floating_point_cuts_and_saturates(source, target, values):
    with np.errstate(over="ignore"):
        array = np.array(values, source)
    limits = np.iinfo(target)

    def expected(value):
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return limits.max if value > 0 else limits.min
        return min(max(math.trunc(value), limits.min), limits.max)

    assert cast_array(array, np.dtype(target)).tolist() == [expected(value) for value in array.tolist()]


def test_cast_to_narrow_floating_point_saturates_but_keeps_infinity():
    wide = np.array([1e300, -1e300, math.inf, -math.inf, 1.5])
    largest = float(np.finfo(np.float32).max)
    assert cast_array(wide, np.dtype("float32")).tolist() == [largest, -largest, math.inf, -math.inf, 1.5]
    assert math.isnan(cast_array(np.array([math.nan]), np.dtype("float16"))[0])
    assert cast_array(np.array([65535], np.uint16), np.dtype("float16")).tolist() == [65504.0]


def test_cast_to_and_from_bool():
    assert cast_array(np.array([0, 2, 255], np.uint8), np.dtype(bool)).tolist() == [False, True, True]
    assert cast_array(np.array([0.0, -0.5]), np.dtype(bool)).tolist() == [False, True]
    assert cast_array(np.array([True, False]), np.dtype("float32")).tolist() == [1.0, 0.0]


def test_cast_to_the_same_type_is_the_same_array():
    array = np.zeros(3, np.float32)
    assert cast_array(array, np.dtype("float32")) is array
    assert saturated(300, np.dtype("uint8")) == 255


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("value", [(1.1, 2.2, 3.3), (2.5, 2.5, 2.5), 0.3])
def test_arithmetic_is_numpys_broadcast(dtype, axis, in_place, value):
    shape = (3, 4, 5) if axis == 0 else (4, 5, 3)
    array = np.random.default_rng(0).normal(size=shape).astype(dtype)
    constants = np.array(value, dtype)
    if axis == 0 and constants.ndim:
        constants = constants.reshape(3, 1, 1)
    for operation in ("subtract", "divide"):
        given_array = array.copy()
        found = arithmetic(operation, value, np.dtype(dtype), channel_axis=axis, in_place=in_place)(given_array)
        np.testing.assert_array_equal(found, getattr(np, operation)(array, constants))
        assert np.shares_memory(found, given_array) == in_place


def test_arithmetic_in_place_works_on_a_window_of_an_array():
    array = np.arange(60, dtype=np.float32).reshape(4, 5, 3)
    window = array[1:3, 1:4]
    expected = window - np.array([1, 2, 3], np.float32)
    found = arithmetic("subtract", (1.0, 2.0, 3.0), np.dtype("float32"), in_place=True)(window)
    np.testing.assert_array_equal(found, expected)


def test_constants_that_do_not_fit_are_refused():
    stage = arithmetic("divide", (1.0, 2.0), np.dtype("float32"))
    with pytest.raises(StepError, match=r"2 constants.*\[4, 4, 3\]"):
        stage(np.zeros((4, 4, 3), np.float32))
    np.testing.assert_array_equal(stage(np.ones((5, 2), np.float32))[:, 1], np.full(5, 0.5))


@given(height=st.integers(1, 9), width=st.integers(1, 9))
def test_reversing_channels_twice_is_nothing(height, width):
    array = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    np.testing.assert_array_equal(reverse_channels(array), array[:, :, ::-1])
    np.testing.assert_array_equal(reverse_channels(reverse_channels(array)), array)


@given(numerator=st.integers(1, 10**6), denominator=st.integers(1, 10**6))
def test_rounding_is_half_up_and_at_least_one(numerator, denominator):
    whole = rounded(numerator, denominator)
    assert whole == 1 or abs(2 * numerator - 2 * whole * denominator) <= denominator
    assert rounded(denominator + 2 * denominator * numerator, 2 * denominator) == numerator + 1


@given(
    height=st.integers(1, 5000),
    width=st.integers(1, 5000),
    size=st.tuples(st.integers(1, 900), st.integers(1, 900)),
    side=st.integers(1, 900),
)
def test_sizes_cover_fit_and_keep_their_side(height, width, size, side):
    cover = scaled_size(Resize(size=size, keep_aspect_ratio="cover"), height, width)
    fit = scaled_size(Resize(size=size, keep_aspect_ratio="fit"), height, width)
    assert cover[0] >= size[0]
    assert cover[1] >= size[1]
    assert fit[0] <= size[0]
    assert fit[1] <= size[1]
    assert cover[0] == size[0] or cover[1] == size[1]
    assert fit[0] == size[0] or fit[1] == size[1]
    assert min(scaled_size(Resize(shorter_side=side), height, width)) == side
    assert max(scaled_size(Resize(max_dimension=side), height, width)) == min(side, max(height, width))


def test_sizes_and_windows_of_the_documentation():
    assert scaled_size(Resize(shorter_side=256), 375, 500) == (256, 341)
    assert scaled_size(Resize(shorter_side=256), 600, 400) == (384, 256)
    assert scaled_size(Resize(max_dimension=100), 50, 80) == (50, 80)
    assert crop_window(Crop(percentage=87.5), 375, 500) == (23, 31, 328, 438)
    assert crop_window(Crop(size=(224, 224)), 256, 341) == (16, 58, 224, 224)
    assert crop_window(Crop(size=(224, 224), method="top_left"), 256, 341) == (0, 0, 224, 224)
