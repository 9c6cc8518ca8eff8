"""What a person may want to see while an evaluation runs; nothing here draws."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EvaluationEvent"]


@dataclass(frozen=True, slots=True)
class EvaluationEvent:
    """`stage` of `model`; in a worker: which launch of how many, and how far (`total` None: not known)."""

    model: str
    stage: str
    launch: int | None = None
    launches: int | None = None
    done: int = 0
    total: int | None = None
