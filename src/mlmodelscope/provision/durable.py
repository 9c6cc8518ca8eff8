"""Bytes -> files that are either whole or not there: locks between processes, private folders, atomic placing.

Everything that is made here lies on the file system of the cache, so that a rename puts it in place in one step.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import RawIOBase
from pathlib import Path
from typing import Any

from mlmodelscope.core.errors import StorageError

__all__ = [
    "locked",
    "place",
    "private_folder",
    "read_json",
    "remove",
    "storage_error",
    "storing",
    "sync",
    "write_all",
    "write_json",
    "write_text",
]

_HINTS = {
    errno.ENOSPC: "free some space, or set MLMODELSCOPE_HOME to a folder on another disk",
    errno.EDQUOT: "free some space, or set MLMODELSCOPE_HOME to a folder on another disk",
    errno.EACCES: "give this user the right to the path, or set MLMODELSCOPE_HOME to another folder",
    errno.EPERM: "give this user the right to the path, or set MLMODELSCOPE_HOME to another folder",
    errno.ENOTDIR: "a part of the path is a file: set MLMODELSCOPE_HOME to a folder",
    errno.EROFS: "the file system is read-only: set MLMODELSCOPE_HOME to a folder that can be written",
}
_STALE_SECONDS = 86_400


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turns what the operating system says about `path` into a StorageError."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, path) from error


def storage_error(error: OSError, path: Path) -> StorageError:
    """What the operating system said, in our words; `path` is named where it named none."""
    where = str(error.filename) if isinstance(error.filename, str) else str(path)
    reason = os.strerror(error.errno) if error.errno else str(error)
    return StorageError(
        f"cannot use {where}: {reason.lower()}", hint=_HINTS.get(error.errno or 0), path=where, reason=reason
    )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock file `path` alone among all processes and threads; a process that dies gives it back."""
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with storing(path):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def private_folder(parent: Path) -> Iterator[Path]:
    """A new empty folder under `parent`, gone afterwards with all that was not placed elsewhere."""
    with storing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(parent)
        folder = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    # what a killed process left behind; a day is longer than any running transfer goes without a write
    oldest = time.time() - _STALE_SECONDS
    for entry in parent.iterdir():
        with suppress(OSError):
            if entry.stat().st_mtime < oldest:
                shutil.rmtree(entry)


def sync(path: Path) -> None:
    """Waits until the file or folder itself is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_all(file: RawIOBase, data: bytes) -> None:
    """Writes to an unbuffered file: a full disk shows here, where it is reported, and not when the file is closed."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) or 0 :]


def place(source: Path, target: Path) -> None:
    """Renames the whole `source` (file or folder, same file system) to `target`, replacing what lies there, durably."""
    with storing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        for path in [source, *source.rglob("*")] if source.is_dir() else [source]:
            sync(path)
        if target.is_dir():
            shutil.rmtree(target)
        source.rename(target)
        sync(target.parent)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replaces `path` with `value` in one step: a reader sees the old text or the new one."""
    write_text(path, json.dumps(value, sort_keys=True, indent=1))


def write_text(path: Path, text: str) -> None:
    """Replaces `path` in one step, and returns when the new text is on the disk."""
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                # mkstemp gives the file to its owner alone
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync(path.parent)


def read_json(path: Path) -> dict[str, Any] | None:
    """The mapping in `path`; None where there is none or it cannot be understood, which callers treat alike."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def remove(path: Path) -> None:
    with storing(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
