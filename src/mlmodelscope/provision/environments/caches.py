"""The caches behind the environments -> how much they hold, and less of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from mlmodelscope.provision.durable import locked
from mlmodelscope.provision.environments.store import folder_sizes
from mlmodelscope.provision.environments.uv import Uv

__all__ = [
    "PackageCache",
    "bytecode_locked",
    "cache_folder",
    "clear_packages",
    "measure_packages",
    "prune_bytecode",
]


@dataclass(frozen=True, slots=True)
class PackageCache:
    """`unused_bytes` are in files that no environment holds; `shared_bytes` in those that one does."""

    folder: str
    unused_bytes: int
    shared_bytes: int


def cache_folder(home: Path, environment: Mapping[str, str]) -> Path:
    """uv's cache: in the home, so that files can be linked, unless the user has another for all of uv's work."""
    return Path(environment.get("UV_CACHE_DIR") or home / "cache" / "uv")


def measure_packages(home: Path, environment: Mapping[str, str]) -> PackageCache:
    folder = cache_folder(home, environment)
    unused, shared = folder_sizes(folder)
    return PackageCache(str(folder), unused, shared)


def clear_packages(home: Path, environment: Mapping[str, str]) -> int:
    """Empties the cache if it is ours, and says how many bytes are free now; uv waits for those that use it."""
    folder = cache_folder(home, environment)
    if folder != home / "cache" / "uv" or not folder.is_dir():
        return 0
    unused, _ = folder_sizes(folder)
    Uv({**environment, "UV_CACHE_DIR": str(folder)}, has_index=True).clear_cache()
    return unused


def bytecode_locked(folder: Path) -> AbstractContextManager[None]:
    """Held by whoever links from the shared bytecode, adds to it or prunes it."""
    return locked(folder / ".lock")


def prune_bytecode(home: Path) -> None:
    """Removes the bytecode of packages that no environment holds any more, and what a dead process left half-made."""
    shared = home / "cache" / "bytecode"
    if not shared.is_dir():
        return
    with bytecode_locked(shared):
        for folder in shared.glob("*/*"):
            if folder.name.startswith(".new-") or not _is_linked(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_linked(folder: Path) -> bool:
    for root, _, names in os.walk(folder):
        for name in names:
            if Path(root, name).lstat().st_nlink > 1:
                return True
    return False
