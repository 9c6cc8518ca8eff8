"""Arrays -> arrays of another element type or with constants taken away and divided out, to the bit as documented.

Floating point stays in its own type. Integers are computed in float64 and go back as `cast` goes: out-of-range values
saturate, fractions are cut towards zero, not-a-number is 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlmodelscope.core.errors import StepError

__all__ = ["Array", "ArrayStage", "arithmetic", "cast_array", "gray", "reverse_channels", "saturated"]

Array = NDArray[Any]
ArrayStage = Callable[[Array], Array]
Constants = float | tuple[float, ...]

_GRAY_WEIGHTS = (0.299, 0.587, 0.114)


def cast_array(array: Array, dtype: np.dtype[Any]) -> Array:
    """`array` in another element type; the same object where nothing is to be done."""
    source = array.dtype
    if source == dtype:
        return array
    if dtype.kind == "b" or np.can_cast(source, dtype, "safe"):
        return array.astype(dtype, order="C")
    if dtype.kind == "f":
        return _to_float(array, dtype)
    if source.kind == "f":
        return _float_to_integer(array, dtype)
    limits, own = np.iinfo(dtype), np.iinfo(source)
    clipped = np.clip(array, max(limits.min, own.min), min(limits.max, own.max))
    return clipped.astype(dtype, order="C")


def saturated(value: float, dtype: np.dtype[Any]) -> Any:
    """One number as an element of `dtype`, under the rules of `cast`."""
    return cast_array(np.array([value], np.float64), dtype)[0]


def _to_float(array: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(dtype, order="C")
    if dtype.itemsize > 4 or (array.dtype.kind != "f" and dtype.itemsize > 2):
        return result
    too_large = np.isinf(result) & np.isfinite(array)
    if too_large.any():
        result[too_large] = np.copysign(np.finfo(dtype).max, result[too_large])
    return result


def _float_to_integer(array: Array, dtype: np.dtype[Any]) -> Array:
    limits = np.iinfo(dtype)
    values = array.astype(np.float64)
    np.nan_to_num(values, copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)
    # 2**63 - 1 has no float64: the largest value below 2**63 takes part in the clip, the true limit is set after it
    highest = float(limits.max) if dtype.itemsize < 8 else float(np.nextafter(2.0**63, 0))
    is_above = values > highest
    result = np.clip(values, float(limits.min), highest).astype(dtype, order="C")
    result[is_above] = limits.max
    return result


def arithmetic(
    operation: Literal["subtract", "divide"],
    value: Constants,
    dtype: np.dtype[Any],
    *,
    channel_axis: Literal[0, -1] = -1,
    in_place: bool = False,
) -> ArrayStage:
    """A stage that takes `value` (one number, or one per channel) away from arrays of `dtype`, or divides by it."""
    if dtype.kind not in "fiu":
        raise StepError(
            f"{operation} is not defined for elements of type {dtype}", hint="put a cast before it", step=operation
        )
    function: Any = getattr(np, operation)
    constants = _constants(value)
    if dtype.kind == "f":
        if isinstance(constants, float):
            return _by_scalar(function, dtype.type(constants), in_place)
        return _by_channel(function, np.array(constants, dtype), channel_axis, in_place)
    wide = np.dtype(np.float64)
    inner = arithmetic(operation, value, wide, channel_axis=channel_axis, in_place=True)
    return lambda array: cast_array(inner(array.astype(wide)), dtype)


def _constants(value: Constants) -> Constants:
    """One number where all channels have the same: the faster form of the same arithmetic."""
    if isinstance(value, tuple):
        return value if len(set(value)) > 1 else float(value[0])
    return float(value)


def _by_scalar(function: Any, constant: Any, in_place: bool) -> ArrayStage:
    if in_place:
        return lambda array: function(array, constant, out=array)
    return lambda array: function(array, constant)


def _by_channel(function: Any, constants: Array, channel_axis: Literal[0, -1], in_place: bool) -> ArrayStage:
    if channel_axis == 0:
        planes = constants.reshape(-1, 1, 1)

        def run_planes(array: Array) -> Array:
            _check_channels(array, len(constants), 0)
            result: Array = function(array, planes, out=array if in_place else None)
            return result

        return run_planes

    # a row of constants as long as the image is wide: numpy's inner loop then runs over a row, not over one pixel
    rows: dict[int, Array] = {}

    def run_rows(array: Array) -> Array:
        _check_channels(array, len(constants), -1)
        if array.ndim != 3:
            return function(array, constants)  # type: ignore[no-any-return]
        height, width, channels = array.shape
        row = rows.get(width)
        if row is None:
            row = rows[width] = np.tile(constants, width)
        flat = array.reshape(height, width * channels)
        result: Array = function(flat, row, out=flat if in_place else None)
        return result.reshape(height, width, channels)

    return run_rows


def _check_channels(array: Array, count: int, axis: int) -> None:
    if array.ndim == 0 or array.shape[axis] != count or (axis == 0 and array.ndim != 3):
        found = array.shape[axis] if array.ndim else 0
        raise StepError(
            f"{count} constants, one per channel, do not fit data of shape {list(array.shape)}",
            hint=f"the data has {found} channels there",
            constants=count,
            shape=list(array.shape),
        )


def reverse_channels(array: Array) -> Array:
    """Red and blue exchanged in height-width-channel data, as a new contiguous array."""
    result = np.empty(array.shape, array.dtype)
    # three strided copies are several times faster than one copy of a view with a negative stride
    for channel in range(array.shape[2]):
        result[:, :, channel] = array[:, :, array.shape[2] - 1 - channel]
    return result


def gray(array: Array) -> Array:
    """Red, green, blue in height-width-channel order -> one channel by ITU-R 601; bytes exactly as Pillow's "L"."""
    if array.ndim != 3 or array.shape[2] != 3:
        raise StepError(
            f"gray needs three channels, the data has the shape {list(array.shape)}",
            step="color",
            shape=list(array.shape),
        )
    if array.dtype == np.uint8:
        from PIL import Image

        return np.asarray(Image.fromarray(np.ascontiguousarray(array)).convert("L"))[:, :, None]
    dtype = array.dtype if array.dtype.kind == "f" else np.dtype(np.float64)
    red, green, blue = (array[:, :, channel].astype(dtype) for channel in range(3))
    weights = [dtype.type(weight) for weight in _GRAY_WEIGHTS]
    mixed = red * weights[0] + green * weights[1] + blue * weights[2]
    return cast_array(mixed[:, :, None], array.dtype)
