"""A path -> the folder of one run: locked while its owner lives, and swept away by a later run if the owner died.

The memory that a launch shares with its framework's process is such a folder too.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlmodelscope.core.ids import new_id

__all__ = ["RunFolder", "remove_abandoned", "shared_folder"]

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


@contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder of memory for the tensors of one launch; what a killed process left there, a later one removes."""
    place = _memory_folder()
    root = _private_folder(place)
    folder = RunFolder(root / new_id())
    folder.make()
    try:
        yield folder.path
    finally:
        folder.remove()
        if root != _usual_folder(place):
            root.rmdir()


def _memory_folder() -> Path:
    memory = Path("/dev/shm")  # noqa: S108 - the folder inside is this user's, and private
    return memory if memory.is_dir() else Path(tempfile.gettempdir())


def _usual_folder(place: Path) -> Path:
    return place / f"mlmodelscope-{os.getuid()}"


def _private_folder(place: Path) -> Path:
    """The folder of this user's own below one that everybody may write; another where somebody was there before us."""
    usual = _usual_folder(place)
    with suppress(FileExistsError):
        usual.mkdir(mode=0o700)
    facts = usual.lstat()
    is_private = facts.st_uid == os.getuid() and stat.S_IMODE(facts.st_mode) & 0o077 == 0
    if stat.S_ISDIR(facts.st_mode) and is_private:
        return usual
    return Path(tempfile.mkdtemp(prefix=f"{usual.name}-", dir=place))
