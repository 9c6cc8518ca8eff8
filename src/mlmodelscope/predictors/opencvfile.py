"""Turns a model file of any kind that OpenCV reads into a network and what its inputs and outputs are.

OpenCV's networks do not know the shapes they were made for: what can be had comes from the files.
"""

import os
import re
import struct
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from mlmodelscope.predictors.layers import read_layers
from mlmodelscope.predictors.modelfile import describe_file, message_fields
from mlmodelscope.predictors.port import PredictorFault

__all__ = ["ModelFiles", "describe_inputs", "identify", "read_net", "reason", "unreadable"]

Fact = Dict[str, Any]

_READERS = {
    "caffe": "readNetFromCaffe",
    "darknet": "readNetFromDarknet",
    "onnx": "readNetFromONNX",
    "tensorflow": "readNetFromTensorflow",
    "tflite": "readNetFromTFLite",
}
_WORDS = {
    "caffe": "a Caffe model",
    "darknet": "a Darknet model",
    "onnx": "an ONNX model",
    "tensorflow": "a TensorFlow graph",
    "tflite": "a TensorFlow Lite model",
}
_BY_CONTENT = {
    "an ONNX model": "onnx",
    "a TensorFlow Lite model": "tflite",
    "a TensorFlow graph (protobuf)": "tensorflow",
}
_TEXTS = {".prototxt": "caffe", ".cfg": "darknet"}
_DARKNET_WEIGHTS = frozenset(("BatchNorm", "Convolution", "InnerProduct"))
_FILES = "a .prototxt with its .caffemodel, a .cfg with its .weights, or an .onnx, .tflite or .pb file"


class ModelFiles(NamedTuple):
    """`kind` is caffe, darknet, onnx, tensorflow or tflite."""

    kind: str
    graph: str
    weights: Optional[str]


def identify(path: str, weights: Optional[str]) -> ModelFiles:
    """What the files are: text by its ending, everything else by its content."""
    looks = describe_file(path)
    ending = os.path.splitext(path)[1].lower()
    kind = _TEXTS.get(ending) if looks == "a text file" else _BY_CONTENT.get(looks)
    if kind is None:
        raise PredictorFault(
            "model_format",
            f"{path} is no model that opencv reads: it is {looks}",
            hint=f"give opencv {_FILES}",
            path=path,
            expected=_FILES,
            got=looks,
        )
    if ending in _TEXTS and (weights is None or not os.path.isfile(weights)):
        raise PredictorFault(
            "model_format",
            f"the weights of {path} are missing" + (f": there is no {weights}" if weights else ""),
            hint="give the .caffemodel or .weights file as weights_path",
            path=path,
            expected=weights or "weights_path",
        )
    return ModelFiles(kind, path, weights)


def read_net(cv2: Any, files: ModelFiles) -> Any:
    reader = getattr(cv2.dnn, _READERS[files.kind], None)
    if reader is None or (files.kind in ("caffe", "darknet") and int(cv2.__version__.split(".")[0]) >= 5):
        raise PredictorFault(
            "environment_missing",
            f"OpenCV {cv2.__version__} does not read {_WORDS[files.kind]}",
            hint="OpenCV 4 does: --framework 'opencv@<5'",
            framework="opencv",
            expected="<5",
            got=cv2.__version__,
        )
    try:
        net = reader(files.graph) if files.weights is None else reader(files.graph, files.weights)
    except cv2.error as error:
        raise unreadable(files, reason(error)) from error
    if net.empty():
        raise unreadable(files, "there is no layer in it")
    if files.kind == "darknet":
        _check_darknet_weights(net, files)
    return net


def _check_darknet_weights(net: Any, files: ModelFiles) -> None:
    """OpenCV takes whatever lies in memory for the weights that a file which is cut short does not hold."""
    assert files.weights is not None
    layers = [net.getLayer(name) for name in net.getLayerNames()]
    needed = sum(int(blob.size) for layer in layers if layer.type in _DARKNET_WEIGHTS for blob in layer.blobs)
    with open(files.weights, "rb") as file:
        begin = file.read(8)
    if len(begin) < 8:
        raise unreadable(files, f"{files.weights} is shorter than a header")
    major, minor = struct.unpack("<ii", begin)
    # from 0.2 on the header's last number has eight bytes
    header = 20 if major * 10 + minor >= 2 else 16
    held = (os.path.getsize(files.weights) - header) // 4
    if held < needed:
        raise unreadable(files, f"{files.weights} holds {held} numbers, and {needed} are needed")


