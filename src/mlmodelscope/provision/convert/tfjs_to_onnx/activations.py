"""Keras activations, as layers or at the end of one, to ONNX nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mlmodelscope.core.errors import UnknownNameError
from mlmodelscope.provision.convert.tfjs_to_onnx.layer import Layer, Value

__all__ = ["activate", "activation", "elu", "leaky_relu", "prelu", "relu", "softmax"]

# Settings and constants as TensorFlow.js has them: its `hard_sigmoid` is clip(0.2 x + 0.5), unlike that of Keras 3.
_SINGLE: dict[str, tuple[str, dict[str, Any]]] = {
    "elu": ("Elu", {"alpha": 1.0}),
    "exponential": ("Exp", {}),
    "hard_sigmoid": ("HardSigmoid", {"alpha": 0.2, "beta": 0.5}),
    "hardSigmoid": ("HardSigmoid", {"alpha": 0.2, "beta": 0.5}),
    "relu": ("Relu", {}),
    "selu": ("Selu", {}),
    "sigmoid": ("Sigmoid", {}),
    "softplus": ("Softplus", {}),
    "softsign": ("Softsign", {}),
    "tanh": ("Tanh", {}),
}


def _clip(layer: Layer, tensor: str, most: float) -> str:
    return layer.node("Clip", [tensor, layer.constant("least", 0.0), layer.constant("most", most)], "clip")


def _swish(layer: Layer, tensor: str) -> str:
    return layer.node("Mul", [tensor, layer.node("Sigmoid", [tensor], "sigmoid")], "swish")


def _mish(layer: Layer, tensor: str) -> str:
    soft = layer.node("Softplus", [tensor], "softplus")
    return layer.node("Mul", [tensor, layer.node("Tanh", [soft], "tanh")], "mish")


def _gelu(layer: Layer, tensor: str) -> str:
    scaled = layer.node("Mul", [tensor, layer.constant("sqrt_half", math.sqrt(0.5))], "scaled")
    share = layer.node("Add", [layer.node("Erf", [scaled], "erf"), layer.constant("one", 1.0)], "share")
    half = layer.node("Mul", [tensor, layer.constant("half", 0.5)], "half_input")
    return layer.node("Mul", [half, share], "gelu")


_COMPOSED: dict[str, Callable[[Layer, str], str]] = {
    "gelu": _gelu,
    "mish": _mish,
    "relu6": lambda layer, tensor: _clip(layer, tensor, 6.0),
    "silu": _swish,
    "swish": _swish,
}


def _softmax(layer: Layer, value: Value, axis: int, role: str = "") -> Value:
    if not -value.rank <= axis < value.rank or axis % value.rank == 0:
        raise layer.error(f"softmax over axis {axis} is not supported")
    axis %= value.rank
    if value.channels_first:
        axis = {1: 2, 2: 3, 3: 1}[axis]
    return Value(layer.node("Softmax", [value.tensor], role, axis=axis), value.shape, value.channels_first)


def _apply(layer: Layer, value: Value, name: str, *, alone: bool) -> Value:
    if name == "linear":
        return value
    if name == "softmax":
        return _softmax(layer, value, -1, "" if alone else "softmax")
    if name in _SINGLE:
        operator, attributes = _SINGLE[name]
        tensor = layer.node(operator, [value.tensor], "" if alone else name, **attributes)
    elif name in _COMPOSED:
        tensor = _COMPOSED[name](layer, value.tensor)
    else:
        known = ["linear", "softmax", *_SINGLE, *_COMPOSED]
        raise layer.error(f"the activation {name!r} is not supported") from UnknownNameError("activation", name, known)
    return Value(tensor, value.shape, value.channels_first)


def _setting(layer: Layer) -> str:
    found = layer.config.get("activation") or "linear"
    if isinstance(found, dict):
        found = found.get("class_name") if found.get("class_name") != "function" else found.get("config")
    if not isinstance(found, str):
        raise layer.error("the activation has no name")
    return found


def activate(layer: Layer, value: Value) -> Value:
    """The activation that a layer such as Conv2D ends with."""
    return _apply(layer, value, _setting(layer), alone=False)


def activation(layer: Layer, inputs: Sequence[Value]) -> Value:
    return _apply(layer, inputs[0], _setting(layer), alone=True)


def relu(layer: Layer, inputs: Sequence[Value]) -> Value:
    value = inputs[0]
    if layer.number("threshold", 0.0) != 0:
        raise layer.error("a threshold other than 0 is not supported")
    slope, most = layer.number("negative_slope", 0.0), layer.config.get("max_value")
    if slope == 0 and most is None:
        tensor = layer.node("Relu", [value.tensor])
    elif slope == 0:
        tensor = _clip(layer, value.tensor, layer.number("max_value", 0.0))
    elif most is None:
        tensor = layer.node("LeakyRelu", [value.tensor], alpha=float(slope))
    else:
        leaky = layer.node("LeakyRelu", [value.tensor], "leaky", alpha=float(slope))
        tensor = layer.node("Min", [leaky, layer.constant("most", layer.number("max_value", 0.0))], "min")
    return Value(tensor, value.shape, value.channels_first)


def leaky_relu(layer: Layer, inputs: Sequence[Value]) -> Value:
    value = inputs[0]
    slope = layer.number("negative_slope", layer.number("alpha", 0.3))
    tensor = layer.node("LeakyRelu", [value.tensor], alpha=float(slope))
    return Value(tensor, value.shape, value.channels_first)


def elu(layer: Layer, inputs: Sequence[Value]) -> Value:
    value = inputs[0]
    tensor = layer.node("Elu", [value.tensor], alpha=float(layer.number("alpha", 1.0)))
    return Value(tensor, value.shape, value.channels_first)


def prelu(layer: Layer, inputs: Sequence[Value]) -> Value:
    value = layer.plain(inputs[0])
    slopes = layer.constant("alpha", layer.weight("alpha", value.rank - 1))
    return Value(layer.node("PRelu", [value.tensor, slopes]), value.shape)


def softmax(layer: Layer, inputs: Sequence[Value]) -> Value:
    return _softmax(layer, inputs[0], layer.integer("axis", -1))
