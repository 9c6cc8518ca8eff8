"""Turns arrays into Tensor messages and back, refusing what does not add up."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["GarbledTensor", "element_type", "pack_strings", "read_array", "unpack_strings", "write_bytes"]

_MOST_DIMENSIONS = 32
# the kinds of numpy that have a fixed size and no Python objects in them
_KINDS = "biufc"


class GarbledTensor(ValueError):  # noqa: N818 - what the tensor is; the caller makes a fault of it
    """A tensor that does not say what it is, or is not what it says."""


def element_type(array: NDArray[Any]) -> str:
    """The name of the elements on the wire. GarbledTensor for what has none: another byte order, structures, dates."""
    if array.dtype.kind in "OUS":
        return "string"
    if not array.dtype.isnative or array.dtype.kind not in _KINDS + "V" or array.dtype.names:
        raise GarbledTensor(f"elements of type {array.dtype} cannot be sent")
    # bfloat16 and its like come from a package that extends numpy, and are raw bytes to numpy itself
    return array.dtype.name


def write_bytes(array: NDArray[Any]) -> bytes:
    """The elements as they are sent inside a message."""
    return pack_strings(array) if array.dtype.kind in "OUS" else array.tobytes()


def read_array(name: str, shape: Sequence[int], content: Any, offset: int = 0, size: int | None = None) -> Any:
    """The array in `size` bytes of a buffer from `offset` on: a view of it, but for strings, which are new objects."""
    length = len(content) - offset if size is None else size
    if len(shape) > _MOST_DIMENSIONS or any(one < 0 for one in shape):
        raise GarbledTensor(f"a tensor cannot have the shape {list(shape)}")
    count = math.prod(shape)
    if name == "string":
        return unpack_strings(bytes(memoryview(content)[offset : offset + length]), shape)
    dtype = _dtype(name)
    if count * dtype.itemsize != length:
        raise GarbledTensor(f"a tensor {name}{list(shape)} takes {count * dtype.itemsize} bytes, {length} were sent")
    return np.frombuffer(content, dtype, count, offset).reshape(shape) if count else np.empty(shape, dtype)


def _dtype(name: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(name)
    except (SyntaxError, TypeError, ValueError):  # numpy reads a small language of its own here
        raise GarbledTensor(f"there is no element type {name!r}") from None
    if dtype.kind not in _KINDS + "V" or dtype.name != name:
        raise GarbledTensor(f"there is no element type {name!r}")
    return dtype


def pack_strings(array: NDArray[Any]) -> bytes:
    parts: list[bytes] = []
    for value in array.ravel():
        try:
            text = value if isinstance(value, bytes) else str(value).encode()
        except UnicodeEncodeError:
            raise GarbledTensor(f"{value!r} is no text that can be sent") from None
        parts += (struct.pack("<I", len(text)), text)
    return b"".join(parts)


def unpack_strings(content: bytes, shape: Sequence[int]) -> NDArray[Any]:
    found: list[str] = []
    position = 0
    while position < len(content):
        if position + 4 > len(content):
            raise GarbledTensor("a string is cut short")
        (size,) = struct.unpack_from("<I", content, position)
        position += 4 + size
        if position > len(content):
            raise GarbledTensor("a string is cut short")
        try:
            found.append(content[position - size : position].decode())
        except UnicodeDecodeError:
            raise GarbledTensor("a string is not UTF-8") from None
    if len(found) != math.prod(shape):
        raise GarbledTensor(f"a tensor string{list(shape)} takes {math.prod(shape)} strings, {len(found)} were sent")
    array = np.empty(len(found), dtype=object)
    array[:] = found
    return array.reshape(tuple(shape))
