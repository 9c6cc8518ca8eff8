"""Turns predictions into text for people; pure."""

from __future__ import annotations

from collections.abc import Sequence

from mlmodelscope.core.answer import Answer, Classes, Prediction, RawTensors
from mlmodelscope.core.value import canonical_json

__all__ = ["format_predictions"]


def format_predictions(predictions: Sequence[Prediction]) -> str:
    return "\n".join(f"{item.sample}\n{_answer(item.answer)}" for item in predictions)


def _answer(answer: Answer) -> str:
    if isinstance(answer, Classes):
        lines = [f"  {item.score:8.4f}  {item.label or 'class'} ({item.index})" for item in answer.classes]
    elif isinstance(answer, RawTensors):
        lines = [f"  {t.name}: {t.element_type}{list(t.shape)} mean {_mean(t.mean)}" for t in answer.tensors]
    else:
        lines = [f"  {canonical_json(answer.value)}"]
    return "\n".join(lines)


def _mean(value: float | None) -> str:
    """Text and tensors with infinities have no mean."""
    return "-" if value is None else f"{value:.6g}"
