"""The size of an image and its geometric steps -> windows, sizes and borders; and where the image lies after them.

All of it is exact arithmetic of integers and fractions, so that every machine and every resizer works on the same
pixels. Sizes and positions are (height, width) and (top, left), as in a manifest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from mlmodelscope.core.errors import StepError
from mlmodelscope.core.steps import Crop, Pad, Resize, Step

__all__ = ["Axis", "Pair", "Placement", "border", "center", "crop_window", "place", "rounded", "scaled_size"]

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of an image that was cut, scaled and padded: the tensor's x is `scale` * the original's x + `offset`.

    Coordinates are those of edges: the first pixel lies between 0 and 1, `original` and `extent` are the far edges of
    the image and of the tensor.
    """

    original: int
    extent: int
    scale: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)

    def scaled(self, extent: int) -> Axis:
        factor = Fraction(extent, self.extent)
        return Axis(self.original, extent, self.scale * factor, self.offset * factor)

    def moved(self, by: int, extent: int) -> Axis:
        """The content `by` further down or right, in a new extent: negative for a cut, positive for a border."""
        return Axis(self.original, extent, self.scale, self.offset + by)

    def to_original(self) -> tuple[float, float]:
        """(factor, term): the original's x is the tensor's x * factor + term."""
        return float(1 / self.scale), float(-self.offset / self.scale)


Placement = tuple[Axis, Axis]


def place(steps: Iterable[Step], height: int, width: int) -> Placement:
    """Where an image of `height` x `width` lies in the tensor that `steps` make of it: vertical and horizontal axis."""
    y, x = Axis(height, height), Axis(width, width)
    for step in steps:
        match step:
            case Crop():
                top, left, rows, columns = crop_window(step, y.extent, x.extent)
                y, x = y.moved(-top, rows), x.moved(-left, columns)
            case Pad():
                top, left = border(step, y.extent, x.extent)
                y, x = y.moved(top, step.size[0]), x.moved(left, step.size[1])
            case Resize():
                rows, columns = scaled_size(step, y.extent, x.extent)
                y, x = y.scaled(rows), x.scaled(columns)
                if step.size is not None and step.keep_aspect_ratio == "cover":
                    top, left = center((rows, columns), step.size)
                    y, x = y.moved(-top, step.size[0]), x.moved(-left, step.size[1])
                elif step.size is not None and step.keep_aspect_ratio == "letterbox":
                    top, left = center(step.size, (rows, columns))
                    y, x = y.moved(top, step.size[0]), x.moved(left, step.size[1])
            case _:
                pass
    return y, x


def rounded(numerator: int, denominator: int) -> int:
    """The quotient of two positive numbers to the nearest integer, halves upwards, at least 1."""
    return max(1, (2 * numerator + denominator) // (2 * denominator))


def center(outer: Pair, inner: Pair) -> Pair:
    """Top left corner of `inner` in the middle of `outer`; an odd remainder leaves the extra pixel below and right."""
    return (outer[0] - inner[0]) // 2, (outer[1] - inner[1]) // 2


def crop_window(step: Crop, height: int, width: int) -> tuple[int, int, int, int]:
    """(top, left, height, width) of the part that `step` keeps."""
    if step.size is not None:
        window = step.size
    else:
        part, whole = float(step.percentage or 100).as_integer_ratio()
        window = rounded(height * part, whole * 100), rounded(width * part, whole * 100)
    if window[0] > height or window[1] > width:
        raise StepError(
            f"crop of {window[0]}x{window[1]} (height x width) is larger than the image of {height}x{width}",
            hint="put a resize before the crop",
            step="crop",
            wanted=list(window),
            size=[height, width],
        )
    top, left = center((height, width), window) if step.method == "center" else (0, 0)
    return top, left, window[0], window[1]


def scaled_size(step: Resize, height: int, width: int) -> Pair:
    """The size that the image is scaled to; `cover` is then cut and `letterbox` then padded to `step.size`."""
    if step.shorter_side is not None:
        return _with_side(step.shorter_side, height, width, height <= width)
    if step.max_dimension is not None:
        if max(height, width) <= step.max_dimension:
            return height, width
        return _with_side(step.max_dimension, height, width, height >= width)
    assert step.size is not None
    if step.keep_aspect_ratio == "squash":
        return step.size
    # height decides where the target is relatively taller (cover) or relatively lower (fit) than the image
    is_taller = step.size[0] * width >= step.size[1] * height
    by_height = is_taller if step.keep_aspect_ratio == "cover" else not is_taller
    return _with_side(step.size[0] if by_height else step.size[1], height, width, by_height)


def border(step: Pad, height: int, width: int) -> Pair:
    """(top, left) of the image inside the padded one."""
    if step.size[0] < height or step.size[1] < width:
        raise StepError(
            f"pad to {step.size[0]}x{step.size[1]} (height x width) is smaller than the image of {height}x{width}",
            hint="put a resize with keep_aspect_ratio: fit before the pad",
            step="pad",
            wanted=list(step.size),
            size=[height, width],
        )
    return center(step.size, (height, width)) if step.position == "center" else (0, 0)


def _with_side(side: int, height: int, width: int, by_height: bool) -> Pair:
    if by_height:
        return side, rounded(width * side, height)
    return rounded(height * side, width), side
