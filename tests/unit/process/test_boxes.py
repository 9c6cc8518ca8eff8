"""Formats of boxes, how much they overlap, and suppression against a plain reference."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlmodelscope.process.boxes import areas, corners, overlaps, suppress

# whole numbers: areas and quotients can then be compared exactly
edge = st.integers(0, 12)
a_box = st.tuples(edge, edge, edge, edge)
side = st.integers(1, 12)
a_full_box = st.builds(lambda x, y, width, height: (x, y, x + width, y + height), edge, edge, side, side)


def area(box):
    return max(0, box[2] - box[0]) * max(0, box[3] - box[1])


def iou(one, other):
    common = area((max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3])))
    union = area(one) + area(other) - common
    return Fraction(common, union) if union else Fraction(0)


def greedy(boxes, classes, threshold, most):
    """The definition, one pair at a time."""
    kept = []
    for index, box in enumerate(boxes):
        rivals = [k for k in kept if classes is None or classes[k] == classes[index]]
        if all(iou(boxes[k], box) <= threshold for k in rivals) and (most is None or len(kept) < most):
            kept.append(index)
    return kept


@pytest.mark.parametrize(
    "form, values",
    [
        ("xyxy", [10, 20, 40, 80]),
        ("yxyx", [20, 10, 80, 40]),
        ("xywh", [10, 20, 30, 60]),
        ("cxcywh", [25, 50, 30, 60]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
def test_every_format_has_the_same_corners(form, values, dtype):
    found = corners(np.array([values], dtype), form)
    assert found.dtype == np.float64
    assert found.tolist() == [[10, 20, 40, 80]]


def test_boxes_turned_inside_out_have_no_area():
    assert areas(np.array([[4.0, 0, 1, 9], [0, 5, 3, 5], [0, 0, 2, 3]])).tolist() == [0, 0, 6]


@given(a_box, st.lists(a_box, max_size=8))
def test_overlaps_are_intersection_over_union(box, others):
    found = overlaps(np.array(box, float), np.array(others, float).reshape(-1, 4))
    assert found.tolist() == [float(iou(box, other)) for other in others]


@given(a_full_box, a_full_box, st.floats(0.01, 100), st.floats(0.01, 100))
def test_overlap_does_not_change_with_the_scale_of_an_axis(one, other, across, down):
    factors = np.array([across, down, across, down])
    first, second = np.array(one, float), np.array([other], float)
    before, after = overlaps(first, second), overlaps(first * factors, second * factors)
    np.testing.assert_allclose(after, before, rtol=1e-9, atol=1e-12)


@given(
    st.lists(st.tuples(a_box, st.integers(0, 2)), max_size=14),
    st.fractions(0, 1, max_denominator=8),
    st.booleans(),
    st.none() | st.integers(1, 5),
)
def test_suppression_is_the_greedy_definition(rows, threshold, class_aware, most):
    boxes, classes = [box for box, _ in rows], [number for _, number in rows]
    found = suppress(
        np.array(boxes, float).reshape(-1, 4), np.array(classes) if class_aware else None, float(threshold), most
    )
    # eighths are exact in binary, a quotient of small areas is rounded the same way on both sides
    expected = greedy(boxes, classes if class_aware else None, threshold, most)
    assert found.tolist() == expected


def test_an_overlap_of_just_the_limit_stays():
    boxes = np.array([[0.0, 0, 2, 2], [0, 0, 2, 1], [0, 0, 2, 1.001]])
    assert suppress(boxes, None, 0.5, None).tolist() == [0, 1]
