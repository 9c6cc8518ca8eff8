"""Turns predictions into accuracy over exactly the samples that were run; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlmodelscope.analyse.statistics import proportion
from mlmodelscope.core.answer import Classes, Prediction
from mlmodelscope.core.record import Accuracy

__all__ = ["is_right", "score"]


def is_right(prediction: Prediction, k: int) -> bool | None:
    """Whether the true class is among the first `k`; None without a label or without classes."""
    if prediction.label is None or not isinstance(prediction.answer, Classes):
        return None
    return any(item.index == prediction.label for item in prediction.answer.classes[:k])


def score(predictions: Sequence[Prediction]) -> Accuracy:
    """Top-1 and top-5 with Wilson intervals over the samples that have a label and an answer of classes.

    Top-5 only if every answer holds five classes: among fewer, being right says less than the name promises.
    """
    top1 = _flags(predictions, 1)
    deep = all(len(p.answer.classes) >= 5 for p in predictions if isinstance(p.answer, Classes))
    top5 = _flags(predictions, 5) if deep else []
    return Accuracy(
        samples=len(predictions),
        labelled=sum(prediction.label is not None for prediction in predictions),
        top1=proportion(sum(top1), len(top1)) if top1 else None,
        top5=proportion(sum(top5), len(top5)) if top5 else None,
    )


def _flags(predictions: Iterable[Prediction], k: int) -> list[bool]:
    return [flag for flag in (is_right(prediction, k) for prediction in predictions) if flag is not None]
