"""A path -> the folder of one run: locked while its owner lives, and swept away by a later run if the owner died."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["RunFolder", "remove_abandoned"]

# between the making of a folder and its lock lies a moment in which it looks abandoned
_LEAST_AGE_SECONDS = 3600


class RunFolder:
    """`make` before use, `remove` at the end; both by the one process that owns the run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def make(self) -> None:
        _sweep(self.path.parent)
        self.path.mkdir(parents=True)
        self._lock = os.open(self.path, os.O_RDONLY)
        _is_locked(self._lock)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _is_locked(descriptor: int) -> bool:
    """Whether the lock is now ours; a file system without locks never gives it, and then nothing is swept."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sweep(runs: Path) -> None:
    """Removes the folders of runs whose process was killed: their lock is free."""
    for folder in runs.iterdir() if runs.is_dir() else ():
        remove_abandoned(folder)


def remove_abandoned(folder: Path) -> bool:
    """Removes the folder of a run whose process was killed; whether it did."""
    old = time.time() - _LEAST_AGE_SECONDS
    # another process may sweep the same folder
    with suppress(OSError):
        if folder.stat().st_mtime > old:
            return False
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            if _is_locked(descriptor):
                shutil.rmtree(folder, ignore_errors=True)
                return True
        finally:
            os.close(descriptor)
    return False
