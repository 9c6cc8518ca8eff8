"""Turns a model file (ONNX, TensorFlow Lite) into its inputs and outputs, without the framework.

The file is walked where it lies; nothing that it says is trusted. Whatever is wrong with it is a ValueError.
"""

import mmap
import os
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple, Union

from mlmodelscope.predictors.modelfile import DATA_TYPES, Node, describe_file, message_fields, read_onnx_nodes

__all__ = ["Layer", "Layers", "read_layers"]

Shape = Optional[List[Optional[int]]]
Buffer = Union[bytes, mmap.mmap]

# what only moves or retypes numbers: the operator before it made them
_MOVING = frozenset(
    ("Reshape", "Squeeze", "Flatten", "Identity", "Cast", "Transpose", "QuantizeLinear", "DequantizeLinear")
)
_MOST_LAYERS = 1000


class Layer(NamedTuple):
    """One input or output. `shape` has None where any size is accepted, and is None where nothing is known.

    `scale` and `zero_point` say what a quantised number means: (number - zero_point) * scale. `producer` is the
    operator that computed the numbers, looking through reshapes and casts, and `place` which of its outputs this is.
    """

    name: str
    shape: Shape
    element_type: str
    scale: Optional[float] = None
    zero_point: int = 0
    producer: str = ""
    place: int = 0


class Layers(NamedTuple):
    """`format` is "onnx" or "tflite"."""

    format: str
    inputs: List[Layer]
    outputs: List[Layer]


def read_layers(path: str) -> Layers:
    """ValueError says what the file is instead, or that it is cut short or damaged."""
    looks = describe_file(path)
    if looks not in ("an ONNX model", "a TensorFlow Lite model"):
        raise ValueError(f"it is {looks}")
    if not os.path.getsize(path):
        raise ValueError("it is an empty file")
    layers = _read_onnx(path) if looks == "an ONNX model" else _read_tflite(path)
    if not layers.inputs or not layers.outputs:
        raise ValueError(f"it is {looks}, but without inputs or outputs: cut short or damaged")
    if max(len(layers.inputs), len(layers.outputs)) > _MOST_LAYERS:
        raise ValueError(f"it is {looks} with more than {_MOST_LAYERS} inputs or outputs")
    return layers


# field numbers are those of onnx.proto
def _read_onnx(path: str) -> Layers:
    inputs: List[Layer] = []
    outputs: List[Layer] = []
    constants: Set[str] = set()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for span in _parts(data, (0, len(data)), 7):
            inputs += [_onnx_layer(data, part) for part in _parts(data, span, 11)]
            outputs += [_onnx_layer(data, part) for part in _parts(data, span, 12)]
            for tensor in _parts(data, span, 5):
                constants.update(_text(data, name) for name in _parts(data, tensor, 8))
    makers = {name: (node, place) for node in read_onnx_nodes(path) for place, name in enumerate(node.outputs)}
    return Layers(
        "onnx",
        # before version 4 of the format the weights were listed among the inputs
        [layer for layer in inputs if layer.name not in constants],
        [_with_onnx_producer(layer, makers) for layer in outputs],
    )


def _parts(data: Buffer, span: Tuple[int, int], wanted: int) -> List[Tuple[int, int]]:
    return [
        value
        for number, value in message_fields(data, span[0], span[1])
        if number == wanted and isinstance(value, tuple)
    ]


def _text(data: Buffer, span: Tuple[int, int]) -> str:
    return bytes(data[span[0] : span[1]]).decode("utf-8", "replace")


def _onnx_layer(data: Buffer, span: Tuple[int, int]) -> Layer:
    name = "".join(_text(data, part) for part in _parts(data, span, 1))
    kind, shape = "unknown", None  # type: Tuple[str, Shape]
    for outer in _parts(data, span, 2):
        for tensor in _parts(data, outer, 1):
            for number, value in message_fields(data, tensor[0], tensor[1]):
                if number == 1 and isinstance(value, int):
                    kind = DATA_TYPES.get(value, "unknown")
                elif number == 2 and isinstance(value, tuple):
                    shape = [_onnx_size(data, size) for size in _parts(data, value, 1)]
    return Layer(name, shape, kind)


def _onnx_size(data: Buffer, span: Tuple[int, int]) -> Optional[int]:
    for number, value in message_fields(data, span[0], span[1]):
        if number == 1 and isinstance(value, int) and 0 < value < 2**31:
            return value
    return None


def _with_onnx_producer(layer: Layer, makers: Dict[str, Tuple[Node, int]]) -> Layer:
    name = layer.name
    # a damaged graph may run in a circle
    for _ in range(len(makers) + 1):
        if name not in makers:
            return layer
        node, place = makers[name]
        if node.operator not in _MOVING or not node.inputs:
            return layer._replace(producer=node.operator, place=place)
        name = node.inputs[0]
    return layer


# numbers of fields, types and operators below are those of TensorFlow Lite's schema.fbs
_TFLITE_TYPES = {
    0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 5: "string", 6: "bool", 7: "int16", 8: "complex64",
    9: "int8", 10: "float64", 11: "complex128", 12: "uint64", 13: "resource", 14: "variant", 15: "uint32",
    16: "uint16", 17: "int4",
}  # fmt: skip
_TFLITE_OPERATORS = {
    0: "Add", 1: "AveragePool2D", 3: "Conv2D", 6: "DequantizeLinear", 9: "FullyConnected", 14: "Sigmoid",
    22: "Reshape", 25: "Softmax", 39: "Transpose", 43: "Squeeze", 53: "Cast", 114: "QuantizeLinear",
}  # fmt: skip
_CUSTOM = 32


