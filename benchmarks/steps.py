"""Pairs of functions with one result: a compiled step pipeline, and the same written by hand with Pillow and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import numpy as np
from PIL import Image, ImageFilter

from mlmodelscope.core.manifest import ModelInput
from mlmodelscope.core.steps import Cast, Crop, Decode, Mean, Normalize, Rescale, Resize, Step
from mlmodelscope.process.input import input_pipeline

__all__ = ["cases"]

Case = tuple[str, Callable[[], object], Callable[[], object]]

RESNET50_MEAN = (103.939, 116.779, 123.68)
RESNET50: tuple[Step, ...] = (
    Decode(decoder="pillow", color_layout="BGR"),
    Resize(shorter_side=256, method="bilinear"),
    Crop(size=(224, 224)),
    Cast(element_type="float32"),
    Normalize(mean=RESNET50_MEAN, rescale=1.0),
)
LISTING2: tuple[Step, ...] = (
    Decode(),
    Crop(percentage=87.5),
    Resize(size=(299, 299), keep_aspect_ratio="cover", method="bilinear"),
    Cast(element_type="float32"),
    Mean(value=(127.5, 127.5, 127.5)),
    Rescale(value=127.5),
)


def photo(height: int = 375, width: int = 500) -> bytes:
    """A JPEG file of about the size and smoothness of an ImageNet photo, the same on every run."""
    coarse = np.random.default_rng(1).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    stream = BytesIO()
    image.filter(ImageFilter.SHARPEN).save(stream, "JPEG", quality=92)
    return stream.getvalue()


def resnet50_by_hand(data: bytes) -> np.ndarray:
    image = Image.open(BytesIO(data)).convert("RGB")
    width, height = image.size
    shorter = min(width, height)
    image = image.resize(
        (int(width * 256 / shorter + 0.5), int(height * 256 / shorter + 0.5)), Image.Resampling.BILINEAR
    )
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    image = image.crop((left, top, left + 224, top + 224))
    pixels = np.asarray(image)[:, :, ::-1].astype(np.float32)
    pixels -= np.array(RESNET50_MEAN, np.float32)
    return np.ascontiguousarray(pixels)[None]


def listing2_by_hand(data: bytes) -> np.ndarray:
    image = Image.open(BytesIO(data)).convert("RGB")
    width, height = int(image.width * 0.875 + 0.5), int(image.height * 0.875 + 0.5)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    image = image.crop((left, top, left + width, top + height))
    scale = max(299 / width, 299 / height)
    image = image.resize((int(width * scale + 0.5), int(height * scale + 0.5)), Image.Resampling.BILINEAR)
    left, top = (image.width - 299) // 2, (image.height - 299) // 2
    pixels = np.asarray(image.crop((left, top, left + 299, top + 299))).astype(np.float32)
    pixels -= np.float32(127.5)
    pixels /= np.float32(127.5)
    return pixels[None]


def cases() -> list[Case]:
    """(name, ours, by hand); both give the same bits, which is checked here."""
    data = photo()
    found = []
    for name, steps, by_hand in (("resnet50", RESNET50, resnet50_by_hand), ("listing2", LISTING2, listing2_by_hand)):
        found.append(_case(name, steps, by_hand, data))
    return found


def _case(name: str, steps: tuple[Step, ...], by_hand: Callable[[bytes], np.ndarray], data: bytes) -> Case:
    pipeline = input_pipeline(ModelInput(type="image", steps=steps))
    ours, expected = pipeline.prepare(data), by_hand(data)
    assert ours.dtype == expected.dtype
    assert np.array_equal(ours, expected), name
    return name, lambda: pipeline.prepare(data), lambda: by_hand(data)
