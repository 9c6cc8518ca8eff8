"""One image file with a sample in every row of pixels -> a data set that reads the rows from a memory-mapped file.

The image is decoded once, into an array file in the cache folder; afterwards nothing of the size of the set is in
memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.errors import HostError, InputError, SampleError
from mlmodelscope.core.manifest import ImageStrip
from mlmodelscope.core.sample import Sample
from mlmodelscope.datasets.files import unreadable

__all__ = ["StripDataset", "open_image_strip"]


class StripDataset:
    """Samples of height x width x 3 bytes. A sample's id is its row."""

    def __init__(self, pixels: NDArray[np.uint8], labels: list[int]) -> None:
        self._pixels = pixels
        self._labels = labels

    def __len__(self) -> int:
        return len(self._labels)

    def get(self, index: int) -> Sample:
        try:
            # a copy: a sample must outlive the mapping, and a truncated file shows here
            data = np.array(self._pixels[index])
        except (OSError, ValueError) as error:
            name = self.ids()[index]
            raise SampleError(f"cannot read the sample {name}: {error}", sample=name) from None
        return Sample(f"{index:06d}", data, self._labels[index])

    def __iter__(self) -> Iterator[Sample]:
        return (self.get(index) for index in range(len(self)))

    def ids(self) -> list[str]:
        return [f"{index:06d}" for index in range(len(self))]


def open_image_strip(layout: ImageStrip, resolve: Callable[[Asset], Path], cache: Path) -> StripDataset:
    """Decode the image into `cache` unless it was done before; the file's name is the digest of the image."""
    image, labels = resolve(layout.image), _labels(resolve(layout.labels))
    try:
        with image.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(image, error) from None
    target = cache / f"{digest}.npy"
    rows = _mapped(target)
    if rows is None:
        _decode(image, target)
        rows = _mapped(target)
        assert rows is not None
    height, width = layout.sample_size
    if rows.shape[1] != height * width:
        raise InputError(
            f"a row of {image.name} has {rows.shape[1]} pixels, a sample of {height}x{width} has {height * width}",
            file=str(image),
            row_pixels=rows.shape[1],
        )
    if len(rows) != len(labels):
        raise InputError(f"{image.name} has {len(rows)} rows for {len(labels)} labels", file=str(image))
    return StripDataset(rows.reshape(len(rows), height, width, 3), labels)


def _labels(path: Path) -> list[int]:
    try:
        values = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeError) as error:
        raise unreadable(path, error) from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}", file=str(path)) from None
    if not isinstance(values, list) or not values:
        raise InputError(f"{path} must hold a list of class indices", file=str(path))
    for place, value in enumerate(values):
        if type(value) is not int or value < 0:
            raise InputError(f"{path}: item {place} is {value!r}, not a class index", file=str(path), item=place)
    return values


def _mapped(target: Path) -> NDArray[np.uint8] | None:
    try:
        rows: NDArray[Any] = np.load(target, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        return None
    return rows if rows.dtype == np.uint8 and rows.ndim == 3 and rows.shape[2] == 3 else None


def _decode(image: Path, target: Path) -> None:
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(image) as opened:
                pixels = np.asarray(opened.convert("RGB"))
        except Exception as error:  # a damaged file makes the format readers raise nearly anything
            raise InputError(
                f"cannot decode {image.name}: {error or type(error).__name__}", file=str(image), reason=str(error)
            ) from None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, suffix=".part", delete=False) as stream:
            np.save(stream, pixels, allow_pickle=False)
        # whole or not at all: two processes may do this at once
        os.replace(stream.name, target)  # noqa: PTH105
    except OSError as error:
        raise HostError(f"cannot write {target}: {error.strerror or error}", hint="is the disk full?") from None
