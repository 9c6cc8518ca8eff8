"""A value of a manifest's function <-> arrays that can lie in shared memory, so that it can cross between processes.

Bytes, numbers, texts, arrays, and lists, tuples and dictionaries of them, to any depth. The first array is JSON that
says how the others belong together; a value that is not plain JSON is there as `[kind, ...]`. Python 3.6 syntax, numpy
only.
"""

import json
import math
from typing import Any, Callable, Dict, List, Sequence

__all__ = ["ValueFault", "pack_value", "unpack_value"]


class ValueFault(Exception):  # noqa: N818 - a fact about a value; whoever sends it knows what error that is
    """The value cannot cross; the text says what it holds."""


def pack_value(value: Any) -> List[Any]:
    """The arrays to send. ValueFault: there is something in it that only lives in one process."""
    import numpy as np

    arrays: List[Any] = []
    try:
        # half a character, of a file's name say, survives
        text = json.dumps(_packed(value, arrays)).encode()
    except RecursionError:
        raise ValueFault("lists in lists without end") from None
    except ValueError as error:
        raise ValueFault(f"a number that cannot be written: {error}") from None
    return [np.frombuffer(text, np.uint8)] + arrays


def unpack_value(arrays: Sequence[Any]) -> Any:
    """The value, in memory of its own. ValueFault: the arrays are not of `pack_value`."""
    try:
        return _unpacked(json.loads(arrays[0].tobytes().decode()), arrays[1:])
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueFault(f"arrays that are no value: {error}") from None


def _packed(value: Any, arrays: List[Any]) -> Any:
    import numpy as np

    if value is None or type(value) in (bool, int):
        return value
    if isinstance(value, str):
        return str(value)
    if type(value) is float:
        return value if math.isfinite(value) else ["float", repr(value)]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _kept("bytes", np.frombuffer(value, np.uint8), arrays)
    if isinstance(value, np.generic):
        return _kept("scalar", np.asarray(value), arrays)
    if isinstance(value, np.ndarray):
        return _packed_array(np.asarray(value), arrays)
    if isinstance(value, dict):
        return ["dict", [[_packed(key, arrays), _packed(item, arrays)] for key, item in value.items()]]
    if isinstance(value, (list, tuple)):
        return ["tuple" if isinstance(value, tuple) else "list", [_packed(item, arrays) for item in value]]
    # a number of a class of its own, such as an enumeration
    for kind in (int, float):
        if isinstance(value, kind):
            return _packed(kind(value), arrays)
    raise ValueFault(f"a value of type {type(value).__name__}")


def _packed_array(value: Any, arrays: List[Any]) -> Any:
    if value.dtype.kind == "O":
        return ["objects", list(value.shape), [_packed(item, arrays) for item in value.ravel().tolist()]]
    if value.dtype.kind == "V":
        raise ValueFault(f"an array of {value.dtype}")
    return _kept("array", value, arrays)


def _kept(kind: str, value: Any, arrays: List[Any]) -> List[Any]:
    if value.dtype.kind == "V":
        raise ValueFault(f"a number of type {value.dtype}")
    arrays.append(value)
    return [kind, len(arrays) - 1]


def _unpacked(tree: Any, arrays: Sequence[Any]) -> Any:
    if not isinstance(tree, list):
        return tree
    return _KINDS[tree[0]](tree, arrays)


def _all(trees: Sequence[Any], arrays: Sequence[Any]) -> List[Any]:
    return [_unpacked(tree, arrays) for tree in trees]


def _objects(tree: Any, arrays: Sequence[Any]) -> Any:
    import numpy as np

    items = _all(tree[2], arrays)
    made = np.empty(len(items), object)
    # one by one: a list of lists would be taken for a table
    for place, item in enumerate(items):
        made[place] = item
    return made.reshape(tree[1])


_KINDS: Dict[str, Callable[[Any, Sequence[Any]], Any]] = {
    "array": lambda tree, arrays: arrays[tree[1]].copy(),
    "bytes": lambda tree, arrays: arrays[tree[1]].tobytes(),
    "dict": lambda tree, arrays: {_unpacked(key, arrays): _unpacked(item, arrays) for key, item in tree[1]},
    "float": lambda tree, arrays: float(tree[1]),
    "list": lambda tree, arrays: _all(tree[1], arrays),
    "objects": _objects,
    "scalar": lambda tree, arrays: arrays[tree[1]][()],
    "tuple": lambda tree, arrays: tuple(_all(tree[1], arrays)),
}
