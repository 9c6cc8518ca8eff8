"""The output tensors of a framework -> the samples they hold, and the steps that change a tensor -> functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlmodelscope.core.errors import ShapeError, StepError
from mlmodelscope.core.steps import Cast, Mean, Normalize, Rescale, Slice, Softmax, Step
from mlmodelscope.process.elements import Array, ArrayStage, arithmetic, cast_array

__all__ = ["check_outputs", "comparable", "softmax", "tensor_stage", "with_batch"]


def softmax(array: Array) -> Array:
    """Along the last axis, in float64, shifted by the maximum; back to float32 unless it came as float64."""
    values = array.astype(np.float64)
    with np.errstate(all="ignore"):
        values -= values.max(axis=-1, keepdims=True)
        np.exp(values, out=values)
        values /= values.sum(axis=-1, keepdims=True)
    return values if array.dtype == np.float64 else values.astype(np.float32)


def tensor_stage(step: Step) -> ArrayStage:
    """Steps that come before an answer is made; the element type is known only when the tensor arrives."""
    match step:
        case Softmax():
            return softmax
        case Slice(start=start, stop=stop):
            return lambda array: _sliced(array, start, stop)
        case Cast(element_type=name):
            dtype = np.dtype(name)
            return lambda array: cast_array(array, dtype)
        case Mean(value=value):
            return lambda array: arithmetic("subtract", value, array.dtype)(array)
        case Rescale(value=value):
            return lambda array: arithmetic("divide", value, array.dtype)(array)
        case Normalize(mean=mean, rescale=rescale):
            return lambda array: arithmetic("divide", rescale, array.dtype)(
                arithmetic("subtract", mean, array.dtype)(array)
            )
        case _:
            raise StepError(f"{step.step} is not a step of an output", step=step.step)


def _sliced(array: Array, start: int, stop: int | None) -> Array:
    result = array[..., start:stop]
    if not result.shape[-1] or (stop is not None and stop > array.shape[-1]):
        raise StepError(
            f"slice from {start} to {stop or 'the end'} does not fit {array.shape[-1]} classes",
            step="slice",
            classes=int(array.shape[-1]),
        )
    return result


def check_outputs(outputs: Sequence[Array], needed: int) -> None:
    if len(outputs) < needed:
        raise ShapeError(
            f"the manifest names {needed} outputs, the model gave {len(outputs)}", outputs=len(outputs), needed=needed
        )


def with_batch(output: Any, count: int) -> Array:
    """The first `count` samples of an output. ShapeError: it holds fewer."""
    array = np.asarray(output)
    if array.ndim and len(array) >= count:
        return array[:count]
    raise ShapeError(
        f"an output of shape {list(array.shape)} does not hold {count} samples",
        hint="use a batch size of 1 for a model whose outputs have no batch dimension",
        shape=list(array.shape),
        samples=count,
    )


def comparable(scores: Array) -> Array:
    """Scores as floating point that can change its sign without loss."""
    if scores.dtype.kind == "f":
        return scores if scores.dtype.itemsize > 2 else scores.astype(np.float32)
    return scores.astype(np.float64)
