"""Where an image lies in the tensor that the steps make of it, held against what the steps do to pixels."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.errors import StepError
from mlmodelscope.core.manifest import ModelInput
from mlmodelscope.core.steps import Cast, Crop, Decode, Layout, Normalize, Pad, Resize
from mlmodelscope.process.geometry import place
from mlmodelscope.process.input import input_pipeline

CHAINS = {
    "nothing": (),
    "squash": (Resize(size=(64, 48)),),
    "cover": (Resize(size=(60, 61), keep_aspect_ratio="cover"),),
    "fit": (Resize(size=(60, 61), keep_aspect_ratio="fit"),),
    "letterbox": (Resize(size=(60, 61), keep_aspect_ratio="letterbox", fill=114),),
    "shorter side": (Resize(shorter_side=50),),
    "max_dimension": (Resize(max_dimension=70),),
    "crop per cent": (Crop(percentage=87.5),),
    "crop size": (Crop(size=(41, 50)),),
    "crop top left": (Crop(method="top_left", percentage=70),),
    "pad": (Pad(size=(301, 303)),),
    "pad top left": (Pad(size=(301, 303), position="top_left"),),
    "resize and crop": (Resize(shorter_side=72), Crop(size=(64, 64)), Cast(element_type="float32"), Layout(to="CHW")),
    "crop and cover": (Crop(percentage=87.5), Resize(size=(66, 55), keep_aspect_ratio="cover"), Normalize(mean=1)),
    "all": (Resize(max_dimension=90), Crop(percentage=80), Pad(size=(95, 96)), Resize(size=(64, 70))),
}


def edges(mask):
    """(top, left, bottom, right) of what is set."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return rows[0], columns[0], rows[-1] + 1, columns[-1] + 1


@pytest.mark.parametrize("resizer", ["pillow", "opencv"])
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS.keys())
@pytest.mark.parametrize("height, width", [(100, 140), (181, 97), (120, 120)])
def test_a_mark_is_found_where_the_placement_says(chain, resizer, height, width):
    steps = tuple(s.model_copy(update={"resizer": resizer}) if isinstance(s, Resize) else s for s in chain)
    photo = np.zeros((height, width, 3), np.uint8)
    top, bottom = (round(height * share) for share in (0.4, 0.6))
    left, right = (round(width * share) for share in (0.45, 0.65))
    photo[top:bottom, left:right] = 255
    tensor = input_pipeline(ModelInput(type="image", steps=(Decode(), *steps))).prepare(photo)[0]
    image = tensor if tensor.shape[-1] == 3 else tensor.transpose(1, 2, 0)
    y, x = place(steps, height, width)
    assert (y.extent, x.extent) == image.shape[:2]
    assert (y.original, x.original) == (height, width)
    found = edges(image[..., 0] > 127.5)
    for value, axis, true in zip(found, (y, x, y, x), (top, left, bottom, right), strict=True):
        factor, term = axis.to_original()
        # half a pixel of the tensor is as well as a threshold can find an edge
        assert value * factor + term == pytest.approx(true, abs=0.75 * max(1.0, factor))


@pytest.mark.parametrize(
    "step, size, expected",
    [
        # factor and term of the vertical axis, then of the horizontal one
        (Resize(size=(320, 320)), (480, 640), ((1.5, 0), (2, 0))),
        (Resize(size=(320, 320), keep_aspect_ratio="letterbox"), (480, 640), ((2, -80), (2, 0))),
        (Resize(size=(320, 320), keep_aspect_ratio="cover"), (480, 640), ((1.5, 0), (640 / 427, 53 * 640 / 427))),
        (Resize(size=(320, 320), keep_aspect_ratio="fit"), (480, 640), ((2, 0), (2, 0))),
        (Resize(max_dimension=320), (480, 640), ((2, 0), (2, 0))),
        (Resize(max_dimension=640), (480, 640), ((1, 0), (1, 0))),
        (Crop(percentage=50), (480, 640), ((1, 120), (1, 160))),
        (Crop(method="top_left", percentage=50), (480, 640), ((1, 0), (1, 0))),
        (Pad(size=(640, 641)), (480, 640), ((1, -80), (1, 0))),
    ],
)
def test_the_way_back_to_the_number(step, size, expected):
    assert tuple(axis.to_original() for axis in place((step,), *size)) == expected


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 1000), st.integers(1, 1000))
def test_a_squash_maps_corner_to_corner(height, width, rows, columns):
    y, x = place((Resize(size=(rows, columns)),), height, width)
    for axis, true in ((y, height), (x, width)):
        factor, term = axis.to_original()
        assert axis.extent * factor + term == pytest.approx(true, rel=1e-12)
        assert term == 0


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 640), st.integers(1, 640))
def test_a_letterbox_holds_the_whole_image(height, width, rows, columns):
    for axis in place((Resize(size=(rows, columns), keep_aspect_ratio="letterbox"),), height, width):
        first, last = axis.offset, axis.original * axis.scale + axis.offset
        assert 0 <= first <= last <= axis.extent


def test_what_the_steps_cannot_do_has_no_place():
    with pytest.raises(StepError, match="larger than the image"):
        place((Crop(size=(224, 224)),), 100, 300)
