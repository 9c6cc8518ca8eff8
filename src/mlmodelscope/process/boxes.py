"""Rows of four numbers -> corners of boxes, and overlapping boxes -> the best of them. All in float64.

Corners are (left, top, right, bottom). A box whose right edge is not right of its left, or whose bottom is not below
its top, has no area.
"""

from __future__ import annotations

import numpy as np

from mlmodelscope.core.steps import BoxFormat
from mlmodelscope.process.elements import Array

__all__ = ["areas", "corners", "overlaps", "suppress"]


def corners(values: Array, form: BoxFormat) -> Array:
    """Rows of four numbers as `form` says -> float64 rows of left, top, right, bottom."""
    numbers = values.astype(np.float64)
    if form == "xyxy":
        return numbers
    if form == "yxyx":
        return numbers[:, [1, 0, 3, 2]]
    first, sizes = numbers[:, :2], numbers[:, 2:]
    with np.errstate(all="ignore"):
        if form == "cxcywh":
            first = first - sizes / 2
        return np.concatenate([first, first + sizes], axis=1)


def areas(boxes: Array) -> Array:
    with np.errstate(all="ignore"):
        sides = np.maximum(boxes[..., 2:] - boxes[..., :2], 0.0)
    product: Array = sides[..., 0] * sides[..., 1]
    return product


def overlaps(box: Array, others: Array) -> Array:
    """Intersection over union of one box with each of the others; 0 where the union has no area."""
    common = areas(np.concatenate([np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])], axis=1))
    union = areas(box) + areas(others) - common
    shares: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return shares


def suppress(boxes: Array, classes: Array | None, iou: float, most: int | None) -> Array:
    """Positions of the boxes that stay, in their order, which is from the best to the worst.

    Greedy: a box stays unless a box before it that stays overlaps it by more than `iou`; with `classes`, only boxes of
    its own class can take it away. `most` is how many may stay.
    """
    kept: list[int] = []
    is_open = np.ones(len(boxes), bool)
    for position in range(len(boxes)):
        if not is_open[position]:
            continue
        kept.append(position)
        if len(kept) == most:
            break
        rest = position + 1 + np.flatnonzero(is_open[position + 1 :])
        if classes is not None:
            rest = rest[classes[rest] == classes[position]]
        if len(rest):
            is_open[rest[overlaps(boxes[position], boxes[rest]) > iou]] = False
    return np.array(kept, np.intp)