def _read_tflite(path: str) -> Layers:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        root = _Table(data, _number(data, 0, "<I"))
        graphs = root.tables(2)
        if not graphs:
            raise ValueError("it is a TensorFlow Lite model without a graph")
        codes = [_operator_name(code) for code in root.tables(1)]
        tensors = graphs[0].tables(0)
        inputs = [_tflite_layer(_at(tensors, index)) for index in graphs[0].numbers(1)]
        makers = _tflite_makers(graphs[0], codes)
        outputs = []
        for index in graphs[0].numbers(2):
            operator, place = _tflite_producer(index, makers)
            outputs.append(_tflite_layer(_at(tensors, index))._replace(producer=operator, place=place))
    return Layers("tflite", inputs, outputs)


def _at(values: List[Any], index: int) -> Any:
    if not 0 <= index < len(values):
        raise ValueError("it is a damaged TensorFlow Lite model")
    return values[index]


def _operator_name(code: "_Table") -> str:
    # the first field is a byte of older files, the last one holds what does not fit into it
    number = max(code.scalar(0, "<b", 0), code.scalar(3, "<i", 0))
    return code.text(1) if number == _CUSTOM else _TFLITE_OPERATORS.get(number, f"operator {number}")


def _tflite_makers(graph: "_Table", codes: List[str]) -> Dict[int, Tuple[str, int, List[int]]]:
    """By tensor: the operator that computes it, which of its outputs it is, and the operator's inputs."""
    makers = {}
    for operator in graph.tables(3):
        name, inputs = _at(codes, operator.scalar(0, "<I", 0)), operator.numbers(1)
        for place, tensor in enumerate(operator.numbers(2)):
            makers[tensor] = (name, place, inputs)
    return makers


def _tflite_producer(tensor: int, makers: Dict[int, Tuple[str, int, List[int]]]) -> Tuple[str, int]:
    for _ in range(len(makers) + 1):
        if tensor not in makers:
            break
        name, place, inputs = makers[tensor]
        if name not in _MOVING or not inputs:
            return name, place
        tensor = inputs[0]
    return "", 0


def _tflite_layer(tensor: "_Table") -> Layer:
    sizes = tensor.numbers(7) or tensor.numbers(0)
    quantization = tensor.table(4)
    scales = quantization.numbers(2, "<f") if quantization is not None else []
    zeros = quantization.numbers(3, "<q") if quantization is not None else []
    return Layer(
        tensor.text(3),
        [size if size > 0 else None for size in sizes],
        _TFLITE_TYPES.get(tensor.scalar(1, "<b", 0), "unknown"),
        # a scale of 0 means that there is none
        (scales[0] or None) if len(scales) == 1 else None,
        zeros[0] if len(zeros) == 1 else 0,
    )


def _number(data: Buffer, place: int, form: str) -> Any:
    if not 0 <= place <= len(data) - struct.calcsize(form):
        raise ValueError("it is a TensorFlow Lite model that is cut short or damaged")
    return struct.unpack_from(form, data, place)[0]


class _Table:
    """A table of a flatbuffer: fields by number, each of them optional."""

    def __init__(self, data: Buffer, place: int) -> None:
        self._data = data
        self._place = place
        self._index = place - _number(data, place, "<i")
        self._size = _number(data, self._index, "<H")

    def _field(self, number: int) -> Optional[int]:
        entry = 4 + 2 * number
        if entry + 2 > self._size:
            return None
        offset = _number(self._data, self._index + entry, "<H")
        return self._place + offset if offset else None

    def scalar(self, number: int, form: str, default: int) -> int:
        place = self._field(number)
        return default if place is None else int(_number(self._data, place, form))

    def _vector(self, number: int, width: int) -> Tuple[int, int]:
        """Where the elements start, and how many there are."""
        place = self._field(number)
        if place is None:
            return 0, 0
        start = place + int(_number(self._data, place, "<I"))
        count = int(_number(self._data, start, "<I"))
        if start + 4 + count * width > len(self._data):
            raise ValueError("it is a TensorFlow Lite model that is cut short or damaged")
        return start + 4, count

    def numbers(self, number: int, form: str = "<i") -> List[Any]:
        width = struct.calcsize(form)
        start, count = self._vector(number, width)
        return [_number(self._data, start + width * index, form) for index in range(count)]

    def text(self, number: int) -> str:
        start, count = self._vector(number, 1)
        return bytes(self._data[start : start + count]).decode("utf-8", "replace")

    def table(self, number: int) -> "Optional[_Table]":
        place = self._field(number)
        return None if place is None else _Table(self._data, place + int(_number(self._data, place, "<I")))

    def tables(self, number: int) -> "List[_Table]":
        start, count = self._vector(number, 4)
        places = [start + 4 * index for index in range(count)]
        return [_Table(self._data, place + int(_number(self._data, place, "<I"))) for place in places]
