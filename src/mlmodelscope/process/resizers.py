"""Images and arrays -> cropped, scaled and padded ones, by Pillow or OpenCV as the step says.

Each function takes a step and gives a stage. Arrays are height-width-channel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from mlmodelscope.core.errors import StepError
from mlmodelscope.core.steps import Crop, Pad, Resize
from mlmodelscope.process.decoders import load_opencv
from mlmodelscope.process.elements import Array, ArrayStage, saturated
from mlmodelscope.process.geometry import border, center, crop_window, scaled_size

__all__ = ["array_crop", "array_pad", "array_resize", "image_crop", "image_pad", "image_resize"]

ImageStage = Callable[[Image.Image], Image.Image]

_PILLOW_METHODS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "area": Image.Resampling.BOX,
    "lanczos": Image.Resampling.LANCZOS,
}
_OPENCV_METHODS = {
    "nearest": "INTER_NEAREST",
    "bilinear": "INTER_LINEAR",
    "bicubic": "INTER_CUBIC",
    "area": "INTER_AREA",
    "lanczos": "INTER_LANCZOS4",
}
_OPENCV_TYPES = ("uint8", "uint16", "int16", "float32", "float64")
_BYTE = np.dtype(np.uint8)


def image_crop(step: Crop) -> ImageStage:
    def run(image: Image.Image) -> Image.Image:
        width, height = image.size
        return _cut(image, *crop_window(step, height, width))

    return run


def image_pad(step: Pad) -> ImageStage:
    fill = int(saturated(step.value, _BYTE))

    def run(image: Image.Image) -> Image.Image:
        width, height = image.size
        return _framed(image, step.size, border(step, height, width), fill)

    return run


def image_resize(step: Resize) -> ImageStage:
    method = _PILLOW_METHODS[step.method]
    fill = int(saturated(step.fill, _BYTE))

    def scale(image: Image.Image) -> Image.Image:
        width, height = image.size
        target = scaled_size(step, height, width)
        return image if target == (height, width) else image.resize((target[1], target[0]), method)

    def cover(image: Image.Image) -> Image.Image:
        scaled, size = scale(image), _size_of(step)
        return _cut(scaled, *center((scaled.height, scaled.width), size), *size)

    def letterbox(image: Image.Image) -> Image.Image:
        scaled, size = scale(image), _size_of(step)
        return _framed(scaled, size, center(size, (scaled.height, scaled.width)), fill)

    match step.keep_aspect_ratio:
        case "cover":
            return cover
        case "letterbox":
            return letterbox
        case _:
            return scale


def array_crop(step: Crop) -> ArrayStage:
    def run(array: Array) -> Array:
        height, width = _extent(array, "crop")
        top, left, rows, columns = crop_window(step, height, width)
        return array[top : top + rows, left : left + columns]

    return run


def array_pad(step: Pad, dtype: np.dtype[Any]) -> ArrayStage:
    fill = saturated(step.value, dtype)

    def run(array: Array) -> Array:
        height, width = _extent(array, "pad")
        return _filled(array, step.size, border(step, height, width), fill)

    return run


def array_resize(step: Resize, dtype: np.dtype[Any]) -> ArrayStage:
    resample = _opencv(step, dtype) if step.resizer == "opencv" else _pillow(step, dtype)
    fill = saturated(step.fill, dtype)

    def scale(array: Array) -> Array:
        height, width = _extent(array, "resize")
        target = scaled_size(step, height, width)
        return array if target == (height, width) else resample(array, target)

    def cover(array: Array) -> Array:
        scaled, size = scale(array), _size_of(step)
        top, left = center((scaled.shape[0], scaled.shape[1]), size)
        return scaled[top : top + size[0], left : left + size[1]]

    def letterbox(array: Array) -> Array:
        scaled, size = scale(array), _size_of(step)
        return _filled(scaled, size, center(size, (scaled.shape[0], scaled.shape[1])), fill)

    match step.keep_aspect_ratio:
        case "cover":
            return cover
        case "letterbox":
            return letterbox
        case _:
            return scale


def _opencv(step: Resize, dtype: np.dtype[Any]) -> Callable[[Array, tuple[int, int]], Array]:
    if dtype.name not in _OPENCV_TYPES:
        raise _wrong_type("opencv", dtype, _OPENCV_TYPES)
    cv2 = load_opencv()
    method = getattr(cv2, _OPENCV_METHODS[step.method])

    def resample(array: Array, target: tuple[int, int]) -> Array:
        scaled: Array = cv2.resize(np.ascontiguousarray(array), (target[1], target[0]), interpolation=method)
        return scaled.reshape(*target, array.shape[2])

    return resample


def _pillow(step: Resize, dtype: np.dtype[Any]) -> Callable[[Array, tuple[int, int]], Array]:
    if dtype != _BYTE and dtype.kind != "f":
        raise _wrong_type("pillow", dtype, ("uint8", "float16", "float32", "float64"))
    method = _PILLOW_METHODS[step.method]
    plane_type = _BYTE if dtype == _BYTE else np.dtype(np.float32)

    def resample(array: Array, target: tuple[int, int]) -> Array:
        size = (target[1], target[0])
        if dtype == _BYTE and array.shape[2] == 3:
            return np.asarray(Image.fromarray(np.ascontiguousarray(array)).resize(size, method))
        result = np.empty((*target, array.shape[2]), dtype)
        for channel in range(array.shape[2]):
            plane = np.ascontiguousarray(array[:, :, channel], plane_type)
            result[:, :, channel] = np.asarray(Image.fromarray(plane).resize(size, method))
        return result

    return resample


def _cut(image: Image.Image, top: int, left: int, height: int, width: int) -> Image.Image:
    if (width, height) == image.size:
        return image
    return image.crop((left, top, left + width, top + height))


def _framed(image: Image.Image, size: tuple[int, int], corner: tuple[int, int], fill: int) -> Image.Image:
    if (size[1], size[0]) == image.size:
        return image
    frame = Image.new(image.mode, (size[1], size[0]), fill if image.mode == "L" else (fill, fill, fill))
    frame.paste(image, (corner[1], corner[0]))
    return frame


def _filled(array: Array, size: tuple[int, int], corner: tuple[int, int], fill: Any) -> Array:
    frame = np.full((*size, array.shape[2]), fill, array.dtype)
    top, left = corner
    frame[top : top + array.shape[0], left : left + array.shape[1]] = array
    return frame


def _extent(array: Array, step: str) -> tuple[int, int]:
    if array.ndim != 3 or not array.size:
        raise StepError(
            f"{step} needs an image of height x width x channels, the data has the shape {list(array.shape)}",
            step=step,
            shape=list(array.shape),
        )
    return array.shape[0], array.shape[1]


def _size_of(step: Resize) -> tuple[int, int]:
    assert step.size is not None
    return step.size


def _wrong_type(resizer: str, dtype: np.dtype[Any], known: tuple[str, ...]) -> StepError:
    return StepError(
        f"the {resizer} resizer cannot scale elements of type {dtype}",
        hint=f"it takes {', '.join(known)}: put a cast before or after the resize",
        step="resize",
        resizer=resizer,
        element_type=str(dtype),
    )
