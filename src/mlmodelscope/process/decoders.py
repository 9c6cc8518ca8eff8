"""The bytes of an image file -> a Pillow image or an array of bytes, by the real library that the step names.

Orientation tags are ignored by both decoders: the pixels are taken as they are stored.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from mlmodelscope.core.errors import EnvironmentMissingError, InputError
from mlmodelscope.core.steps import ColorLayout
from mlmodelscope.process.elements import Array, reverse_channels

__all__ = ["array_decoder", "image_size", "load_opencv", "opencv_decoder", "pillow_decoder"]

Image.preinit()

# How each format marks its end. OpenCV may fill a cut file with gray and say nothing; the tail is cheap to look at.
_JPEG_START, _JPEG_SCAN, _JPEG_END = b"\xff\xd8\xff", b"\xff\xda", b"\xff\xd9"
_PNG_START, _PNG_END = b"\x89PNG", b"IEND"


def load_opencv() -> Any:
    try:
        import cv2
    except ImportError:
        raise EnvironmentMissingError(
            "this pipeline uses OpenCV, which is not installed", hint="pip install 'mlmodelscope[opencv]'"
        ) from None
    return cv2


def pillow_decoder(color: ColorLayout) -> Callable[[Any], Image.Image]:
    """Encoded bytes or a path -> a loaded image of mode RGB or L. Blue first is made when the pixels are read out."""
    mode = "L" if color == "GRAY" else "RGB"

    def decode(data: Any) -> Image.Image:
        encoded = _encoded(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            try:
                image: Image.Image = Image.open(BytesIO(encoded))
                # the warning alone would not do: filters are shared by all threads, and another may be changing them
                if image.width * image.height > (Image.MAX_IMAGE_PIXELS or math.inf):
                    raise Image.DecompressionBombError(f"{image.width} x {image.height} pixels are too many")
                # converting an image to its own mode would only copy it
                if image.mode == mode:
                    image.load()
                else:
                    image = image.convert(mode)
            except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
                raise _too_large(str(error)) from None
            except UnidentifiedImageError:
                raise _undecodable("pillow", "not an image of a known format", len(encoded)) from None
            except MemoryError:
                raise _too_large("its pixels do not fit into memory") from None
            except Exception as error:  # a damaged file makes the format readers raise nearly anything
                raise _undecodable("pillow", str(error) or type(error).__name__, len(encoded)) from None
        return image

    return decode


def opencv_decoder(color: ColorLayout, memory: ColorLayout) -> Callable[[Any], Array]:
    """Encoded bytes or a path -> height-width-channel bytes in the order `memory` (GRAY: one channel)."""
    cv2 = load_opencv()
    kind = cv2.IMREAD_GRAYSCALE if color == "GRAY" else cv2.IMREAD_COLOR
    flags = kind | cv2.IMREAD_IGNORE_ORIENTATION

    def decode(data: Any) -> Array:
        encoded = _encoded(data)
        if not encoded or _is_cut(encoded):
            raise _undecodable("opencv", "image file is truncated" if encoded else "the file is empty", len(encoded))
        try:
            array: Array | None = cv2.imdecode(np.frombuffer(encoded, np.uint8), flags)
        except cv2.error as error:
            raise _undecodable("opencv", str(error.err or error), len(encoded)) from None
        if array is None:
            raise _undecodable("opencv", "not an image of a known format, or damaged", len(encoded))
        if color == "GRAY":
            return array[:, :, None]
        return cv2.cvtColor(array, cv2.COLOR_BGR2RGB) if memory == "RGB" else array

    return decode


def array_decoder(decoder: str, color: ColorLayout, memory: ColorLayout) -> Callable[[Array], Array]:
    """Pixels that need no decoding (height, width, RGB bytes) -> the same in the order `memory`, or gray."""

    def decode(array: Array) -> Array:
        pixels = _pixels(array)
        if color != "GRAY":
            return pixels if memory == "RGB" else reverse_channels(pixels)
        if decoder == "opencv":
            cv2 = load_opencv()
            mixed: Array = cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)
        else:
            mixed = np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("L"))
        return mixed[:, :, None]

    return decode


def image_size(data: Any) -> tuple[int, int]:
    """(height, width) of a sample that decodes: read from the file's header where Pillow knows the format."""
    if isinstance(data, np.ndarray):
        if data.ndim < 2:
            raise InputError("an image given as an array has a height and a width", shape=list(data.shape))
        return data.shape[0], data.shape[1]
    encoded = _encoded(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(BytesIO(encoded)) as image:
                return image.height, image.width
        except Exception:  # a format, or a size, that only the other decoder takes
            height, width = opencv_decoder("RGB", "BGR")(encoded).shape[:2]
            return height, width


def _pixels(array: Array) -> Array:
    if array.dtype == np.uint8 and array.size:
        if array.ndim == 3 and array.shape[2] == 3:
            return array
        if array.ndim == 2 or (array.ndim == 3 and array.shape[2] == 1):
            return np.repeat(array.reshape(*array.shape[:2], 1), 3, axis=2)
    raise InputError(
        f"an image given as an array must be height x width x 3 bytes, not {list(array.shape)} of {array.dtype}",
        shape=list(array.shape),
        element_type=str(array.dtype),
    )


def _encoded(data: Any) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    if isinstance(data, str | Path):
        try:
            return Path(data).read_bytes()
        except OSError as error:
            raise InputError(f"cannot read {data}: {error.strerror or error}", file=str(data)) from None
    raise InputError(
        f"a sample to decode must be the bytes of a file, a path or an array, not {type(data).__name__}",
        type=type(data).__name__,
    )


def _is_cut(encoded: bytes) -> bool:
    if encoded.startswith(_JPEG_START):
        return encoded.rfind(_JPEG_END) < encoded.rfind(_JPEG_SCAN)
    return encoded.startswith(_PNG_START) and _PNG_END not in encoded[-4096:] and _PNG_END not in encoded


def _undecodable(decoder: str, reason: str, size: int) -> InputError:
    return InputError(
        f"cannot decode the image: {reason}",
        hint=None if size else "the file is empty",
        decoder=decoder,
        reason=reason,
        size_bytes=size,
    )


def _too_large(reason: str) -> InputError:
    return InputError(f"refusing to decode the image: {reason}", reason=reason, limit_pixels=Image.MAX_IMAGE_PIXELS)
