"""What can be known before a plan runs: the files it needs, their sizes and licenses, and the least time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from mlmodelscope.core.record import AssetRole

__all__ = ["AssetOwner", "ExpectedAsset", "Forecast"]

AssetOwner = Literal["model", "data set", "input"]


@dataclass(frozen=True, slots=True)
class ExpectedAsset:
    """A file or folder that a run needs. `size_bytes` as it is here, else as the manifest says; None: not known.

    `sha256` is what is here, else what the checksum promises; None: only the download will tell.
    """

    owner: AssetOwner
    role: AssetRole
    location: str
    license: str
    is_present: bool
    needs_download: bool
    size_bytes: int | None
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What one plan will do. `least_seconds` is measured time: loading, warm-up and the accuracy pass come on top."""

    model: str
    framework: str
    dataset: str
    scenario: dict[str, Any]
    threads: int
    launches: int
    least_seconds: float
    assets: tuple[ExpectedAsset, ...]
