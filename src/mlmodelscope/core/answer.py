"""Answers: what a model said about one sample, typed by task."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from mlmodelscope.core.value import Frozen

__all__ = ["Answer", "Box", "Boxes", "ClassScore", "Classes", "Custom", "Prediction", "RawTensors", "TensorFacts"]


class ClassScore(Frozen):
    """One class with its score; `label` where the manifest names the classes."""

    index: int
    label: str | None
    score: float


class Classes(Frozen):
    """Classes from the highest score to the lowest."""

    type: Literal["classes"] = "classes"
    classes: tuple[ClassScore, ...]


class Box(Frozen):
    """One object that was found: its class, its score, and its box in pixels of the original image.

    Pixels have an extent: the box of a whole image of 640 x 480 is (0, 0, 640, 480).
    """

    index: int
    label: str | None
    score: float
    left: float
    top: float
    right: float
    bottom: float


class Boxes(Frozen):
    """What was found in an image of `height` x `width` pixels, from the highest score to the lowest."""

    type: Literal["boxes"] = "boxes"
    height: int
    width: int
    boxes: tuple[Box, ...]


class TensorFacts(Frozen):
    """A tensor that no step interprets: enough of it to compare two runs."""

    name: str
    shape: tuple[int, ...]
    element_type: str
    sha256: str
    minimum: float | None
    maximum: float | None
    mean: float | None


class RawTensors(Frozen):
    """Outputs of a model without post-processing."""

    type: Literal["tensors"] = "tensors"
    tensors: tuple[TensorFacts, ...]


class Custom(Frozen):
    """What a manifest's own Python function returned, as plain JSON values."""

    type: Literal["custom"] = "custom"
    value: Any


Answer = Annotated[Classes | Boxes | RawTensors | Custom, Field(discriminator="type")]


class Prediction(Frozen):
    """The answer for one sample. `label` is the truth where it is known."""

    sample: str
    label: int | None
    answer: Answer
