"""Boxes drawn on a picture, looked at pixel by pixel."""

from io import BytesIO

import pytest
from PIL import Image

from mlmodelscope.core.answer import Box, Boxes
from mlmodelscope.core.errors import InputError
from mlmodelscope.show.pictures import draw_boxes

GRAY = (40, 40, 40)


def encoded(size=(200, 150), mode="RGB", **options):
    file = BytesIO()
    Image.new(mode, size, 40 if mode == "L" else GRAY).save(file, "PNG", **options)
    return file.getvalue()


def box(left, top, right, bottom, *, index=0, score=0.9, label="cat"):
    return Box(index=index, label=label, score=score, left=left, top=top, right=right, bottom=bottom)


def drawn(*boxes, size=(200, 150), **options):
    return draw_boxes(encoded(size), Boxes(height=size[1], width=size[0], boxes=boxes), **options)


def test_the_edges_of_a_box_are_inside_it():
    picture = drawn(box(50, 60, 150, 120))
    outline = picture.getpixel((149, 119))
    assert outline != GRAY
    assert [picture.getpixel(place) for place in ((50, 100), (51, 100), (148, 100), (100, 118))] == [outline] * 4
    assert [picture.getpixel(place) for place in ((49, 100), (150, 100), (100, 120), (100, 90))] == [GRAY] * 4


def test_classes_have_colours_of_their_own():
    picture = drawn(box(10, 60, 60, 120), box(80, 60, 120, 120, index=7), box(130, 60, 190, 120))
    first, second, third = (picture.getpixel((x, 119)) for x in (30, 100, 160))
    assert first == third != second


def test_what_scores_too_little_is_not_drawn():
    picture = drawn(box(50, 60, 150, 120, score=0.29), min_score=0.3)
    assert picture.getcolors() == [(200 * 150, GRAY)]


def test_a_label_has_room_at_every_border():
    whole = drawn(box(0, 0, 200, 150), box(190, 140, 200, 150, label="a longer name than fits"), box(0, 0, 1, 1))
    assert whole.size == (200, 150)
    assert drawn(box(0, 0, 3, 2), size=(3, 2)).size == (3, 2)


def test_labels_of_boxes_in_one_place_do_not_hide_each_other():
    one = drawn(box(20, 60, 180, 140))
    two = drawn(box(20, 60, 180, 140), box(20, 60, 180, 140, score=0.5))

    def ink(picture):
        return sum(count for count, colour in picture.getcolors(100000) if colour != GRAY)

    assert ink(two) > 1.3 * ink(one)


def test_gray_pictures_are_drawn_in_colour():
    picture = draw_boxes(encoded(mode="L"), Boxes(height=150, width=200, boxes=(box(50, 60, 150, 120),)))
    assert picture.mode == "RGB"


def test_what_is_no_picture():
    with pytest.raises(InputError, match="cannot draw"):
        draw_boxes(b"text", Boxes(height=1, width=1, boxes=()))
