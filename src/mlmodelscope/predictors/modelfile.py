"""Turns the bytes of a model file into what they are: a phrase for an error, or the operators and weights of ONNX.

Neither needs the framework nor the onnx package: the file is walked, not parsed into objects.
"""

import codecs
import mmap
import os
import re
import zipfile
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

__all__ = [
    "DATA_TYPES",
    "Node",
    "describe_file",
    "message_fields",
    "onnx_precision",
    "onnx_with_outputs",
    "read_onnx",
    "read_onnx_nodes",
]

_STARTS = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras weights or model)"),
    (b"\x1f\x8b", "a gzip file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\x00", "an xz file"),
    (b"\x93NUMPY", "a NumPy array file"),
    (b"GGUF", "a GGUF model"),
    (b"\x80\x02", "a Python pickle (an old PyTorch file?)"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file it stands for"),
    (b"<!doctype html", "an HTML page (a failed download?)"),
    (b"<html", "an HTML page (a failed download?)"),
    (b"<?xml", "an XML file (OpenVINO IR?)"),
    (b"<", "an XML file"),
)
_IDENTIFIERS = {b"TFL3": "a TensorFlow Lite model", b"ORTM": "an ORT-format model"}
_JSON = re.compile(rb'\s*[\[{]\s*["\[\]{}0-9-]')
_ONNX = "an ONNX model"
_ONNX_FIELDS = frozenset((2, 3, 4, 5, 6, 7, 8, 14, 20, 25))


def describe_file(path: str) -> str:
    """What the file looks like, as words that follow "is" or "looks like"."""
    if os.path.isdir(path):
        return "a TensorFlow SavedModel" if os.path.exists(os.path.join(path, "saved_model.pb")) else "a folder"
    try:
        with open(path, "rb") as file:
            head = file.read(512)
    except OSError as error:
        return f"unreadable ({error.strerror})"
    if not head:
        return "an empty file"
    if head[4:8] in _IDENTIFIERS:
        return _IDENTIFIERS[head[4:8]]
    if head[257:262] == b"ustar":
        return "a tar archive"
    text = head.lstrip().lower()
    for start, words in _STARTS:
        if head.startswith(start) or text.startswith(start):
            return _describe_zip(path) if words == "a zip archive" else words
    if _JSON.match(head):
        return "a JSON file"
    return _describe_protobuf(head) or ("a text file" if _is_text(head) else "of no known format")


def _describe_zip(path: str) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return "a damaged zip archive"
    if any(name.endswith("data.pkl") for name in names):
        return "a PyTorch file (zip)"
    if "model.weights.h5" in names:
        return "a Keras model (zip)"
    return "a zip archive"


def _describe_protobuf(head: bytes) -> Optional[str]:
    try:
        fields = message_fields(head, 0, len(head), is_whole=False)
        number, first = next(fields)
        # ONNX opens with its format version; a TensorFlow graph with a node, which opens with its name
        if number == 1 and isinstance(first, int) and 0 < first < 100:
            return _ONNX if next(fields)[0] in _ONNX_FIELDS else None
        if number == 1 and isinstance(first, tuple) and head[first[0]] == 0x0A:
            name = next(message_fields(head, first[0], len(head), is_whole=False))[1]
            if isinstance(name, tuple) and _is_text(head[name[0] : min(name[1], len(head))]):
                return "a TensorFlow graph (protobuf)"
    except (ValueError, IndexError, StopIteration):
        pass
    return None


def _is_text(data: bytes) -> bool:
    try:
        # incremental, because the last character may be cut by the limit of what was read
        text = codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return bool(text) and all(character.isprintable() or character in "\t\r\n\f" for character in text)


# field and type numbers below are those of onnx.proto
DATA_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
    17: "float8e4m3fn", 18: "float8e4m3fnuz", 19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4",
}  # fmt: skip
_QUANTISING = frozenset(("QuantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"))
_WEIGHT_ONLY = frozenset(("DequantizeLinear", "MatMulNBits", "GatherBlockQuantized"))
_INTEGERS = ("int8", "uint8", "int4", "uint4", "int16", "uint16")
_FLOATS = ("float32", "float16", "bfloat16", "float64")

Buffer = Union[bytes, mmap.mmap]
Summary = Dict[str, Dict[str, int]]


def read_onnx(path: str) -> Summary:
    """{"operators": {op_type: how many}, "weights": {element type: how many elements}}, subgraphs included.

    Raises ValueError when the file is no complete ONNX model.
    """
    summary: Summary = {"operators": {}, "weights": {}}
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for number, value in message_fields(data, 0, len(data)):
            if number == 7 and isinstance(value, tuple):
                _walk_graph(data, value, summary)
    return summary


class Node(NamedTuple):
    """One node of an ONNX graph; the name may be empty."""

    name: str
    operator: str
    inputs: List[str]
    outputs: List[str]


