"""A parsed location and the manifest's folder -> the path on this machine, and the key of the cache."""

from __future__ import annotations

import os
from pathlib import Path

from mlmodelscope.core.asset import Location, public_location

__all__ = ["index_key", "is_in_place", "label", "local_path"]


def local_path(location: Location, base: Path | None) -> Path:
    """Where a location of kind "path" lies: relative to `base`, or to the current folder where there is none."""
    return Path(os.path.normpath((base or Path.cwd()).absolute() / location.target))


def is_in_place(location: Location) -> bool:
    """Whether the asset is used where it lies, not copied."""
    return location.kind == "path" and location.member is None


def label(location: Location) -> str:
    """The location as messages and records show it."""
    return public_location(str(location))


def index_key(location: Location, archive_sha256: str | None, reader: str) -> str:
    """What the cache remembers a delivery by. `reader` is the converter that decided which companions belong to it.

    An archive on this machine counts by its content: its path says nothing about what it holds today.
    """
    place = str(location) if archive_sha256 is None else f"sha256:{archive_sha256}!{location.member}"
    return f"{place} {reader}".rstrip()
