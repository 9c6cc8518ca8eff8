"""A number that knows how sure it is."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value over `n` observations in `launches` launches; no interval where nothing was repeated."""

    value: float
    interval: Interval | None
    n: int
    launches: int
