"""The output tensors of a batch -> one answer per sample.

The work is in two halves. `finish` belongs to the timed region: it computes, and keeps light rows of arrays.
`answers` turns the rows into values of `core.answer` after the clock has stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from mlmodelscope.core.answer import Answer, Classes, ClassScore, RawTensors, TensorFacts
from mlmodelscope.core.errors import StepError
from mlmodelscope.core.manifest import ModelManifest
from mlmodelscope.core.steps import Argsort, Cast, Slice, TopK
from mlmodelscope.process.detection import Detections, box_output
from mlmodelscope.process.elements import Array
from mlmodelscope.process.tensors import check_outputs, comparable, softmax, tensor_stage, with_batch

__all__ = ["Labels", "OutputPipeline", "labels_by_output", "output_pipeline", "softmax", "top_classes", "with_batch"]

Labels = Mapping[int, Sequence[str]] | Sequence[str]


class OutputPipeline(Protocol):
    """Makes answers. Rows are opaque and refer to the output arrays: the predictor must not write over those before
    `answers` has read them. One per worker; not thread-safe.
    """

    def finish(self, outputs: Sequence[Array], count: int) -> list[Any]:
        """One row per sample of the first `count` of the batch; what pads the batch is left out."""

    def answers(self, rows: Sequence[Any], samples: Sequence[Any] = ()) -> list[Answer]:
        """`samples` is the data that the rows were made from, in their order: boxes are drawn on it."""


def output_pipeline(model: ModelManifest, labels: Labels = ()) -> OutputPipeline:
    """The steps of the outputs: boxes where one has a `boxes` step; else classes of the first that ends in topk or
    argsort, else facts of all tensors.
    """
    by_output = labels_by_output(model, labels)
    if box_output(model) is not None:
        return Detections(model, by_output)
    ranked = _ranked_output(model)
    if ranked is None:
        return _Tensors(model)
    return _Ranking(model, ranked, by_output.get(ranked, ()))


def labels_by_output(model: ModelManifest, labels: Labels) -> Mapping[int, Sequence[str]]:
    """A bare list belongs to the output that has the boxes or is ranked, else to the first."""
    if isinstance(labels, Mapping):
        return labels
    return {box_output(model) or _ranked_output(model) or 0: labels} if labels else {}


def top_classes(scores: Array, k: int) -> tuple[Array, Array]:
    """Indices and values of the `k` highest scores, highest first, equal ones in the order of their index."""
    classes = len(scores)
    if k < classes:
        # everything from the k-th highest score up, equal ones included: a short list, still in the order of the index
        candidates = np.flatnonzero(scores >= np.partition(scores, classes - k)[classes - k])
        picked = candidates[np.argsort(-scores[candidates], kind="stable")[:k]]
    else:
        picked = np.argsort(-scores, kind="stable")
    return picked, scores[picked]


class _Ranking:
    """Rows: (indices, scores, number of classes before the slices), highest score first."""

    def __init__(self, model: ModelManifest, index: int, labels: Sequence[str]) -> None:
        steps = model.outputs[index].steps
        last = next(i for i, step in enumerate(steps) if isinstance(step, Argsort | TopK))
        if any(not isinstance(step, Cast) for step in steps[last + 1 :]):
            raise StepError(f"no step can follow {steps[last].step}", step=steps[last + 1].step)
        ranking = steps[last]
        self._index = index
        self._needed = len(model.outputs)
        self._k = ranking.k if isinstance(ranking, TopK) else None
        self._stages = [tensor_stage(step) for step in steps[:last]]
        self._slices = [slice(step.start, step.stop) for step in steps[:last] if isinstance(step, Slice)]
        self._labels = list(labels)
        self._fitted: dict[int, list[str]] = {}

    def finish(self, outputs: Sequence[Array], count: int) -> list[Any]:
        check_outputs(outputs, self._needed)
        scores = _as_rows(outputs[self._index], count)
        classes = scores.shape[1]
        for stage in self._stages:
            scores = stage(scores)
        scores = comparable(scores)
        rows = [(*top_classes(row, self._k or len(row)), classes) for row in scores]
        # the maximum of scores that hold not-a-number is not-a-number; minus infinity matters only where it is picked
        if not np.isfinite(scores.max()) or any(values[-1] == -np.inf for _, values, _ in rows):
            raise StepError(
                "the model's scores cannot be ranked: some are infinite or not a number",
                hint="does the preprocessing fit the model?",
                step="topk" if self._k else "argsort",
            )
        return rows

    def answers(self, rows: Sequence[Any], samples: Sequence[Any] = ()) -> list[Answer]:
        return [self._answer(*row) for row in rows]

    def _answer(self, picked: Array, values: Array, classes: int) -> Classes:
        labels = self._fitted.get(classes)
        if labels is None:
            labels = self._fitted[classes] = self._fit(classes)
        return Classes(
            classes=tuple(
                ClassScore(index=index, label=labels[index] if labels else None, score=score)
                for index, score in zip(picked.tolist(), values.tolist(), strict=True)
            )
        )

    def _fit(self, classes: int) -> list[str]:
        """The labels of what is left after the slices; a list of just that length is taken as it is."""
        left, cut = range(classes), self._labels
        for part in self._slices:
            left, cut = left[part], cut[part]
        if not self._labels or len(self._labels) == len(left):
            return self._labels
        if len(self._labels) == classes:
            return cut
        raise StepError(
            f"{len(self._labels)} labels do not fit {len(left)} classes",
            hint="a slice step drops a background class; check the features of the output",
            labels=len(self._labels),
            classes=len(left),
        )


class _Tensors:
    """Rows: one array per output, without the batch dimension."""

    def __init__(self, model: ModelManifest) -> None:
        self._stages = [[tensor_stage(step) for step in output.steps] for output in model.outputs]
        self._names = [
            str(output.layer_name) if output.layer_name is not None else str(index)
            for index, output in enumerate(model.outputs)
        ]

    def finish(self, outputs: Sequence[Array], count: int) -> list[Any]:
        check_outputs(outputs, len(self._stages))
        finished = []
        for index, output in enumerate(outputs):
            array = with_batch(output, count)
            for stage in self._stages[index] if index < len(self._stages) else ():
                array = stage(array)
            finished.append(array)
        return [tuple(array[row] for array in finished) for row in range(count)]

    def answers(self, rows: Sequence[Any], samples: Sequence[Any] = ()) -> list[Answer]:
        return [RawTensors(tensors=tuple(self._facts(i, array) for i, array in enumerate(row))) for row in rows]

    def _facts(self, index: int, array: Any) -> TensorFacts:
        array = np.asarray(array)
        is_number = array.dtype.kind in "biuf" and array.size > 0
        content = array.tobytes() if array.dtype.kind != "O" else "\0".join(map(str, array.ravel())).encode()
        return TensorFacts(
            name=self._names[index] if index < len(self._names) else str(index),
            shape=array.shape,
            element_type=str(array.dtype),
            sha256=hashlib.sha256(content).hexdigest(),
            minimum=_finite(array.min()) if is_number else None,
            maximum=_finite(array.max()) if is_number else None,
            mean=_mean(array) if is_number else None,
        )


def _ranked_output(model: ModelManifest) -> int | None:
    for index, output in enumerate(model.outputs):
        if any(isinstance(step, Argsort | TopK) for step in output.steps):
            return index
    return None


def _as_rows(output: Any, count: int) -> Array:
    """One row of classes per sample, whatever dimensions of size 1 stand around it."""
    array = np.asarray(output)
    if array.ndim == 1 and count == 1:
        return array[None]
    array = with_batch(array, count)
    if sum(extent > 1 for extent in array.shape[1:]) > 1 or not array.size:
        raise StepError(
            f"an output of shape {list(array.shape)} is not one row of classes per sample", shape=list(array.shape)
        )
    return array.reshape(count, -1)


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if np.isfinite(number) else None


def _mean(array: Array) -> float | None:
    with np.errstate(all="ignore"):
        return _finite(array.mean(dtype=np.float64))
