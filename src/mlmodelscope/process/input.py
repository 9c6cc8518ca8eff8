"""The steps of one model input -> a pipeline of plain functions that makes its tensor from a sample.

The steps are read once, when the pipeline is made. What only names an order (colour, layout) is not carried out where
it stands: geometry and arithmetic give the same bits in any order of channels, so the pixels are brought into the
final order in one pass, as bytes, and the constants of the arithmetic are reordered instead. Between a Pillow decoder
and Pillow's crop and resize the data stays a Pillow image. The result is, bit for bit, that of the steps done one by
one; tests hold it to that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from PIL import Image

from mlmodelscope.core.errors import InputError, ShapeError, StepError
from mlmodelscope.core.manifest import ModelInput
from mlmodelscope.core.steps import (
    Batch,
    Cast,
    Color,
    ColorLayout,
    Crop,
    DataLayout,
    Decode,
    Layout,
    Mean,
    Normalize,
    Pad,
    Rescale,
    Resize,
    Step,
)
from mlmodelscope.process.decoders import array_decoder, opencv_decoder, pillow_decoder
from mlmodelscope.process.elements import Array, ArrayStage, arithmetic, cast_array, gray, reverse_channels
from mlmodelscope.process.resizers import array_crop, array_pad, array_resize, image_crop, image_pad, image_resize

__all__ = ["InputPipeline", "input_pipeline", "stack"]

Stage = Callable[[Any], Any]
_BYTE = np.dtype(np.uint8)


class InputPipeline:
    """Makes one input tensor. One per worker; not thread-safe.

    `decode` and `transform` are apart so that each can be timed; what `decode` gives is for `transform` only.
    InputError: the sample cannot be decoded. StepError: a step refuses it.
    """

    def __init__(self, model_input: ModelInput) -> None:
        self._dtype = np.dtype(model_input.element_type)
        steps = model_input.steps
        self._decoding = steps[0] if steps and isinstance(steps[0], Decode) else None
        self._steps = steps[1:] if self._decoding else steps
        self._chains: dict[Any, list[Stage]] = {}
        if self._decoding:
            start = _start(self._decoding, self._steps)
            self._decode_file: Stage = (
                pillow_decoder(start.color)
                if self._decoding.decoder == "pillow"
                else opencv_decoder(start.color, start.memory_color)
            )
            self._decode_array: Stage = array_decoder(self._decoding.decoder, start.color, start.memory_color)
            self._chain(Image.Image if start.is_image else _BYTE)
        else:
            # an array of bytes is as good as any to find the mistakes that do not hang on the sample
            self._chain(_BYTE if self._has_geometry() else self._dtype)

    def decode(self, data: Any) -> Any:
        """Bytes of a file, a path or an array -> pixels in the form that `transform` takes."""
        if isinstance(data, np.ndarray):
            return self._decode_array(data) if self._decoding else data
        if self._decoding is None:
            raise InputError(
                f"a sample of this input must be an array, not {type(data).__name__}",
                hint="begin the steps with decode, or give a preprocess function",
                type=type(data).__name__,
            )
        return self._decode_file(data)

    def transform(self, decoded: Any) -> Array:
        """One sample's tensor, without the batch dimension."""
        chain = self._chain(decoded.dtype if isinstance(decoded, np.ndarray) else Image.Image)
        with np.errstate(all="ignore"):
            for stage in chain:
                decoded = stage(decoded)
        result: Array = decoded
        return result

    def batch(self, samples: Sequence[Array]) -> Array:
        return stack(samples)

    def prepare(self, data: Any) -> Array:
        """The tensor of a batch of one sample."""
        return self.transform(self.decode(data))[None]

    def _chain(self, start: Any) -> list[Stage]:
        chain = self._chains.get(start)
        if chain is None:
            chain = self._chains[start] = _Builder(self._form(start), self._all_steps(), self._dtype).build()
        return chain

    def _form(self, start: Any) -> _Form:
        if self._decoding:
            return replace(_start(self._decoding, self._steps), is_image=start is Image.Image)
        return _Form("RGB", "HWC", start, "RGB", is_image=False)

    def _all_steps(self) -> tuple[Step, ...]:
        if self._decoding and self._decoding.element_type != "uint8":
            return (Cast(element_type=self._decoding.element_type), *self._steps)
        return self._steps

    def _has_geometry(self) -> bool:
        return any(isinstance(step, Crop | Resize | Pad | Color) for step in self._steps)


