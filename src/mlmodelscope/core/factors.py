"""Factor groups: what may differ between two results, and which differences count as one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Difference", "FactorGroup"]


class FactorGroup(StrEnum):
    """Differences inside one group count once. Ids, times, paths and noise belong to no group."""

    DATA = "data"
    PIPELINE = "pipeline"
    MODEL = "model"
    FRAMEWORK = "framework"
    PRECISION = "precision"
    EXECUTION = "execution"
    SYSTEM = "system"
    SCENARIO = "scenario"


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that differs, with both values; None stands for unknown, which counts as different."""

    group: FactorGroup
    fact: str
    left: Any
    right: Any
