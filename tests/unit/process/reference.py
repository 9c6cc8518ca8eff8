"""Each input step written as the plain Pillow, OpenCV or NumPy call it stands for, one after the other."""

import math
from io import BytesIO

import cv2
import numpy as np
from PIL import Image

PILLOW = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "area": Image.Resampling.BOX,
    "lanczos": Image.Resampling.LANCZOS,
}
OPENCV = {
    "nearest": cv2.INTER_NEAREST,
    "bilinear": cv2.INTER_LINEAR,
    "bicubic": cv2.INTER_CUBIC,
    "area": cv2.INTER_AREA,
    "lanczos": cv2.INTER_LANCZOS4,
}


def encode(array, kind="PNG", **options):
    stream = BytesIO()
    Image.fromarray(array).save(stream, kind, **options)
    return stream.getvalue()


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def element(value, name):
    """One Python number under the rules of cast."""
    dtype = np.dtype(name)
    if dtype.kind == "b":
        return bool(value)
    if dtype.kind == "f":
        return dtype.type(value)
    if math.isnan(value):
        return 0
    limits = np.iinfo(dtype)
    if math.isinf(value):
        return limits.max if value > 0 else limits.min
    return min(max(math.trunc(value), limits.min), limits.max)


def cast(array, name):
    values = [element(value, name) for value in array.ravel().tolist()]
    return np.array(values, dtype=name).reshape(array.shape)


class Reference:
    """The state of a sample: pixels as height-width-channel, beside what the manifest calls them."""

    def __init__(self, data, step):
        if step.decoder == "pillow":
            image = Image.open(BytesIO(data)).convert("L" if step.color_layout == "GRAY" else "RGB")
            pixels = np.asarray(image)
            pixels = pixels[:, :, ::-1] if step.color_layout == "BGR" else pixels
        else:
            kind = cv2.IMREAD_GRAYSCALE if step.color_layout == "GRAY" else cv2.IMREAD_COLOR
            pixels = cv2.imdecode(np.frombuffer(data, np.uint8), kind | cv2.IMREAD_IGNORE_ORIENTATION)
            pixels = pixels[:, :, ::-1] if step.color_layout == "RGB" else pixels
        self.pixels = cast(pixels.reshape(*pixels.shape[:2], -1), step.element_type)
        self.color = step.color_layout
        self.layout = step.data_layout

    def run(self, steps):
        for step in steps:
            getattr(self, f"do_{step.step}")(step)
        result = self.pixels.transpose(2, 0, 1) if self.layout == "CHW" else self.pixels
        return np.ascontiguousarray(result)

    def do_crop(self, step):
        height, width = self.pixels.shape[:2]
        rows, columns = step.size or (
            max(1, math.floor(height * step.percentage / 100 + 0.5)),
            max(1, math.floor(width * step.percentage / 100 + 0.5)),
        )
        top, left = ((height - rows) // 2, (width - columns) // 2) if step.method == "center" else (0, 0)
        self.pixels = self.pixels[top : top + rows, left : left + columns]

    def do_resize(self, step):
        height, width = self.pixels.shape[:2]
        if step.shorter_side:
            scale = step.shorter_side / min(height, width)
        elif step.max_dimension:
            scale = min(1, step.max_dimension / max(height, width))
        elif step.keep_aspect_ratio == "squash":
            scale = None
        else:
            pick = max if step.keep_aspect_ratio == "cover" else min
            scale = pick(step.size[0] / height, step.size[1] / width)
        if scale is None:
            target = step.size
        else:
            target = (max(1, math.floor(height * scale + 0.5)), max(1, math.floor(width * scale + 0.5)))
        self.pixels = self._scaled(step, *target)
        if step.keep_aspect_ratio == "cover":
            top, left = (target[0] - step.size[0]) // 2, (target[1] - step.size[1]) // 2
            self.pixels = self.pixels[top : top + step.size[0], left : left + step.size[1]]
        if step.keep_aspect_ratio == "letterbox":
            self._pad(step.size, step.fill, "center")

    def _scaled(self, step, height, width):
        channels = self.pixels.shape[2]
        if step.resizer == "opencv":
            scaled = cv2.resize(np.ascontiguousarray(self.pixels), (width, height), interpolation=OPENCV[step.method])
            return scaled.reshape(height, width, channels)
        planes = [
            np.asarray(Image.fromarray(np.ascontiguousarray(plane)).resize((width, height), PILLOW[step.method]))
            for plane in np.moveaxis(self.pixels, 2, 0)
        ]
        return np.stack(planes, axis=2)

    def do_pad(self, step):
        self._pad(step.size, step.value, step.position)

    def _pad(self, size, value, position):
        height, width = self.pixels.shape[:2]
        top, left = ((size[0] - height) // 2, (size[1] - width) // 2) if position == "center" else (0, 0)
        border = ((top, size[0] - height - top), (left, size[1] - width - left), (0, 0))
        self.pixels = np.pad(self.pixels, border, constant_values=element(value, self.pixels.dtype.name))

    def do_color(self, step):
        if step.to == self.color:
            return
        if step.to == "GRAY":
            pixels = self.pixels if self.color == "RGB" else self.pixels[:, :, ::-1]
            if pixels.dtype == np.uint8:
                mixed = np.asarray(Image.fromarray(np.ascontiguousarray(pixels)).convert("L"))
            else:
                weights = np.array([0.299, 0.587, 0.114], pixels.dtype)
                mixed = pixels[..., 0] * weights[0] + pixels[..., 1] * weights[1] + pixels[..., 2] * weights[2]
            self.pixels = mixed[:, :, None]
        elif self.color == "GRAY":
            self.pixels = np.repeat(self.pixels, 3, axis=2)
        else:
            self.pixels = self.pixels[:, :, ::-1]
        self.color = step.to

    def do_layout(self, step):
        self.layout = step.to

    def do_cast(self, step):
        self.pixels = cast(self.pixels, step.element_type)

    def do_mean(self, step):
        self._arithmetic(np.subtract, step.value)

    def do_rescale(self, step):
        self._arithmetic(np.divide, step.value)

    def do_normalize(self, step):
        self._arithmetic(np.subtract, step.mean)
        self._arithmetic(np.divide, step.rescale)

    def do_batch(self, step):
        pass

    def _arithmetic(self, function, value):
        dtype = self.pixels.dtype
        if dtype.kind == "f":
            self.pixels = function(self.pixels, np.array(value, dtype))
        else:
            self.pixels = cast(function(self.pixels.astype(np.float64), np.array(value)), dtype.name)