def read_onnx_nodes(path: str) -> List[Node]:
    """The nodes of the main graph, in the order of the file. Raises ValueError when it is no complete ONNX model."""
    nodes: List[Node] = []
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for number, graph in message_fields(data, 0, len(data)):
            if number == 7 and isinstance(graph, tuple):
                nodes += [_read_node(data, value) for value in _spans(data, graph, 1)]
    return nodes


def onnx_with_outputs(content: bytes, names: Sequence[str]) -> bytes:
    """The model with these values of its main graph as further outputs, behind those it has.

    What is appended is a graph with nothing but outputs: a reader of protobuf joins a message that comes twice.
    """
    outputs = b"".join(_message(12, _message(1, name.encode())) for name in names)
    return content + _message(7, outputs)


def _message(number: int, content: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(content)) + content


def _number(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _spans(data: Buffer, span: Tuple[int, int], wanted: int) -> Iterator[Tuple[int, int]]:
    """Where the messages of one field lie; a number under that field is none."""
    for number, value in message_fields(data, span[0], span[1]):
        if number == wanted and isinstance(value, tuple):
            yield value


def _read_node(data: Buffer, span: Tuple[int, int]) -> Node:
    texts: Dict[int, List[str]] = {1: [], 2: [], 3: [], 4: []}
    for number, value in message_fields(data, span[0], span[1]):
        if number in texts and isinstance(value, tuple):
            texts[number].append(bytes(data[value[0] : value[1]]).decode("utf-8", "replace"))
    return Node("".join(texts[3]), "".join(texts[4]), texts[1], texts[2])


def onnx_precision(summary: Summary) -> str:
    """The precision the weights and operators ask for: "float32", "int8 quantised", "int4 weights", or "unknown"."""
    operators, weights = summary["operators"], summary["weights"]
    integers = {name: weights[name] for name in _INTEGERS if name in weights}
    if any(name in _QUANTISING or name.startswith(("QLinear", "QGemm")) for name in operators):
        return f"{_commonest(integers) or 'int8'} quantised"
    if any(name in _WEIGHT_ONLY for name in operators):
        return f"{_commonest(integers) or 'int8'} weights"
    return _commonest({name: weights[name] for name in _FLOATS if name in weights}) or "unknown"


def _commonest(counts: Dict[str, int]) -> Optional[str]:
    return max(sorted(counts), key=lambda name: counts[name]) if counts else None


def _walk_graph(data: Buffer, span: Tuple[int, int], summary: Summary) -> None:
    for number, value in message_fields(data, span[0], span[1]):
        if number == 1 and isinstance(value, tuple):
            _walk_node(data, value, summary)
        elif number == 5 and isinstance(value, tuple):
            _walk_tensor(data, value, summary)


def _walk_node(data: Buffer, span: Tuple[int, int], summary: Summary) -> None:
    for number, value in message_fields(data, span[0], span[1]):
        if not isinstance(value, tuple):
            continue
        if number == 4:
            name = bytes(data[value[0] : value[1]]).decode("utf-8", "replace")
            summary["operators"][name] = summary["operators"].get(name, 0) + 1
        elif number == 5:
            for inner, part in message_fields(data, value[0], value[1]):
                if inner == 5 and isinstance(part, tuple):
                    _walk_tensor(data, part, summary)
                elif inner in (6, 11) and isinstance(part, tuple):
                    _walk_graph(data, part, summary)


def _walk_tensor(data: Buffer, span: Tuple[int, int], summary: Summary) -> None:
    sizes: List[int] = []
    kind = 0
    for number, value in message_fields(data, span[0], span[1]):
        if number == 1 and isinstance(value, int):
            sizes.append(value)
        elif number == 1:
            place, end = value
            while place < end:
                size, place = _varint(data, place, end)
                sizes.append(size)
        elif number == 2 and isinstance(value, int):
            kind = value
    count = 1
    for size in sizes:
        count *= size
    name = DATA_TYPES.get(kind, "unknown")
    summary["weights"][name] = summary["weights"].get(name, 0) + count


def message_fields(data: Buffer, place: int, end: int, is_whole: bool = True) -> Iterator[Tuple[int, Any]]:
    """Each field of a message: its number, and an int (varint) or the (start, end) of its bytes.

    Bytes that reach beyond `end` are an error, unless only the beginning of the message is at hand.
    """
    while place < end:
        key, place = _varint(data, place, end)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(data, place, end)
            yield number, value
            continue
        if wire == 2:
            size, place = _varint(data, place, end)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"no protobuf: wire type {wire}")
        if is_whole and place + size > end:
            raise ValueError("the file is cut short")
        yield number, (place, place + size)
        place += size


def _varint(data: Buffer, place: int, end: int) -> Tuple[int, int]:
    value = shift = 0
    while place < end and shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
    raise ValueError("no protobuf: a number without end")
