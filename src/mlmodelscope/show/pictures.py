"""Turns an image and the boxes found in it into a picture with the boxes drawn; pure."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from mlmodelscope.core.answer import Box, Boxes
from mlmodelscope.core.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

__all__ = ["draw_boxes"]

# told apart by people who see few colours too: Okabe and Ito's eight, without black and in another order
_COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#0072B2")
_DARK = ("#0072B2", "#D55E00", "#009E73")
_SMALLEST_TEXT = 11


class _Area(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Area) -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


def draw_boxes(encoded: bytes, answer: Boxes, *, min_score: float = 0.0) -> Image:
    """The image as its pixels are stored (orientation tags are not followed: the boxes are not either), with every box
    of at least `min_score`, its label and its score.
    """
    from PIL import Image, ImageDraw, ImageFont, UnidentifiedImageError

    try:
        picture = Image.open(BytesIO(encoded)).convert("RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise InputError(f"cannot draw on this image: {error}", reason=str(error)) from None
    scale = max(picture.size)
    font = ImageFont.load_default(max(_SMALLEST_TEXT, round(scale / 45)))
    draw = ImageDraw.Draw(picture)
    shown = [box for box in answer.boxes if box.score >= min_score]
    # by the classes of this picture: two of them are alike only if there are more than colours
    classes = sorted({box.index for box in shown})
    colours = {index: _COLOURS[place % len(_COLOURS)] for place, index in enumerate(classes)}
    # the best are drawn last, so that they lie on top
    for box in reversed(shown):
        edges = (box.left, box.top, max(box.left, box.right - 1), max(box.top, box.bottom - 1))
        draw.rectangle(edges, outline=colours[box.index], width=max(2, round(scale / 320)))
    taken: list[_Area] = []
    for box in shown:
        _label(draw, box, colours[box.index], font, picture.size, taken)
    return picture


def _label(draw: ImageDraw, box: Box, colour: str, font: Any, size: tuple[int, int], taken: list[_Area]) -> None:
    text = f"{box.label or f'class {box.index}'} {box.score:.2f}"
    left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
    margin = max(2, round((bottom - top) / 4))
    width, height = right - left + 2 * margin, bottom - top + 2 * margin
    places = [_inside(x, y, width, height, size) for x, y in _corners(box, width, height)]
    area = next((place for place in places if not any(place.meets(other) for other in taken)), places[0])
    taken.append(area)
    draw.rectangle(area, fill=colour)
    ink = "white" if colour in _DARK else "black"
    draw.text((area.left + margin - left, area.top + margin - top), text, font=font, fill=ink)


def _corners(box: Box, width: float, height: float) -> Iterator[tuple[float, float]]:
    """Where a label may go, the best place first: above the box, inside it, below it; left, then right."""
    for y in (box.top - height, box.top, box.bottom - height, box.bottom):
        for x in (box.left, box.right - width):
            yield x, y


def _inside(x: float, y: float, width: float, height: float, size: tuple[int, int]) -> _Area:
    left = min(max(0.0, x), max(0.0, size[0] - width))
    top = min(max(0.0, y), max(0.0, size[1] - height))
    return _Area(left, top, left + width, top + height)
