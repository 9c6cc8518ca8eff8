"""Keras layers that look at neighbourhoods of a picture (convolution, pooling, padding) to ONNX nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlmodelscope.provision.convert.graph import Shape, same_padding
from mlmodelscope.provision.convert.tfjs_to_onnx.activations import activate
from mlmodelscope.provision.convert.tfjs_to_onnx.layer import Layer, Value

__all__ = [
    "average_pooling",
    "conv",
    "cropping",
    "depthwise_conv",
    "global_average_pooling",
    "global_max_pooling",
    "max_pooling",
    "separable_conv",
    "zero_padding",
]

_Pair = tuple[int, int]


def _window(
    layer: Layer, value: Value, kernel: _Pair, strides: _Pair, dilation: _Pair = (1, 1)
) -> tuple[dict[str, Any], Shape]:
    """ONNX' padding attributes and the resulting height and width; sizes not known now are padded at run time."""
    attributes: dict[str, Any] = {"kernel_shape": list(kernel), "strides": list(strides)}
    sizes = value.shape[1:3]
    same = layer.same_padding()
    if same and None in sizes:
        attributes["auto_pad"] = "SAME_UPPER"
    pads: list[_Pair] = []
    results: list[int | None] = []
    for size, cells, step, gap in zip(sizes, kernel, strides, dilation, strict=True):
        if size is None:
            results.append(None)
            continue
        before, after = same_padding(size, cells, step, gap) if same else (0, 0)
        result = (size + before + after - (cells - 1) * gap - 1) // step + 1
        if result < 1:
            raise layer.error(f"the picture of {size} cells is smaller than the window of {cells}")
        pads.append((before, after))
        results.append(result)
    if "auto_pad" not in attributes and len(pads) == 2:
        attributes["pads"] = [pads[0][0], pads[1][0], pads[0][1], pads[1][1]]
    return attributes, tuple(results)


def _convolve(
    layer: Layer, value: Value, kernel: npt.NDArray[np.float32], groups: int, bias: str | None, role: str = ""
) -> Value:
    """`kernel` in ONNX' order: outputs, inputs per group, height, width."""
    source = layer.picture(value)
    if kernel.shape[1] * groups != layer.channels(source) or kernel.shape[0] % groups:
        raise layer.error(f"the kernel {list(kernel.shape)} does not fit {layer.channels(source)} channels")
    size = (kernel.shape[2], kernel.shape[3])
    strides, dilation = layer.pair("strides", (1, 1)), layer.pair("dilation_rate", (1, 1))
    attributes, sides = _window(layer, source, size, strides, dilation)
    inputs = [source.tensor, layer.constant(role or "kernel", kernel)]
    if bias is not None:
        inputs.append(bias)
    node_role = role.removesuffix("_kernel")
    tensor = layer.node("Conv", inputs, node_role, group=groups, dilations=list(dilation), **attributes)
    return Value(tensor, (None, *sides, kernel.shape[0]), channels_first=True)


def _bias(layer: Layer) -> str | None:
    return layer.constant("bias", layer.weight("bias", 1)) if layer.flag("use_bias", True) else None


def _depthwise_kernel(layer: Layer) -> tuple[npt.NDArray[np.float32], int]:
    kernel = layer.weight("depthwise_kernel", 4)
    height, width, channels, multiplier = kernel.shape
    return kernel.transpose(2, 3, 0, 1).reshape(channels * multiplier, 1, height, width), channels


def conv(layer: Layer, inputs: Sequence[Value]) -> Value:
    kernel = layer.weight("kernel", 4).transpose(3, 2, 0, 1)
    groups = layer.integer("groups", 1)
    if groups < 1:
        raise layer.error(f"groups is {groups}")
    return activate(layer, _convolve(layer, inputs[0], kernel, groups, _bias(layer)))


def depthwise_conv(layer: Layer, inputs: Sequence[Value]) -> Value:
    kernel, channels = _depthwise_kernel(layer)
    return activate(layer, _convolve(layer, inputs[0], kernel, channels, _bias(layer)))


def separable_conv(layer: Layer, inputs: Sequence[Value]) -> Value:
    kernel, channels = _depthwise_kernel(layer)
    deep = _convolve(layer, inputs[0], kernel, channels, None, "depthwise_kernel")
    mixing = layer.weight("pointwise_kernel", 4).transpose(3, 2, 0, 1)
    if mixing.shape[1:] != (layer.channels(deep), 1, 1):
        raise layer.error(f"the pointwise kernel {list(mixing.shape)} does not fit {layer.channels(deep)} channels")
    sources = [deep.tensor, layer.constant("pointwise_kernel", mixing)]
    bias = _bias(layer)
    if bias is not None:
        sources.append(bias)
    tensor = layer.node("Conv", sources, "pointwise", kernel_shape=[1, 1])
    return activate(layer, Value(tensor, (*deep.shape[:3], mixing.shape[0]), channels_first=True))


def _pool(layer: Layer, value: Value, operator: str) -> Value:
    source = layer.picture(value)
    size = layer.pair("pool_size", (2, 2))
    attributes, sides = _window(layer, source, size, layer.pair("strides", size))
    tensor = layer.node(operator, [source.tensor], **attributes)
    return Value(tensor, (None, *sides, layer.channels(source)), channels_first=True)


def max_pooling(layer: Layer, inputs: Sequence[Value]) -> Value:
    return _pool(layer, inputs[0], "MaxPool")


def average_pooling(layer: Layer, inputs: Sequence[Value]) -> Value:
    # Neither Keras nor ONNX (count_include_pad=0 by default) counts the padding.
    return _pool(layer, inputs[0], "AveragePool")


def _pool_all(layer: Layer, value: Value, operator: str) -> Value:
    source = layer.picture(value)
    channels = layer.channels(source)
    if layer.flag("keepdims", False):
        return Value(layer.node(operator, [source.tensor]), (None, 1, 1, channels), channels_first=True)
    pooled = layer.node(operator, [source.tensor])
    return Value(layer.node("Flatten", [pooled], "flatten", axis=1), (None, channels))


def global_average_pooling(layer: Layer, inputs: Sequence[Value]) -> Value:
    return _pool_all(layer, inputs[0], "GlobalAveragePool")


def global_max_pooling(layer: Layer, inputs: Sequence[Value]) -> Value:
    return _pool_all(layer, inputs[0], "GlobalMaxPool")


def zero_padding(layer: Layer, inputs: Sequence[Value]) -> Value:
    source = layer.picture(inputs[0])
    (top, bottom), (left, right) = layer.sides("padding")
    pads = layer.constant("pads", [0, 0, top, left, 0, 0, bottom, right], np.int64)
    _, height, width, channels = source.shape
    shape = (None, None if height is None else height + top + bottom, None if width is None else width + left + right)
    return Value(layer.node("Pad", [source.tensor, pads]), (*shape, channels), channels_first=True)


def cropping(layer: Layer, inputs: Sequence[Value]) -> Value:
    source = layer.picture(inputs[0])
    _, height, width, channels = source.shape
    if height is None or width is None:
        raise layer.error("cannot crop a picture whose size is not fixed")
    (top, bottom), (left, right) = layer.sides("cropping")
    if top + bottom >= height or left + right >= width:
        raise layer.error("crops more than the picture holds")
    bounds = [
        layer.constant("starts", [top, left], np.int64),
        layer.constant("ends", [height - bottom, width - right], np.int64),
        layer.constant("axes", [2, 3], np.int64),
    ]
    shape = (None, height - top - bottom, width - left - right, channels)
    return Value(layer.node("Slice", [source.tensor, *bounds]), shape, channels_first=True)
