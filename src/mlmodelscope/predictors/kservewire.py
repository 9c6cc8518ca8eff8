"""Turns arrays into the inputs of an Open Inference Protocol request, and the outputs of its answer into arrays.

By REST, tensors are lists of numbers in the JSON text, or, where the server has the binary tensor extension, bytes
behind it. By gRPC they are lists or bytes too; only what holds them differs.
"""

# ruff: noqa: B905 - zip(strict=) is younger than Python 3.6

import json
import struct
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

__all__ = [
    "DATATYPES",
    "Garbage",
    "datatype_of",
    "decode_answer",
    "decode_outputs",
    "element_type_of",
    "encode_request",
    "plain_values",
    "raw_bytes",
    "whole_numbers",
]

DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "string": "BYTES",
}
_ELEMENT_TYPES = {datatype: name for name, datatype in DATATYPES.items()}


class Garbage(ValueError):  # noqa: N818 - what the answer is; the caller makes a fault of it
    """An answer that is not what the protocol says."""


def whole_numbers(values: Any) -> List[int]:
    """A list of sizes. Raises Garbage, also for what Python would take for one: 1.5, true, "3"."""
    if not isinstance(values, list):
        raise Garbage(f"a shape is a list of sizes, not {type(values).__name__}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
            raise Garbage(f"a size is a whole number, not {str(value)[:40]!r}")
    return [int(value) for value in values]


def element_type_of(datatype: Any) -> str:
    """numpy's name of a datatype; one that has none (BF16) keeps its own."""
    return _ELEMENT_TYPES.get(str(datatype), str(datatype))


def datatype_of(array: Any) -> Optional[str]:
    """None for elements that the protocol has no word for."""
    if array.dtype.kind in "OUS":
        return "BYTES"
    return DATATYPES.get(array.dtype.name) if array.dtype.isnative else None


def encode_request(
    names: Sequence[str], arrays: Sequence[Any], outputs: Sequence[str], is_binary: bool
) -> Tuple[List[bytes], Optional[int]]:
    """The parts of the body, and the length of the JSON text where bytes follow it."""
    inputs: List[Dict[str, Any]] = []
    tail: List[bytes] = []
    for name, array in zip(names, arrays):
        described: Dict[str, Any] = {"name": name, "shape": list(array.shape), "datatype": datatype_of(array)}
        if is_binary:
            content = raw_bytes(array)
            described["parameters"] = {"binary_data_size": len(content)}
            tail.append(content)
        else:
            described["data"] = plain_values(array)
        inputs.append(described)
    wanted: List[Dict[str, Any]] = [{"name": name} for name in outputs]
    if is_binary:
        wanted = [dict(one, parameters={"binary_data": True}) for one in wanted]
    # the id is optional, but some servers fail without one
    text = json.dumps({"id": "1", "inputs": inputs, "outputs": wanted}).encode()
    return [text] + tail, len(text) if is_binary else None


def plain_values(array: Any) -> List[Any]:
    if array.dtype.kind in "OUS":
        # JSON would carry half a character, and no server could make anything of it
        return [(value if isinstance(value, bytes) else str(value).encode()).decode() for value in array.ravel()]
    return array.ravel().tolist()  # type: ignore[no-any-return]


def raw_bytes(array: Any) -> bytes:
    if array.dtype.kind not in "OUS":
        return array.tobytes()  # type: ignore[no-any-return]
    parts: List[bytes] = []
    for value in array.ravel():
        text = value if isinstance(value, bytes) else str(value).encode()
        parts += (struct.pack("<I", len(text)), text)
    return b"".join(parts)


def decode_answer(body: bytes, json_size: Optional[int], facts: Sequence[Dict[str, Any]]) -> List[Any]:
    """Arrays in the order of `facts`, of the types that they announce. Raises Garbage."""
    size = len(body) if json_size is None else json_size
    if not 0 <= size <= len(body):
        raise Garbage(f"the answer has {len(body)} bytes, but its header says {size}")
    return decode_outputs(_outputs(body, size), facts)


def decode_outputs(outputs: Iterable[Tuple[Dict[str, Any], Any]], facts: Sequence[Dict[str, Any]]) -> List[Any]:
    """The same from what was told of each output, and its bytes (None: its elements are `data`). Raises Garbage."""
    try:
        found = {output["name"]: _array(output, content) for output, content in outputs}
    except Garbage:
        raise
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise Garbage(f"{type(error).__name__}: {error}") from error
    return [_checked(found, fact) for fact in facts]


def _outputs(body: bytes, position: int) -> Iterator[Tuple[Dict[str, Any], Optional[bytes]]]:
    for output in json.loads(body[:position].decode())["outputs"]:
        length = (output.get("parameters") or {}).get("binary_data_size")
        if length is None:
            yield output, None
            continue
        yield output, body[position : position + length]
        position += length


def _array(output: Dict[str, Any], content: Optional[bytes]) -> Any:
    import numpy as np

    name, shape = element_type_of(output["datatype"]), whole_numbers(output["shape"])
    if name not in DATATYPES or any(size < 0 for size in shape):
        raise Garbage(f"output {output['name']!r} has datatype {output['datatype']!r} and shape {shape}")
    if name == "string":
        values = _texts(output["data"] if content is None else _unpack(content))
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array.reshape(shape)
    if content is not None:
        return np.frombuffer(content, name).reshape(shape).copy()
    told = np.array(output["data"])
    array = np.array(output["data"], dtype=name)
    # numpy makes 1 of 1.7 and of "1" without a word
    if told.dtype.kind in "SU" or (array.dtype.kind in "biu" and not np.array_equal(array, told)):
        raise Garbage(f"output {output['name']!r} is {name}, but holds other elements")
    return array.reshape(shape)


def _texts(values: Any) -> List[str]:
    if not isinstance(values, list) or not all(isinstance(value, (bytes, str)) for value in values):
        raise Garbage("an output is of texts, but holds something else")
    return [value.decode() if isinstance(value, bytes) else value for value in values]


def _unpack(content: bytes) -> List[bytes]:
    found: List[bytes] = []
    position = 0
    while position < len(content):
        end = position + 4 + struct.unpack("<I", content[position : position + 4].ljust(4, b"\xff"))[0]
        if end > len(content):
            raise Garbage("a string is cut short")
        found.append(content[position + 4 : end])
        position = end
    return found


def _checked(found: Dict[str, Any], fact: Dict[str, Any]) -> Any:
    array = found.get(fact["name"])
    if array is None:
        raise Garbage(f"output {fact['name']!r} is missing; there are: {', '.join(map(str, found)) or 'none'}")
    got = "string" if array.dtype.kind == "O" else array.dtype.name
    if fact["element_type"] in DATATYPES and got != fact["element_type"]:
        raise Garbage(f"output {fact['name']!r} is {got}, announced was {fact['element_type']}")
    return array
