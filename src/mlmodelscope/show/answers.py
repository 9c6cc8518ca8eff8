"""Turns predictions into text for people; pure."""

from __future__ import annotations

from collections.abc import Sequence

from mlmodelscope.core.answer import Answer, Boxes, Classes, Prediction, RawTensors
from mlmodelscope.core.value import canonical_json

__all__ = ["format_predictions"]


def format_predictions(predictions: Sequence[Prediction], *, min_score: float = 0.0) -> str:
    """Boxes below `min_score` are only counted."""
    return "\n".join(f"{item.sample}\n{_answer(item.answer, min_score)}" for item in predictions)


def _answer(answer: Answer, min_score: float) -> str:
    if isinstance(answer, Classes):
        lines = [f"  {item.score:8.4f}  {item.label or 'class'} ({item.index})" for item in answer.classes]
    elif isinstance(answer, Boxes):
        lines = _boxes(answer, min_score)
    elif isinstance(answer, RawTensors):
        lines = [f"  {t.name}: {t.element_type}{list(t.shape)} mean {_mean(t.mean)}" for t in answer.tensors]
    else:
        lines = [f"  {canonical_json(answer.value)}"]
    return "\n".join(lines)


def _boxes(answer: Boxes, min_score: float) -> list[str]:
    shown = [box for box in answer.boxes if box.score >= min_score]
    lines = [
        f"  {box.score:8.4f}  {box.label or 'class'} ({box.index})  "
        f"from {box.left:.0f},{box.top:.0f} to {box.right:.0f},{box.bottom:.0f}"
        for box in shown
    ]
    left_out = len(answer.boxes) - len(shown)
    if left_out:
        lines.append(f"  {left_out} more with a score below {min_score:g}")
    return lines or ["  nothing found"]


def _mean(value: float | None) -> str:
    """Text and tensors with infinities have no mean."""
    return "-" if value is None else f"{value:.6g}"
