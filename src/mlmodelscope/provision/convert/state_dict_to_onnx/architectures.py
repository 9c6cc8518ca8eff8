"""An architecture's name to the function that builds it as a graph from the weights of a state dict."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from mlmodelscope.provision.convert.graph import GraphBuilder, GraphOutput
from mlmodelscope.provision.convert.state_dict_to_onnx.network import Feature, Network
from mlmodelscope.provision.convert.state_dict_to_onnx.weights import Weights

__all__ = ["ARCHITECTURES", "Build"]

Build = Callable[[GraphBuilder, Weights], GraphOutput]

_IMAGENET_CLASSES = 1000
_CIFAR10_CLASSES = 10


@dataclass(frozen=True, slots=True)
class _Stage:
    repeats: int
    kernel: int
    stride: int
    expansion: int
    channels: int


# The stages of EfficientNet-B0; the lite family leaves out squeeze-and-excitation and uses ReLU6.
_EFFICIENTNET_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)
_EFFICIENTNET_EPSILON = 1e-3
_EFFICIENTNET_STEM = 32
_EFFICIENTNET_HEAD = 1280
_RESNET_EPSILON = 1e-5


def _scaled_channels(channels: int, width: float) -> int:
    """The nearest multiple of 8, but never more than a tenth below the scaled number."""
    wanted = channels * width
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * wanted else rounded


def _inverted_residual(
    network: Network, source: Feature, name: str, stage: _Stage, stride: int, width: float
) -> Feature:
    wide = source
    if stage.expansion != 1:
        expanded = network.conv(source, f"{name}._expand_conv", source.channels * stage.expansion, 1, same=True)
        wide = network.relu6(network.norm(expanded, f"{name}._bn0"), f"{name}._relu0")
    deep = network.conv(
        wide, f"{name}._depthwise_conv", wide.channels, stage.kernel, stride, groups=wide.channels, same=True
    )
    deep = network.relu6(network.norm(deep, f"{name}._bn1"), f"{name}._relu1")
    narrow = network.conv(deep, f"{name}._project_conv", _scaled_channels(stage.channels, width), 1, same=True)
    narrow = network.norm(narrow, f"{name}._bn2")
    if stride == 1 and narrow.channels == source.channels:
        return network.add(narrow, source, f"{name}._add")
    return narrow


def _efficientnet_lite(graph: GraphBuilder, weights: Weights, *, width: float, depth: float, size: int) -> GraphOutput:
    """Stem and head are not scaled, nor are the repeats of the first and last stage."""
    network = Network(graph, weights, _EFFICIENTNET_EPSILON)
    x = network.conv(network.input(3, size), "_conv_stem", _EFFICIENTNET_STEM, 3, 2, same=True)
    x = network.relu6(network.norm(x, "_bn0"), "_relu0")
    block = 0
    for stage in _EFFICIENTNET_STAGES:
        at_an_end = stage in (_EFFICIENTNET_STAGES[0], _EFFICIENTNET_STAGES[-1])
        repeats = stage.repeats if at_an_end else math.ceil(stage.repeats * depth)
        for repeat in range(repeats):
            stride = stage.stride if repeat == 0 else 1
            x = _inverted_residual(network, x, f"_blocks.{block}", stage, stride, width)
            block += 1
    x = network.conv(x, "_conv_head", _EFFICIENTNET_HEAD, 1, same=True)
    x = network.relu6(network.norm(x, "_bn1"), "_relu1")
    return GraphOutput(network.classify(x, "_fc", _IMAGENET_CLASSES), "logits", (None, _IMAGENET_CLASSES))


def _basic_block(network: Network, source: Feature, name: str, channels: int, stride: int) -> Feature:
    x = network.conv(source, f"{name}.conv1", channels, 3, stride, same=False)
    x = network.relu(network.norm(x, f"{name}.bn1"), f"{name}.relu1")
    x = network.norm(network.conv(x, f"{name}.conv2", channels, 3, same=False), f"{name}.bn2")
    shortcut = source
    if stride != 1 or source.channels != channels:
        shortcut = network.conv(source, f"{name}.shortcut.0", channels, 1, stride, same=False)
        shortcut = network.norm(shortcut, f"{name}.shortcut.1")
    return network.relu(network.add(x, shortcut, f"{name}.add"), f"{name}.relu2")


def _resnet18_cifar(graph: GraphBuilder, weights: Weights) -> GraphOutput:
    """The ResNet-18 for 32 x 32 pictures: a 3 x 3 stem without pooling, four stages of two basic blocks."""
    network = Network(graph, weights, _RESNET_EPSILON)
    x = network.conv(network.input(3, 32), "conv1", 64, 3, same=False)
    x = network.relu(network.norm(x, "bn1"), "relu1")
    for stage, channels in enumerate((64, 128, 256, 512), 1):
        for block in range(2):
            stride = 2 if stage > 1 and block == 0 else 1
            x = _basic_block(network, x, f"layer{stage}.{block}", channels, stride)
    return GraphOutput(network.classify(x, "linear", _CIFAR10_CLASSES), "logits", (None, _CIFAR10_CLASSES))


ARCHITECTURES: dict[str, Build] = {
    "efficientnet-lite0": partial(_efficientnet_lite, width=1.0, depth=1.0, size=224),
    "efficientnet-lite1": partial(_efficientnet_lite, width=1.0, depth=1.1, size=240),
    "efficientnet-lite2": partial(_efficientnet_lite, width=1.1, depth=1.2, size=260),
    "resnet18-cifar": _resnet18_cifar,
}
