"""The output tensors of a detector -> boxes with class and score, in pixels of the original image.

`finish`, inside the timed region, reads the rows, applies thresholds and suppression in the model's own coordinates
(how much two boxes overlap does not change when an axis is scaled), and keeps small arrays. Where the image lay in the
tensor is worked out by `answers`, from the header of the image and the steps of the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mlmodelscope.core.answer import Answer, Box, Boxes
from mlmodelscope.core.errors import ShapeError, StepError
from mlmodelscope.core.manifest import ModelManifest, ModelOutput
from mlmodelscope.core.steps import DecodeBoxes, Nms, Slice, Step, Threshold
from mlmodelscope.process.boxes import areas, corners, suppress
from mlmodelscope.process.decoders import image_size
from mlmodelscope.process.elements import Array
from mlmodelscope.process.geometry import Pair, place
from mlmodelscope.process.tensors import check_outputs, comparable, tensor_stage

__all__ = ["Detections", "Found", "box_output"]

# numbers of a row behind the four of its box: the least there must be
_BEHIND = {"separate": 0, "per_class": 1, "objectness": 2, "score_class": 2}


class Found(NamedTuple):
    """The boxes of one sample, best first: corners in the model's coordinates, a score and a class for each."""

    corners: Array
    scores: Array
    classes: Array


class _Candidates(NamedTuple):
    """Every box of a batch, as the model gave it. `scores` and `classes` are [samples, boxes]."""

    values: Array
    scores: Array
    classes: Array
    counts: list[int]


def box_output(model: ModelManifest) -> int | None:
    """The first output that has a `boxes` step; its answer is the answer of the model."""
    for index, output in enumerate(model.outputs):
        if any(isinstance(step, DecodeBoxes) for step in output.steps):
            return index
    return None