def unreadable(files: ModelFiles, why: str) -> PredictorFault:
    return PredictorFault(
        "model_format",
        f"opencv cannot read {files.graph}: {why}",
        hint=f"the file looks like {_WORDS[files.kind]}, but is cut short, damaged or uses what opencv does not know",
        path=files.graph,
        weights_path=files.weights,
        error=why,
    )


def reason(error: Any) -> str:
    """What OpenCV says went wrong, without the place in its source."""
    lines = [line.strip(" >") for line in str(getattr(error, "err", "") or error).splitlines()]
    return next((line for line in lines if line), type(error).__name__)


def describe_inputs(files: ModelFiles) -> Tuple[List[Fact], List[Fact]]:
    """Facts of the inputs, and of the outputs where the file tells them."""
    if files.kind in ("onnx", "tflite"):
        try:
            layers = read_layers(files.graph)
        except ValueError as error:
            raise unreadable(files, str(error)) from error
        # OpenCV lays TensorFlow Lite's images out as NCHW
        is_moved = files.kind == "tflite"
        inputs = [_fact(layer.name, _moved(layer.shape, is_moved), layer.element_type) for layer in layers.inputs]
        outputs = [_fact(layer.name, _moved(layer.shape, is_moved), layer.element_type) for layer in layers.outputs]
        return inputs, outputs
    if files.kind == "tensorflow":
        return [_fact(name, None, "float32") for name in _placeholders(files.graph)], []
    with open(files.graph, encoding="utf-8", errors="replace") as file:
        text = re.sub(r"#[^\n]*", "", file.read())
    found = _caffe_inputs(text) if files.kind == "caffe" else _darknet_input(text)
    if not found:
        raise unreadable(files, "it has no input")
    return found, []


def _fact(name: str, shape: Any, kind: str) -> Fact:
    return {"name": name, "shape": shape, "element_type": kind}


def _moved(shape: Any, is_moved: bool) -> Any:
    return [shape[0], shape[3], shape[1], shape[2]] if is_moved and shape is not None and len(shape) == 4 else shape


def _placeholders(path: str) -> List[str]:
    """Names of the nodes of a TensorFlow graph that are fed from outside; the numbers are those of graph.proto."""
    names = []
    with open(path, "rb") as file:
        data = file.read()
    try:
        nodes = [value for number, value in message_fields(data, 0, len(data)) if number == 1]
        for start, end in nodes:
            texts = {
                number: bytes(data[value[0] : value[1]]).decode("utf-8", "replace")
                for number, value in message_fields(data, start, end)
                if number in (1, 2)
            }
            if texts.get(2) == "Placeholder":
                names.append(texts.get(1, ""))
    except (TypeError, ValueError) as error:
        raise unreadable(ModelFiles("tensorflow", path, None), str(error)) from error
    return names


def _caffe_inputs(text: str) -> List[Fact]:
    """Inputs declared at the top (`input:` with `input_dim:` or `input_shape`), or by layers of type Input.

    The first dimension is only a suggestion: OpenCV takes any batch size.
    """
    names = re.findall(r'^\s*input\s*:\s*["\']([^"\']+)', text, re.MULTILINE)
    shapes = [_sizes(part, "dim") for part in re.findall(r"^\s*input_shape\s*:?\s*\{([^}]*)\}", text, re.MULTILINE)]
    flat = _sizes(text, "input_dim")
    shapes += [flat[place : place + 4] for place in range(0, len(flat), 4)]
    for block in re.split(r"^\s*layers?\s*:?\s*\{", text, flags=re.MULTILINE)[1:]:
        if re.search(r'\btype\s*:\s*["\']Input["\']', block):
            names += re.findall(r'\btop\s*:\s*["\']([^"\']+)', block)
            shapes += [_sizes(part, "dim") for part in re.findall(r"\bshape\s*:?\s*\{([^}]*)\}", block)]
    return [
        _fact(name, [None] + shapes[place][1:] if place < len(shapes) and shapes[place] else None, "float32")
        for place, name in enumerate(names)
    ]


def _sizes(text: str, key: str) -> List[int]:
    return [int(size) for size in re.findall(rf"\b{key}\s*:\s*(\d+)", text)]


def _darknet_input(text: str) -> List[Fact]:
    head = re.match(r"\s*\[net(?:work)?\]([^\[]*)", text)
    if head is None:
        return []
    values = dict(re.findall(r"(\w+)\s*=\s*(\d+)", head.group(1)))
    shape = [None] + [int(values[key]) if key in values else None for key in ("channels", "height", "width")]
    return [_fact("data", shape, "float32")]
