"""A network -> the bytes of an ONNX model (opset 13), in any environment: needs neither the onnx package nor protobuf.

An exporter cannot rely on the onnx package, because the environments of the engines that read ONNX do not hold it.
"""

from typing import Any, Dict, List, Optional, Tuple

__all__ = ["onnx_model"]

# field and type numbers are those of onnx.proto
_FLOAT = 1
_ATTRIBUTE_INT, _ATTRIBUTE_INTS = 2, 7
_IR_VERSION, _OPSET = 8, 13


def onnx_model(network: Dict[str, Any], weights: Dict[str, Any], batch: Optional[int]) -> bytes:
    """The batch dimension is named N, or fixed where `batch` says so."""
    shapes = {given["name"]: list(given["shape"]) for given in network["inputs"]}
    nodes = b""
    for layer in network["layers"]:
        encoded, shapes[layer["name"]] = _nodes_of(layer, shapes, weights)
        nodes += encoded
    graph = nodes + _bytes(2, b"network")
    graph += b"".join(_bytes(5, _tensor(name, array)) for name, array in sorted(weights.items()))
    graph += b"".join(_bytes(11, _value(given["name"], shapes, batch)) for given in network["inputs"])
    graph += b"".join(_bytes(12, _value(name, shapes, batch)) for name in network["outputs"])
    opset = _bytes(1, b"") + _number(2, _OPSET)
    return _number(1, _IR_VERSION) + _bytes(2, b"mlmodelscope") + _bytes(7, graph) + _bytes(8, opset)


def _nodes_of(layer: Dict[str, Any], shapes: Dict[str, List[int]], weights: Dict[str, Any]) -> Tuple[bytes, List[int]]:
    op, name = layer["op"], layer["name"]
    inputs = layer["inputs"] if op == "add" else [layer["input"]]
    before = shapes[inputs[0]]
    if op == "conv":
        kernel = list(weights[layer["weight"]].shape)
        facts = {
            "kernel_shape": kernel[2:],
            "pads": [layer["pad"]] * 4,
            "strides": [layer["stride"]] * 2,
        }
        sizes = [(size + 2 * layer["pad"] - k) // layer["stride"] + 1 for size, k in zip(before[1:], kernel[2:])]
        return _node("Conv", inputs + [layer["weight"], layer["bias"]], name, **facts), [kernel[0]] + sizes
    if op == "dense":
        node = _node("Gemm", inputs + [layer["weight"], layer["bias"]], name, transB=1)
        return node, [weights[layer["weight"]].shape[0]]
    if op == "mean":
        pooled = _node("GlobalAveragePool", inputs, name + "/pooled")
        return pooled + _node("Flatten", [name + "/pooled"], name, axis=1), before[:1]
    if op == "softmax":
        return _node("Softmax", inputs, name, axis=-1), before
    return _node({"relu": "Relu", "add": "Add"}[op], inputs, name), before


def _node(operator: str, inputs: List[str], output: str, **attributes: Any) -> bytes:
    fields = b"".join(_bytes(1, name.encode()) for name in inputs) + _bytes(2, output.encode())
    fields += _bytes(3, output.encode()) + _bytes(4, operator.encode())
    return _bytes(1, fields + b"".join(_bytes(5, _attribute(*pair)) for pair in sorted(attributes.items())))


def _attribute(name: str, value: Any) -> bytes:
    if isinstance(value, list):
        return _bytes(1, name.encode()) + b"".join(_number(8, item) for item in value) + _number(20, _ATTRIBUTE_INTS)
    return _bytes(1, name.encode()) + _number(3, value) + _number(20, _ATTRIBUTE_INT)


def _tensor(name: str, array: Any) -> bytes:
    sizes = b"".join(_number(1, size) for size in array.shape)
    return sizes + _number(2, _FLOAT) + _bytes(8, name.encode()) + _bytes(9, array.astype("<f4").tobytes())


def _value(name: str, shapes: Dict[str, List[int]], batch: Optional[int]) -> bytes:
    first = _bytes(1, _bytes(2, b"N") if batch is None else _number(1, batch))
    shape = first + b"".join(_bytes(1, _number(1, size)) for size in shapes[name])
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, _number(1, _FLOAT) + _bytes(2, shape)))


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])
