"""A number that knows how sure it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["Basis", "Estimate", "Interval"]

Basis = Literal["launches", "single_launch", "samples"]


@dataclass(frozen=True, slots=True)
class Interval:
    """`basis` says what was repeated: worker launches, the queries of one launch (no verdict), or samples."""

    low: float
    high: float
    confidence: float
    basis: Basis

    def __post_init__(self) -> None:
        _refuse_nan(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value over `n` observations in `launches` launches; no interval where nothing was repeated."""

    value: float
    interval: Interval | None
    n: int
    launches: int

    def __post_init__(self) -> None:
        _refuse_nan(self.value)


def _refuse_nan(*values: float) -> None:
    """JSON knows neither infinity nor not-a-number: a record that held one could be stored but never read again."""
    if not all(map(math.isfinite, values)):
        raise ValueError("an estimate holds finite numbers only")