class Detections:
    """Makes boxes. Rows are `Found`."""

    def __init__(self, model: ModelManifest, labels: Mapping[int, Sequence[str]]) -> None:
        index = box_output(model)
        assert index is not None
        steps = model.outputs[index].steps
        at = next(i for i, step in enumerate(steps) if isinstance(step, DecodeBoxes))
        decoding = steps[at]
        assert isinstance(decoding, DecodeBoxes)
        self._decoding = decoding
        self._needed = len(model.outputs)
        self._boxes = _Tensor(index, steps[:at])
        beside = _beside(model, index) if decoding.arrangement == "separate" else {}
        if decoding.arrangement == "separate" and "probability" not in beside:
            raise StepError(
                "boxes need scores: the model has no output of type probability",
                hint="add that output, or say in which arrangement the rows of this one hold scores",
                step="boxes",
            )
        self._scores, self._classes, self._count = (beside.get(role) for role in ("probability", "class", "count"))
        self._filters = _filters(steps[at + 1 :])
        self._labels = _Labels(model, [one.index for one in (self._classes, self._scores, self._boxes) if one], labels)
        self._input_steps = _image_steps(model, decoding)

    def finish(self, outputs: Sequence[Array], count: int) -> list[Any]:
        check_outputs(outputs, self._needed)
        candidates = self._read(outputs, count)
        return [self._row(*parts) for parts in zip(*candidates, strict=True)]

    def answers(self, rows: Sequence[Any], samples: Sequence[Any] = ()) -> list[Answer]:
        return [self._answer(row, image_size(data)) for row, data in zip(rows, samples, strict=True)]

    def readable(self, row: Found) -> list[dict[str, Any]]:
        """A row as a Python function is given it: in the model's own coordinates."""
        return [
            {**one, "left": left, "top": top, "right": right, "bottom": bottom}
            for one, (left, top, right, bottom) in zip(self._named(row), row.corners.tolist(), strict=True)
        ]

    def _read(self, outputs: Sequence[Array], count: int) -> _Candidates:
        array, has_batch = _rows(self._boxes.read(outputs), count, self._decoding)
        samples, boxes, width = array.shape
        behind = width - 4 - _BEHIND[self._decoding.arrangement]
        is_exact = self._decoding.arrangement in ("separate", "score_class")
        if behind < 0 or (is_exact and behind):
            raise StepError(
                f"rows of {width} numbers are no boxes of arrangement {self._decoding.arrangement}",
                hint="transposed exchanges rows and columns; see arrangement in the reference of the step",
                step="boxes",
                shape=[samples, boxes, width],
            )
        scores, classes = self._scored(array, outputs, has_batch)
        counts = [boxes] * samples
        if self._count is not None:
            counts = _counts(self._count.read(outputs), samples, boxes)
        return _Candidates(array[..., :4], scores, classes, counts)

    def _scored(self, array: Array, outputs: Sequence[Array], has_batch: bool) -> tuple[Array, Array]:
        """A score and a class for each box."""
        match self._decoding.arrangement:
            case "per_class":
                return _best(comparable(array[..., 4:]))
            case "objectness":
                best, classes = _best(comparable(array[..., 5:]))
                return best * comparable(array[..., 4]), classes
            case "score_class":
                return comparable(array[..., 4]), array[..., 5]
            case _:
                return self._separate(array.shape[:2], outputs, has_batch)

    def _separate(self, shape: tuple[int, ...], outputs: Sequence[Array], has_batch: bool) -> tuple[Array, Array]:
        assert self._scores is not None
        scores = comparable(_per_box(self._scores.read(outputs), shape, has_batch, "scores"))
        if scores.ndim == 3:
            if self._classes is None:
                return _best(scores)
            if scores.shape[2] > 1:
                raise StepError(
                    f"{scores.shape[2]} scores for each box and an output of classes: one of them must go",
                    step="boxes",
                    shape=list(scores.shape),
                )
            scores = scores[..., 0]
        if self._classes is None:
            return scores, np.zeros(shape, np.int64)
        return scores, _per_box(self._classes.read(outputs), shape, has_batch, "classes").reshape(shape)

    def _row(self, values: Array, scores: Array, classes: Array, count: int) -> Found:
        values, scores, classes = values[:count], scores[:count], classes[:count]
        if not (np.isfinite(scores).all() and np.isfinite(classes).all()):
            raise _unusable("scores or classes")
        # a class below 0 marks a place that holds no box
        is_kept = classes > -0.5
        for least in self._filters.first:
            is_kept &= scores >= scores.dtype.type(least)
        picked = np.flatnonzero(is_kept)
        picked = picked[np.argsort(-scores[picked], kind="stable")]
        found = Found(
            corners(values[picked], self._decoding.format), scores[picked], np.rint(classes[picked]).astype(np.int64)
        )
        if np.isnan(found.corners).any():
            raise _unusable("boxes")
        for keep in self._filters.then:
            stays = keep(found)
            found = Found(found.corners[stays], found.scores[stays], found.classes[stays])
        return found

    def _answer(self, row: Found, size: Pair) -> Boxes:
        edges = _to_original(row.corners, self._decoding, self._input_steps, size)
        has_area = areas(edges) > 0
        kept = Found(edges[has_area], row.scores[has_area], row.classes[has_area])
        boxes = [
            Box(**one, left=left, top=top, right=right, bottom=bottom)
            for one, (left, top, right, bottom) in zip(self._named(kept), kept.corners.tolist(), strict=True)
        ]
        return Boxes(height=size[0], width=size[1], boxes=tuple(boxes))

    def _named(self, found: Found) -> list[dict[str, Any]]:
        return [
            {"index": index, "label": self._labels.of(index), "score": score}
            for index, score in zip(found.classes.tolist(), found.scores.tolist(), strict=True)
        ]


class _Tensor:
    """One output and the steps that change it before it is read."""

    def __init__(self, index: int, steps: Sequence[Step]) -> None:
        self.index = index
        self._stages = [tensor_stage(step) for step in steps]

    def read(self, outputs: Sequence[Array]) -> Array:
        array = np.asarray(outputs[self.index])
        for stage in self._stages:
            array = stage(array)
        return array


class _Labels:
    """Labels by class: of the first of `positions` that has some, cut as its scores are."""

    def __init__(self, model: ModelManifest, positions: Sequence[int], labels: Mapping[int, Sequence[str]]) -> None:
        position = next((one for one in positions if labels.get(one)), None)
        self._names = [] if position is None else list(labels[position])
        for step in () if position is None else model.outputs[position].steps:
            if isinstance(step, Slice):
                self._names = self._names[step.start : step.stop]

    def of(self, index: int) -> str | None:
        return self._names[index] if index < len(self._names) else None


class _Filters(NamedTuple):
    """Thresholds that come before any suppression, and what follows on boxes in the order of their scores."""

    first: list[float]
    then: list[Callable[[Found], Array]]


def _filters(steps: Sequence[Step]) -> _Filters:
    filters = _Filters([], [])
    for step in steps:
        match step:
            case Threshold(score=least):
                if filters.then:
                    filters.then.append(_threshold(least))
                else:
                    filters.first.append(least)
            case Nms():
                filters.then.append(_nms(step))
            case _:
                raise StepError(f"{step.step} cannot follow boxes", hint="threshold and nms can", step=step.step)
    return filters


