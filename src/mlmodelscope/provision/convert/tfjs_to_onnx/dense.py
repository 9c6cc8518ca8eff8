"""Keras layers that combine, scale or reshape whole tensors to ONNX nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from mlmodelscope.provision.convert.graph import Shape
from mlmodelscope.provision.convert.tfjs_to_onnx.activations import activate
from mlmodelscope.provision.convert.tfjs_to_onnx.layer import Layer, Value

__all__ = [
    "add",
    "average",
    "batch_normalization",
    "concatenate",
    "dense",
    "flatten",
    "identity",
    "maximum",
    "minimum",
    "multiply",
    "rescaling",
    "reshape",
    "subtract",
]


def identity(layer: Layer, inputs: Sequence[Value]) -> Value:  # noqa: ARG001 - every layer has this form
    """Dropout and its kin do nothing at inference."""
    return inputs[0]


def _aligned(layer: Layer, inputs: Sequence[Value]) -> list[Value]:
    if len(inputs) < 2:
        raise layer.error("needs at least two inputs")
    if len({value.rank for value in inputs}) != 1:
        raise layer.error("inputs of different rank are not supported")
    if any(value.channels_first for value in inputs):
        return [layer.picture(value) for value in inputs]
    return list(inputs)


def _broadcast(layer: Layer, shapes: Sequence[Shape]) -> Shape:
    result: list[int | None] = [None]
    for sizes in zip(*(shape[1:] for shape in shapes), strict=True):
        wide = {size for size in sizes if size != 1}
        if len(wide - {None}) > 1:
            raise layer.error(f"the inputs' sizes {list(sizes)} do not fit together")
        result.append(next(iter(wide - {None}), None) if wide else 1)
    return tuple(result)


def _merge(layer: Layer, inputs: Sequence[Value], *, operator: str) -> Value:
    values = _aligned(layer, inputs)
    tensor = values[0].tensor
    for value in values[1:]:
        tensor = layer.node(operator, [tensor, value.tensor])
    return Value(tensor, _broadcast(layer, [value.shape for value in values]), values[0].channels_first)


add = partial(_merge, operator="Add")
multiply = partial(_merge, operator="Mul")
maximum = partial(_merge, operator="Max")
minimum = partial(_merge, operator="Min")


def subtract(layer: Layer, inputs: Sequence[Value]) -> Value:
    if len(inputs) != 2:
        raise layer.error("needs two inputs")
    return _merge(layer, inputs, operator="Sub")


def average(layer: Layer, inputs: Sequence[Value]) -> Value:
    total = _merge(layer, inputs, operator="Add")
    tensor = layer.node("Div", [total.tensor, layer.constant("count", float(len(inputs)))], "mean")
    return Value(tensor, total.shape, total.channels_first)


def concatenate(layer: Layer, inputs: Sequence[Value]) -> Value:
    values = _aligned(layer, inputs)
    rank, axis = values[0].rank, layer.integer("axis", -1)
    if not -rank <= axis < rank or axis % rank == 0:
        raise layer.error(f"axis {axis} is not supported")
    axis %= rank
    sizes = [value.shape[axis] for value in values]
    known = [size for size in sizes if size is not None]
    others = [(*value.shape[:axis], 1, *value.shape[axis + 1 :]) for value in values]
    shape = list(_broadcast(layer, others))
    shape[axis] = sum(known) if len(known) == len(sizes) else None
    real_axis = {1: 2, 2: 3, 3: 1}[axis] if values[0].channels_first else axis
    tensor = layer.node("Concat", [value.tensor for value in values], axis=real_axis)
    return Value(tensor, tuple(shape), values[0].channels_first)


def batch_normalization(layer: Layer, inputs: Sequence[Value]) -> Value:
    value = layer.picture(inputs[0]) if inputs[0].rank == 4 else inputs[0]
    axis = layer.config.get("axis", -1)
    axis = axis[0] if isinstance(axis, list) and len(axis) == 1 else axis
    if axis not in (-1, value.rank - 1):
        raise layer.error(f"axis {axis!r} is not supported: only the channels, last")
    channels = layer.channels(value)
    parts: list[npt.NDArray[np.float32]] = [
        layer.weight("gamma", 1) if layer.flag("scale", True) else np.ones(channels, np.float32),
        layer.weight("beta", 1) if layer.flag("center", True) else np.zeros(channels, np.float32),
        layer.weight("moving_mean", 1),
        layer.weight("moving_variance", 1),
    ]
    if any(part.shape != (channels,) for part in parts):
        raise layer.error(f"the weights do not fit {channels} channels")
    epsilon = float(layer.number("epsilon", 1e-3))
    if value.rank in (2, 4):
        roles = ("gamma", "beta", "moving_mean", "moving_variance")
        constants = [layer.constant(role, part) for role, part in zip(roles, parts, strict=True)]
        tensor = layer.node("BatchNormalization", [value.tensor, *constants], epsilon=epsilon)
        return Value(tensor, value.shape, value.channels_first)
    # ONNX normalises the second axis; here the channels are last, and a factor and an offset say the same.
    gamma, beta, mean, variance = (part.astype(np.float64) for part in parts)
    factor = gamma / np.sqrt(variance + epsilon)
    scaled = layer.node("Mul", [value.tensor, layer.constant("factor", factor)], "factor")
    return Value(layer.node("Add", [scaled, layer.constant("offset", beta - mean * factor)]), value.shape)


def rescaling(layer: Layer, inputs: Sequence[Value]) -> Value:
    value = layer.plain(inputs[0])
    scaled = layer.node("Mul", [value.tensor, layer.constant("scale", _numbers(layer, "scale", 1.0))], "scale")
    return Value(layer.node("Add", [scaled, layer.constant("offset", _numbers(layer, "offset", 0.0))]), value.shape)


def _numbers(layer: Layer, key: str, default: float) -> npt.NDArray[np.float32]:
    value = layer.config.get(key, default)
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(item, int | float) for item in items):
        raise layer.error(f"{key} is {value!r}, not a number or a list of numbers")
    return np.asarray(value, np.float32)


def flatten(layer: Layer, inputs: Sequence[Value]) -> Value:
    value = layer.plain(inputs[0])
    sizes = [size for size in value.shape[1:] if size is not None]
    count = math.prod(sizes) if len(sizes) == value.rank - 1 else None
    return Value(layer.node("Flatten", [value.tensor], axis=1), (None, count))


def reshape(layer: Layer, inputs: Sequence[Value]) -> Value:
    value = layer.plain(inputs[0])
    target = layer.config.get("target_shape")
    if not isinstance(target, list) or not all(type(size) is int and (size > 0 or size == -1) for size in target):
        raise layer.error(f"target_shape is {target!r}, not a list of sizes")
    known = [size for size in value.shape[1:] if size is not None]
    fixed = math.prod(size for size in target if size > 0)
    count = math.prod(known) if len(known) == value.rank - 1 else None
    if target.count(-1) > 1 or (count is not None and (count % fixed or (-1 not in target and count != fixed))):
        raise layer.error(f"cannot make {target} of {list(value.shape[1:])}")
    free = None if count is None else count // fixed
    shape = tuple(free if size == -1 else size for size in target)
    # ONNX reads 0 as "keep this axis", here the batch.
    tensor = layer.node("Reshape", [value.tensor, layer.constant("shape", [0, *target], np.int64)])
    return Value(tensor, (None, *shape))


def dense(layer: Layer, inputs: Sequence[Value]) -> Value:
    value = layer.plain(inputs[0])
    kernel = layer.weight("kernel", 2)
    if kernel.shape[0] != value.shape[-1]:
        raise layer.error(f"the kernel {list(kernel.shape)} does not fit an input of {value.shape[-1]}")
    sources = [value.tensor, layer.constant("kernel", kernel)]
    shape = (*value.shape[:-1], kernel.shape[1])
    if not layer.flag("use_bias", True):
        return activate(layer, Value(layer.node("MatMul", sources), shape))
    bias = layer.constant("bias", layer.weight("bias", 1))
    if value.rank == 2:
        return activate(layer, Value(layer.node("Gemm", [*sources, bias]), shape))
    product = layer.node("MatMul", sources, "matmul")
    return activate(layer, Value(layer.node("Add", [product, bias]), shape))