def input_pipeline(model_input: ModelInput) -> InputPipeline:
    """The pipeline of one input. StepError where the steps cannot work on any sample."""
    return InputPipeline(model_input)


def stack(samples: Sequence[Array]) -> Array:
    """Samples behind a leading batch dimension; one sample is not copied."""
    if len(samples) == 1:
        return np.ascontiguousarray(samples[0])[None]
    shapes = {sample.shape for sample in samples}
    if len(shapes) > 1:
        raise ShapeError(
            f"samples of one batch differ in shape: {', '.join(str(list(shape)) for shape in sorted(shapes))}",
            hint="use a batch size of 1, or a resize step that gives every sample one size",
            shapes=[list(shape) for shape in sorted(shapes)],
        )
    return np.stack(samples)


@dataclass
class _Form:
    """What the manifest says of the data at one point (`color`, `layout`) and how it lies in memory there.

    In memory the data is height-width-channel until `is_turned`. `is_ours`: it may be written in place.
    """

    color: ColorLayout
    layout: DataLayout
    dtype: np.dtype[Any]
    memory_color: ColorLayout
    is_image: bool
    is_ours: bool = False
    is_turned: bool = False


def _start(step: Decode, rest: Sequence[Step]) -> _Form:
    color = step.color_layout
    return _Form(color, step.data_layout, _BYTE, _settled_color(color, rest), is_image=step.decoder == "pillow")


def _settled_color(color: ColorLayout, rest: Sequence[Step]) -> ColorLayout:
    """The order that the channels end in before they are mixed to gray (which wants red first) or handed over."""
    if color == "GRAY":
        return color
    for step in rest:
        if isinstance(step, Color):
            if step.to == "GRAY":
                return "RGB"
            color = step.to
    return color


def _is_spatial(step: Step) -> bool:
    return isinstance(step, Crop | Resize | Pad | Color)