def _threshold(least: float) -> Callable[[Found], Array]:
    return lambda found: np.flatnonzero(found.scores >= found.scores.dtype.type(least))


def _nms(step: Nms) -> Callable[[Found], Array]:
    def keep(found: Found) -> Array:
        classes = found.classes if step.class_aware else None
        return suppress(found.corners, classes, step.iou, step.max_boxes)

    return keep


def _beside(model: ModelManifest, index: int) -> dict[str, _Tensor]:
    """The first output of each type beside the boxes."""
    found: dict[str, _Tensor] = {}
    for position, output in enumerate(model.outputs):
        if position != index and output.type not in found:
            found[output.type] = _Tensor(position, _plain_steps(output))
    return found


def _plain_steps(output: ModelOutput) -> tuple[Step, ...]:
    """The steps of an output that boxes are made with; one that makes an answer of its own has no place there."""
    for step in output.steps:
        if step.step in ("topk", "argsort", "boxes", "threshold", "nms"):
            raise StepError(
                f"{step.step} makes an answer of its own: the boxes are the answer of this model", step=step.step
            )
    return output.steps


def _image_steps(model: ModelManifest, decoding: DecodeBoxes) -> tuple[Step, ...]:
    if model.preprocess is not None and decoding.coordinates == "pixels":
        raise StepError(
            "boxes in pixels cannot be brought back to the image: a preprocess function hides what was done to it",
            hint="write the preprocessing as steps, or the postprocessing as a function",
            step="boxes",
        )
    image = next((value for value in model.inputs if value.type == "image"), model.inputs[0])
    return image.steps


def _rows(array: Array, count: int, decoding: DecodeBoxes) -> tuple[Array, bool]:
    """[samples, boxes, numbers], and whether the model gave a batch dimension; without one there is one sample."""
    has_batch = array.ndim > 2
    if array.ndim < 2 or (not has_batch and count > 1) or (has_batch and len(array) < count):
        raise ShapeError(
            f"an output of shape {list(array.shape)} does not hold boxes of {count} samples",
            hint="boxes are [samples, boxes, numbers]",
            shape=list(array.shape),
            samples=count,
        )
    array = array[:count] if has_batch else array[None]
    if decoding.transposed:
        array = array.swapaxes(-1, -2)
    return array.reshape(len(array), math.prod(array.shape[1:-1]), array.shape[-1]), has_batch


def _per_box(array: Array, shape: tuple[int, ...], has_batch: bool, what: str) -> Array:
    """[samples, boxes] or [samples, boxes, classes], as many as the boxes."""
    if has_batch and array.ndim:
        array = array[: shape[0]]
    boxes = shape[0] * shape[1]
    if array.size == boxes:
        return array.reshape(shape)
    if boxes and array.size % boxes == 0 and array.shape[-1] == array.size // boxes:
        return array.reshape(*shape, -1)
    raise ShapeError(
        f"{what} of shape {list(array.shape)} do not fit {shape[0]} x {shape[1]} boxes",
        shape=list(array.shape),
        boxes=shape[1],
    )


def _counts(array: Array, samples: int, boxes: int) -> list[int]:
    """How many places of each sample hold a box."""
    numbers = array.reshape(-1)[:samples].tolist()
    if len(numbers) < samples or not all(map(math.isfinite, numbers)):
        raise ShapeError(
            f"a count of shape {list(array.shape)} does not say how many boxes each of {samples} samples has",
            shape=list(array.shape),
            samples=samples,
        )
    return [min(max(round(number), 0), boxes) for number in numbers]


def _best(scores: Array) -> tuple[Array, Array]:
    """The highest score of each box and its class; of equal scores the first class."""
    if not scores.shape[1]:
        return scores.max(axis=-1, initial=0), np.zeros(scores.shape[:2], np.int64)
    classes = scores.argmax(axis=-1)
    return np.take_along_axis(scores, classes[..., None], axis=-1)[..., 0], classes


def _to_original(edges: Array, decoding: DecodeBoxes, steps: Sequence[Step], size: Pair) -> Array:
    """The model's coordinates -> pixels of the image, cut at its borders."""
    result = np.empty_like(edges)
    for place_of, axis in zip((1, 0), place(steps, *size), strict=True):
        factor, term = axis.to_original()
        unit = axis.extent if decoding.coordinates == "normalized" else 1
        for column in (place_of, place_of + 2):
            result[:, column] = np.clip(edges[:, column] * unit * factor + term, 0, axis.original)
    return result


def _unusable(what: str) -> StepError:
    return StepError(
        f"the model's {what} cannot be used: some are infinite or not a number",
        hint="does the preprocessing fit the model?",
        step="boxes",
    )
