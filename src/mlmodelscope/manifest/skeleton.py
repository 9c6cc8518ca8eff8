"""Turns the inputs and outputs of a model file into the text of a manifest, its guesses marked with comments.

What the file says (names, shapes, types, what a quantised number means) is written as it is. What it does not say
(colours, resizing, normalisation, labels) is the commonest habit of the file's kind, and the comment says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import yaml

from mlmodelscope.manifest.fields import ELEMENT_TYPES

__all__ = ["LayerFacts", "format_skeleton"]

FRAMEWORKS = {"onnx": ("onnxruntime", ">=1.17 <2"), "tflite": ("tflite", ">=2 <3")}

_POSTPROCESS = "TFLite_Detection_PostProcess"
# the places of that operator's results
_POSTPROCESS_ROLES = ("box", "class", "probability", "count")
_SMALL = 64
_NAMED_ROLES = {"box": ("box",), "probability": ("score", "prob", "conf"), "class": ("class", "label")}
Task = Literal["image_classification", "object_detection", ""]
Line = tuple[str, str]


class LayerFacts(Protocol):
    """An input or output as the model file has it; see `predictors/layers.py`."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> Sequence[int | None] | None: ...
    @property
    def element_type(self) -> str: ...
    @property
    def scale(self) -> float | None: ...
    @property
    def zero_point(self) -> int: ...
    @property
    def producer(self) -> str: ...
    @property
    def place(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Image:
    """An input that looks like pictures; a size of None is left to the caller of the model."""

    channels: int
    is_planar: bool
    height: int | None
    width: int | None


def format_skeleton(
    file_format: str,
    inputs: Sequence[LayerFacts],
    outputs: Sequence[LayerFacts],
    *,
    name: str,
    location: str,
    sha256: str,
) -> str:
    """A manifest that validates. `file_format` is "onnx" or "tflite", `location` where the manifest finds the file."""
    images = [_image(layer) for layer in inputs]
    roles = _roles(outputs, has_image=any(images))
    task = _task(roles)
    framework, version = FRAMEWORKS[file_format]
    lines: list[Line] = [
        ("# Made by `mlmodelscope init`. What is marked as a guess is not written in the model file: check it.", ""),
        (f"name: {_text(name)}", ""),
        ("version: 1.0.0", ""),
        (f"task: {task}", "guess: from the outputs") if task else ("# task: what the model is for", ""),
        ("description: ''", ""),
        ("license: unknown", "to fill in: what the weights may be used for"),
        (f"framework: {{name: {framework}, version: '{version}'}}", ""),
        ("inputs:", ""),
    ]
    for position, (layer, image) in enumerate(zip(inputs, images, strict=True)):
        lines += _input(layer, image, _reference(layer, position, inputs), task, file_format)
    lines.append(("outputs:", ""))
    for position, (layer, role) in enumerate(zip(outputs, roles, strict=True)):
        lines += _output(layer, role, _reference(layer, position, outputs), roles)
    lines += [
        ("source:", ""),
        (f"  graph_path: {_text(location)}", ""),
        (f"  checksum: {{sha256: {sha256}}}", ""),
    ]
    return "".join(f"{text}  # {note}\n" if note else f"{text}\n" for text, note in lines)


def _image(layer: LayerFacts) -> _Image | None:
    """Four dimensions of which one, behind the others or before height and width, can be channels."""
    if layer.shape is None or len(layer.shape) != 4:
        return None
    _, first, second, third = layer.shape
    if third in (1, 3):
        return _Image(third, False, first, second)
    if first in (1, 3):
        return _Image(first, True, second, third)
    return None


def _roles(outputs: Sequence[LayerFacts], *, has_image: bool) -> list[str]:
    """The type of each output: `probability`, the parts of a detection, `rows` that hold a whole one, or `tensor`."""
    if all(layer.producer == _POSTPROCESS and layer.place < 4 for layer in outputs):
        return [_POSTPROCESS_ROLES[layer.place] for layer in outputs]
    if len(outputs) == 1:
        if _classes(outputs[0]) is not None:
            return ["probability"]
        return ["rows" if has_image and _rows(outputs[0]) else "tensor"]
    named = [_named_role(layer.name) for layer in outputs]
    is_detection = has_image and named.count("box") == 1 and named.count("probability") == 1
    return [role or "tensor" for role in named] if is_detection else ["tensor"] * len(outputs)


def _named_role(name: str) -> str | None:
    return next((role for role, words in _NAMED_ROLES.items() if any(word in name.lower() for word in words)), None)


def _task(roles: Sequence[str]) -> Task:
    if "box" in roles or "rows" in roles:
        return "object_detection"
    return "image_classification" if roles == ["probability"] else ""


def _classes(layer: LayerFacts) -> int | None:
    """The one extent beside the batch that is not 1; None if there is no such."""
    if layer.shape is None or len(layer.shape) < 2:
        return None
    extents = [size for size in layer.shape[1:] if size != 1]
    return extents[0] if len(extents) == 1 else None


def _rows(layer: LayerFacts) -> dict[str, str]:
    """Parameters of a `boxes` step for [batch, boxes, numbers] or [batch, numbers, boxes]; empty for other shapes."""
    if layer.shape is None or len(layer.shape) != 3:
        return {}
    _, middle, last = layer.shape
    most = 1000
    if last == 6:
        return {"format": "xyxy", "coordinates": "pixels", "arrangement": "score_class"}
    if last is not None and 5 <= last < min(middle or most, most):
        arrangement = "objectness" if last == 85 else "per_class"
        return {"format": "cxcywh", "coordinates": "pixels", "arrangement": arrangement}
    if middle is not None and 5 <= middle < min(last or most, most):
        return {"format": "cxcywh", "coordinates": "pixels", "arrangement": "per_class", "transposed": "true"}
    return {}


def _reference(layer: LayerFacts, position: int, layers: Sequence[LayerFacts]) -> str:
    """The name of the layer; its index where the name is empty or not its own."""
    is_own = sum(other.name == layer.name for other in layers) == 1
    return _text(layer.name) if layer.name.strip() and is_own else str(position)


def _element_type(layer: LayerFacts) -> Line:
    if layer.element_type in ELEMENT_TYPES:
        return f"    element_type: {layer.element_type}", ""
    note = f"to change: the file says {layer.element_type}, which manifests do not know"
    return "    element_type: float32", " ".join(note.split())


def _input(layer: LayerFacts, image: _Image | None, reference: str, task: Task, file_format: str) -> list[Line]:
    shape = "any shape" if layer.shape is None else f"shape {['any' if s is None else s for s in layer.shape]}"
    kind = ("image", f"guess: {shape}") if image else ("tensor", f"{shape}: samples must be arrays of it")
    lines: list[Line] = [
        (f"  - type: {kind[0]}", kind[1].replace("'", "")),
        (f"    layer_name: {reference}", ""),
        _element_type(layer),
    ]
    if image is None:
        return lines
    color = "GRAY" if image.channels == 1 else "RGB"
    lines += [
        ("    steps:", ""),
        (f"      - decode: {{color_layout: {color}}}", "" if color == "GRAY" else "guess: BGR is the other habit"),
        *_geometry(image, task),
        *_arithmetic(layer, image, task, file_format),
    ]
    return [*lines, ("      - layout: CHW", "")] if image.is_planar else lines


def _geometry(image: _Image, task: Task) -> list[Line]:
    usual = 640 if task == "object_detection" else 224
    size = (image.height or usual, image.width or usual)
    is_open = None in (image.height, image.width)
    note = f"guess: {'the model takes any size; ' if is_open else ''}"
    if task == "object_detection" and image.is_planar:
        step = f"resize: {{size: {list(size)}, keep_aspect_ratio: letterbox, fill: 114}}"
        return [(f"      - {step}", f"{note}squash is the other habit")]
    if task == "image_classification" and size[0] == size[1] and size[0] >= _SMALL:
        # a crop of 87.5 % in the middle
        return [
            (f"      - resize: {{shorter_side: {math.floor(size[0] / 0.875 + 0.5)}}}", f"{note}the middle 87.5 %"),
            (f"      - crop: {{size: {list(size)}}}", ""),
        ]
    return [(f"      - resize: {{size: {list(size)}}}", f"{note}squash; cover and letterbox keep the ratio")]


def _arithmetic(layer: LayerFacts, image: _Image, task: Task, file_format: str) -> list[Line]:
    if layer.element_type == "uint8":
        return []
    if layer.element_type == "int8":
        return [
            ("      - cast: float32", ""),
            ("      - mean: 128", "guess: bytes moved to -128..127"),
            ("      - cast: int8", ""),
        ]
    cast = ("      - cast: float32", "")
    small = min(image.height or _SMALL, image.width or _SMALL) < _SMALL
    if image.channels == 1 or small or (task == "object_detection" and image.is_planar):
        return [cast, ("      - rescale: 255", "guess: 0 to 1")]
    if image.is_planar and file_format == "onnx":
        values = "{mean: [123.675, 116.28, 103.53], rescale: [58.395, 57.12, 57.375]}"
        return [cast, (f"      - normalize: {values}", "guess: ImageNet's mean and deviation, PyTorch's habit")]
    return [cast, ("      - normalize: {mean: 127.5, rescale: 127.5}", "guess: -1 to 1, TensorFlow's habit")]


def _output(layer: LayerFacts, role: str, reference: str, roles: Sequence[str]) -> list[Line]:
    known = layer.producer == _POSTPROCESS
    lines: list[Line] = [
        (f"  - type: {role}", "" if known or role == "tensor" else "guess: from shape and name"),
        (f"    layer_name: {reference}", ""),
        _element_type(layer),
    ]
    has_labels = role in ("class", "rows") or (role == "probability" and "class" not in roles)
    if has_labels:
        lines.append(
            ("    # features_url: labels.txt", "to fill in: one label a line, in the order of the class index")
        )
    steps = _answer_steps(layer, role, roles)
    if steps:
        lines.append(("    steps:", ""))
        lines += [(f"      - {text}", note) for text, note in steps]
    return lines


def _answer_steps(layer: LayerFacts, role: str, roles: Sequence[str]) -> list[Line]:
    steps = _dequantized(layer)
    if role == "box":
        known = layer.producer == _POSTPROCESS
        form = ("yxyx", "normalized") if known else ("xyxy", "pixels")
        note = "" if known else "guess: yxyx, cxcywh and normalized are others"
        return [*steps, (f"boxes: {{format: {form[0]}, coordinates: {form[1]}}}", note)]
    if role == "rows":
        parameters = ", ".join(f"{key}: {value}" for key, value in _rows(layer).items())
        boxes = (f"boxes: {{{parameters}}}", "guess: from the shape")
        return [*steps, boxes, ("threshold: 0.25", "guess"), ("nms: {iou: 0.5, max_boxes: 300}", "guess")]
    if roles != ["probability"]:
        return steps
    if layer.producer not in ("Softmax", "Sigmoid"):
        steps.append(("softmax: {}", f"guess: the file ends in {layer.producer or 'an unknown operator'}"))
    if _classes(layer) == 1001:
        steps.append(("slice: {start: 1}", "guess: the first of 1001 classes is the background"))
    return [*steps, ("topk: 5", "")]


def _dequantized(layer: LayerFacts) -> list[Line]:
    """Quantised numbers as what they stand for, which the file says."""
    if layer.scale is None or not math.isfinite(1 / layer.scale) or layer.element_type not in ("uint8", "int8"):
        return []
    steps: list[Line] = [("cast: float32", "")]
    if layer.zero_point:
        steps.append((f"mean: {layer.zero_point}", "the file's zero"))
    return [*steps, (f"rescale: {1 / layer.scale:.9g}", "one over the file's scale")]


def _text(text: str) -> str:
    """Any text as a quoted scalar on one line."""
    return yaml.safe_dump(text, default_style='"', allow_unicode=False, width=math.inf).strip()
