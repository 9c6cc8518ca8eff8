"""Turns an ncnn .param file into its layers, checked well enough that the library can be given it.

ncnn itself trusts the file: blobs that nobody makes, or counts that are wrong, end the process.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional

__all__ = ["ParamLayer", "input_shape", "param_precision", "read_param"]

_MAGIC = "7767517"
_UNSET = (0, -233)
# layers whose parameter 8 says that their weights are 8-bit integers
_QUANTISED = frozenset(("Convolution", "ConvolutionDepthWise", "Deconvolution", "InnerProduct", "Gemm", "LSTM", "GRU"))


class ParamLayer(NamedTuple):
    operator: str
    name: str
    bottoms: List[str]
    tops: List[str]
    parameters: Dict[int, str]


def read_param(path: str, is_known: Callable[[str], bool]) -> List[ParamLayer]:
    """The layers in the file's order; a ValueError says what is wrong. `is_known` tells whether an operator exists."""
    with open(path, encoding="utf-8") as file:
        lines = [line.split() for line in file if line.strip()]
    if not lines or lines[0] != [_MAGIC]:
        raise ValueError("it does not begin with ncnn's number " + _MAGIC)
    if len(lines) < 2 or len(lines[1]) != 2:
        raise ValueError("its second line does not hold two counts")
    layers = [_layer(fields) for fields in lines[2:]]
    made = [blob for layer in layers for blob in layer.tops]
    counts = (str(len(layers)), str(len(made)))
    if tuple(lines[1]) != counts:
        raise ValueError("it announces {} layers and {} blobs, but holds {} and {}".format(*lines[1], *counts))
    ready = set()
    for layer in layers:
        if not is_known(layer.operator):
            raise ValueError(f"this ncnn has no operator {layer.operator!r}")
        absent = [blob for blob in layer.bottoms if blob not in ready]
        if absent:
            raise ValueError(f"layer {layer.name!r} reads {absent[0]!r}, which no layer before it makes")
        ready.update(layer.tops)
    if len(ready) != len(made):
        raise ValueError("two layers make a blob of the same name")
    inputs = [layer for layer in layers if layer.operator == "Input"]
    if not inputs:
        raise ValueError("it has no input")
    for layer in inputs:
        input_shape(layer)
    return layers


def _layer(fields: List[str]) -> ParamLayer:
    try:
        operator, name, bottoms, tops = fields[0], fields[1], int(fields[2]), int(fields[3])
        blobs, rest = fields[4 : 4 + bottoms + tops], fields[4 + bottoms + tops :]
        pairs = [pair.partition("=") for pair in rest]
        parameters = {int(key): value for key, _, value in pairs}
    except (IndexError, ValueError):
        raise ValueError("there is a line that is no layer: {}".format(" ".join(fields)[:80])) from None
    if len(blobs) != bottoms + tops or min(bottoms, tops) < 0 or not all(value for _, _, value in pairs):
        raise ValueError(f"the line of layer {name!r} is cut short")
    return ParamLayer(operator, name, blobs[:bottoms], blobs[bottoms:], parameters)


def input_shape(layer: ParamLayer) -> Any:
    """The batch dimension, open, and the sizes that an Input layer declares, or None where it declares none.

    A ValueError says which size is none; the layers of `read_param` have no such sizes.
    """
    sizes: List[Optional[int]] = []
    for key in (2, 11, 1, 0):  # channels, depth, height, width
        size = _size(layer, layer.parameters.get(key, "0"))
        if size not in _UNSET:
            sizes.append(size)
        elif sizes and key != 11:  # only the outermost dimensions and the depth may be left out
            return None
    return [None] + sizes if sizes else None


def _size(layer: ParamLayer, text: str) -> int:
    try:
        size = int(text)
    except ValueError:
        size = -1
    if size < 0 and size not in _UNSET:
        raise ValueError(f"input {layer.name!r} declares a size of {text}")
    return size


def param_precision(layers: List[ParamLayer]) -> str:
    """What the layers ask for, all reduced floats being switched off."""
    is_quantised = any(
        layer.operator in _QUANTISED and layer.parameters.get(8, "0") not in ("0", "-233") for layer in layers
    )
    return "int8 quantised" if is_quantised else "float32"