class _Builder:
    """Walks the steps once and collects the stages."""

    def __init__(self, form: _Form, steps: Sequence[Step], dtype: np.dtype[Any]) -> None:
        self.form = form
        self.steps = steps
        self.dtype = dtype
        self.stages: list[Stage] = []
        self.layout: DataLayout = next((s.to for s in reversed(steps) if isinstance(s, Layout)), form.layout)
        self.tail = next((i + 1 for i in range(len(steps) - 1, -1, -1) if _is_spatial(steps[i])), 0)

    def build(self) -> list[Stage]:
        for index, step in enumerate(self.steps):
            if index == self.tail:
                self._turn()
            self._add(step, self.steps[index + 1 :])
        self._turn()
        self._read_out()
        if self.form.color != self.form.memory_color:
            self._reorder(self.form.color)
        self._cast(self.dtype)
        self.stages.append(np.ascontiguousarray)
        return self.stages

    def _add(self, step: Step, rest: Sequence[Step]) -> None:
        form = self.form
        match step:
            case Crop() | Resize() | Pad():
                self._geometry(step)
            case Color(to=to):
                self._color(to, rest)
            case Layout(to=to):
                form.layout = to
            case Cast(element_type=name):
                self._read_out()
                self._cast(np.dtype(name))
            case Mean(value=value):
                self._arithmetic("subtract", value)
            case Rescale(value=value):
                self._arithmetic("divide", value)
            case Normalize(mean=mean, rescale=rescale):
                self._arithmetic("subtract", mean)
                self._arithmetic("divide", rescale)
            case Batch():
                pass
            case _:
                raise StepError(
                    f"{step.step} is not a step of an input"
                    + (": decode can only be the first" if isinstance(step, Decode) else ""),
                    step=step.step,
                )

    def _geometry(self, step: Crop | Resize | Pad) -> None:
        if self.form.is_image and not (isinstance(step, Resize) and step.resizer == "opencv"):
            self.stages.append(_image_stage(step))
            return
        self._read_out()
        if isinstance(step, Resize) and self.form.dtype != _BYTE and self.form.color != self.form.memory_color:
            # OpenCV's filters on floating point give other last bits when the channels change places
            self._reorder(self.form.color)
        self.stages.append(_array_stage(step, self.form.dtype))
        # what a resize of nothing or a crop gives back is the array it was given
        self.form.is_ours = self.form.is_ours or isinstance(step, Pad)

    def _color(self, to: ColorLayout, rest: Sequence[Step]) -> None:
        form = self.form
        if to == form.color:
            return
        if "GRAY" in (to, form.color):
            mode = "L" if to == "GRAY" else "RGB"
            if form.is_image:
                self.stages.append(lambda image: image.convert(mode))
            else:
                if to == "GRAY" and form.memory_color != "RGB":
                    self._reorder("RGB")
                self.stages.append(gray if to == "GRAY" else _spread)
                form.is_ours = form.dtype != _BYTE or to != "GRAY"
            form.memory_color = _settled_color(to, rest)
        form.color = to

    def _arithmetic(self, operation: Literal["subtract", "divide"], value: float | tuple[float, ...]) -> None:
        self._read_out()
        form = self.form
        values = value if isinstance(value, tuple) else (value,)
        if form.dtype.kind == "f" and all(v == (0 if operation == "subtract" else 1) for v in values):
            return
        if isinstance(value, tuple) and form.color != form.memory_color:
            value = value[::-1]
        axis: Literal[0, -1] = 0 if form.is_turned else -1
        self.stages.append(arithmetic(operation, value, form.dtype, channel_axis=axis, in_place=form.is_ours))
        form.is_ours = True

    def _cast(self, dtype: np.dtype[Any]) -> None:
        if dtype == self.form.dtype:
            return
        self.stages.append(_widening(dtype) if self.form.dtype == _BYTE else lambda array: cast_array(array, dtype))
        self.form.dtype = dtype
        self.form.is_ours = True

    def _read_out(self) -> None:
        """A Pillow image becomes an array, in the settled order of channels."""
        if self.form.is_image:
            self.stages.append(_read_blue_first if self.form.memory_color == "BGR" else _read)
            self.form.is_image = False

    def _reorder(self, color: ColorLayout) -> None:
        self.stages.append(_reverse_planes if self.form.is_turned else reverse_channels)
        self.form.memory_color = color
        self.form.is_ours = True

    def _turn(self) -> None:
        if self.layout == "CHW" and not self.form.is_turned:
            self._read_out()
            self.stages.append(_planes)
            self.form.is_turned = True


def _image_stage(step: Crop | Resize | Pad) -> Stage:
    match step:
        case Crop():
            return image_crop(step)
        case Pad():
            return image_pad(step)
        case _:
            return image_resize(step)


def _array_stage(step: Crop | Resize | Pad, dtype: np.dtype[Any]) -> ArrayStage:
    match step:
        case Crop():
            return array_crop(step)
        case Pad():
            return array_pad(step, dtype)
        case _:
            return array_resize(step, dtype)


def _widening(dtype: np.dtype[Any]) -> ArrayStage:
    if np.can_cast(_BYTE, dtype, "safe"):
        return lambda array: array.astype(dtype, order="C")
    return lambda array: cast_array(array, dtype)


def _read(image: Image.Image) -> Array:
    array = np.asarray(image)
    return array if array.ndim == 3 else array[:, :, None]


def _read_blue_first(image: Image.Image) -> Array:
    pixels = np.frombuffer(image.tobytes("raw", "BGR"), np.uint8)
    return pixels.reshape(image.height, image.width, 3)


def _planes(array: Array) -> Array:
    if array.ndim != 3:
        raise StepError(
            f"layout needs an image of height x width x channels, the data has the shape {list(array.shape)}",
            step="layout",
            shape=list(array.shape),
        )
    return np.ascontiguousarray(array.transpose(2, 0, 1))


def _reverse_planes(array: Array) -> Array:
    return np.ascontiguousarray(array[::-1])


def _spread(array: Array) -> Array:
    return np.repeat(array, 3, axis=2)
