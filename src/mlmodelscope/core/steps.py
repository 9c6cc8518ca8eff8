"""The steps of a pipeline as data: one frozen class per step, its parameters validated when the manifest is read.

What each step does to the pixel is in docs/reference/steps.md; `process/` holds the functions. A step is written in
a manifest as a one-key mapping (`crop: {method: center, size: [224, 224]}`) or with a bare value where the step has
one main parameter (`cast: float32`, `mean: [1, 2, 3]`, `layout: CHW`): `SHORT_FORMS` names that parameter.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, PositiveInt, model_validator

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.value import Frozen

__all__ = [
    "INPUT_STEPS",
    "OUTPUT_STEPS",
    "SHORT_FORMS",
    "STEPS",
    "Argsort",
    "AspectMode",
    "Batch",
    "BoxArrangement",
    "BoxCoordinates",
    "BoxFormat",
    "Cast",
    "Color",
    "ColorLayout",
    "Crop",
    "DataLayout",
    "Decode",
    "DecodeBoxes",
    "ElementType",
    "Layout",
    "Mean",
    "Nms",
    "Normalize",
    "Pad",
    "Rescale",
    "Resize",
    "ResizeMethod",
    "Slice",
    "Softmax",
    "Step",
    "Threshold",
    "TopK",
]

ElementType = Literal["uint8", "int8", "uint16", "int16", "int32", "int64", "float16", "float32", "float64", "bool"]
ColorLayout = Literal["RGB", "BGR", "GRAY"]
DataLayout = Literal["HWC", "CHW"]
ResizeMethod = Literal["nearest", "bilinear", "bicubic", "area", "lanczos"]
AspectMode = Literal["cover", "fit", "letterbox", "squash"]
BoxFormat = Literal["yxyx", "xyxy", "xywh", "cxcywh"]
BoxCoordinates = Literal["normalized", "pixels"]
BoxArrangement = Literal["separate", "per_class", "objectness", "score_class"]
Channels = float | Annotated[tuple[float, ...], Field(min_length=1, max_length=4)]
Size = tuple[PositiveInt, PositiveInt]


class Decode(Frozen):
    """Bytes of an image file to an array of `element_type` in the colour order and layout named."""

    step: Literal["decode"] = "decode"
    decoder: Literal["pillow", "opencv"] = "pillow"
    color_layout: ColorLayout = "RGB"
    data_layout: DataLayout = "HWC"
    element_type: ElementType = "uint8"


class Crop(Frozen):
    """Cut a window: `percentage` of both sides, or `size` [height, width] in pixels."""

    step: Literal["crop"] = "crop"
    method: Literal["center", "top_left"] = "center"
    percentage: Annotated[float, Field(gt=0, le=100)] | None = None
    size: Size | None = None

    @model_validator(mode="after")
    def _one_extent(self) -> Crop:
        if (self.percentage is None) == (self.size is None):
            raise ValueError("crop takes either percentage or size")
        return self


class Resize(Frozen):
    """Scale to `size` [height, width], to a `shorter_side`, or so that the longer side is at most `max_dimension`."""

    step: Literal["resize"] = "resize"
    size: Size | None = None
    shorter_side: PositiveInt | None = None
    max_dimension: PositiveInt | None = None
    method: ResizeMethod = "bilinear"
    resizer: Literal["pillow", "opencv"] = "pillow"
    keep_aspect_ratio: AspectMode = "squash"
    fill: float = 0.0

    @model_validator(mode="after")
    def _one_extent(self) -> Resize:
        given = [name for name in ("size", "shorter_side", "max_dimension") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("resize takes exactly one of size (or dimensions), shorter_side, max_dimension")
        if self.size is None and self.keep_aspect_ratio != "squash":
            raise ValueError("keep_aspect_ratio goes with size: one side alone always keeps the ratio")
        return self


class Pad(Frozen):
    """Grow to `size` [height, width] with `value`; the image stays in the middle or in the top left corner."""

    step: Literal["pad"] = "pad"
    size: Size
    value: float = 0.0
    position: Literal["center", "top_left"] = "center"


class Mean(Frozen):
    """Subtract `value`, one number or one per channel."""

    step: Literal["mean"] = "mean"
    value: Channels


class Rescale(Frozen):
    """Divide by `value`, one number or one per channel."""

    step: Literal["rescale"] = "rescale"
    value: Channels

    @model_validator(mode="after")
    def _no_zero(self) -> Rescale:
        _refuse_zero(self.value)
        return self


class Normalize(Frozen):
    """Subtract `mean`, then divide by `rescale`."""

    step: Literal["normalize"] = "normalize"
    mean: Channels = 0.0
    rescale: Channels = 1.0

    @model_validator(mode="after")
    def _no_zero(self) -> Normalize:
        _refuse_zero(self.rescale)
        return self


class Cast(Frozen):
    """Convert the elements; out-of-range values saturate, fractions are cut towards zero."""

    step: Literal["cast"] = "cast"
    element_type: ElementType


class Color(Frozen):
    """Reorder or reduce the channels."""

    step: Literal["color"] = "color"
    to: ColorLayout


class Layout(Frozen):
    """Transpose between height-width-channel and channel-height-width."""

    step: Literal["layout"] = "layout"
    to: DataLayout


class Batch(Frozen):
    """Put samples behind a leading batch dimension; the last step of every input, written or not."""

    step: Literal["batch"] = "batch"


class Softmax(Frozen):
    """Exponentials over their sum along the last axis, in float64, shifted by the maximum."""

    step: Literal["softmax"] = "softmax"


class Slice(Frozen):
    """Keep the classes from `start` (to `stop`): drops a background class. The labels are cut alike."""

    step: Literal["slice"] = "slice"
    start: Annotated[int, Field(ge=0)] = 0
    stop: PositiveInt | None = None

    @model_validator(mode="after")
    def _keeps_something(self) -> Slice:
        if self.stop is not None and self.stop <= self.start:
            raise ValueError(f"slice from {self.start} to {self.stop} keeps no class")
        return self


class Argsort(Frozen):
    """All classes from the highest score to the lowest; equal scores in the order of their index."""

    step: Literal["argsort"] = "argsort"
    labels: Asset | None = None


class TopK(Frozen):
    """The `k` highest scores, highest first; equal scores in the order of their index."""

    step: Literal["topk"] = "topk"
    k: PositiveInt = 5
    labels: Asset | None = None


class DecodeBoxes(Frozen):
    """Four numbers per box to boxes of the original image, with class and score from where `arrangement` says.

    `separate`: from the outputs of type `probability`, `class` and `count` beside this one. Otherwise each row of this
    output holds them behind its box: `per_class` (a score per class), `objectness` (the same behind a factor),
    `score_class` (one score, one class). `transposed`: rows and columns have changed places.
    """

    step: Literal["boxes"] = "boxes"
    format: BoxFormat = "yxyx"
    coordinates: BoxCoordinates = "normalized"
    arrangement: BoxArrangement = "separate"
    transposed: bool = False


class Threshold(Frozen):
    """Keep boxes whose score is at least `score`."""

    step: Literal["threshold"] = "threshold"
    score: Annotated[float, Field(allow_inf_nan=False)]


class Nms(Frozen):
    """Keep the best of boxes that overlap by more than `iou`, at most `max_boxes`; `class_aware`: within each class."""

    step: Literal["nms"] = "nms"
    iou: Annotated[float, Field(ge=0, le=1)] = 0.5
    class_aware: bool = True
    max_boxes: PositiveInt | None = None


def _refuse_zero(value: Channels) -> None:
    if 0 in (value if isinstance(value, tuple) else (value,)):
        raise ValueError("division by zero: rescale must not be 0")


Step = Annotated[
    Decode
    | Crop
    | Resize
    | Pad
    | Mean
    | Rescale
    | Normalize
    | Cast
    | Color
    | Layout
    | Batch
    | Softmax
    | Slice
    | Argsort
    | TopK
    | DecodeBoxes
    | Threshold
    | Nms,
    Field(discriminator="step"),
]

STEPS: dict[str, type[Frozen]] = {cls.model_fields["step"].default: cls for cls in get_args(get_args(Step)[0])}
INPUT_STEPS = ("decode", "crop", "resize", "pad", "mean", "rescale", "normalize", "cast", "color", "layout", "batch")
OUTPUT_STEPS = (
    "softmax", "slice", "argsort", "topk", "boxes", "threshold", "nms", "cast", "mean", "rescale", "normalize",
)  # fmt: skip
SHORT_FORMS: dict[str, str] = {
    "cast": "element_type",
    "color": "to",
    "layout": "to",
    "mean": "value",
    "rescale": "value",
    "threshold": "score",
    "topk": "k",
    "pad": "size",
}
