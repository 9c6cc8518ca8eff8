"""Turns a name in a folder of shared memory into memory that two processes of one machine see.

The client offers a file: it makes it, locks it, writes a token into it, and removes the name once the server has
answered. The lock goes with the client, however it ends: by it the server knows that its model is wanted no more, and
the next client that the file of one killed before the answer can be removed. The server maps the file only if it finds
the token there, so that a file of the same name on another machine is not taken for it; and only a plain name in its
own folder, so that no client can make it write elsewhere. The first half of the file is for inputs, the second for
outputs. The file is large and empty: memory is taken from the system where and when it is needed, and a refusal is an
answer, not a signal in mid-copy.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path

from mlmodelscope.rpc.predictor_pb2 import Region, SharedFile

__all__ = ["ALIGNMENT", "FOLDER", "MappedFile", "OfferedFile"]

FOLDER = "/dev/shm"  # noqa: S108 - a folder of memory, and the names in it are drawn at random
ALIGNMENT = 64
_SIZE = 1 << 30
_FIRST_ANSWER = 1 << 20
_TOKEN_BYTES = 32
_NAME = re.compile(r"mlmodelscope-[0-9a-f]{16,64}")
# between the making of a file and its lock lies a moment in which it looks abandoned
_LEAST_AGE_SECONDS = 3600


class OfferedFile:
    """The client's side. `make` answers None where the folder cannot be used: then tensors travel in messages."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        self._path, self._descriptor = path, descriptor
        self._is_locked = _lock(descriptor) is True
        self.memory = mmap.mmap(descriptor, size)
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self._half = size // 2
        self._has_taken = {0: 0, self._half: 0}
        self.first = ALIGNMENT
        self.answer = Region(offset=self._half)

    @classmethod
    def make(cls, folder: str = FOLDER, size: int = _SIZE) -> OfferedFile | None:
        _sweep(Path(folder))
        path = Path(folder) / f"mlmodelscope-{secrets.token_hex(16)}"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            os.ftruncate(descriptor, size)
            made = cls(path, descriptor, size)
            if made.has_room(0, ALIGNMENT):
                made.memory[:_TOKEN_BYTES] = made._token
                made.expect(_FIRST_ANSWER)
                return made
        except (OSError, ValueError):
            pass
        path.unlink(missing_ok=True)
        os.close(descriptor)
        return None

    def described(self) -> SharedFile:
        return SharedFile(name=self._path.name, size=len(self.memory), token=self._token, is_locked=self._is_locked)

    def forget_name(self) -> None:
        """Once the server has mapped the file or has declined, nobody needs its name."""
        self._path.unlink(missing_ok=True)

    def has_room(self, offset: int, size: int) -> bool:
        """Whether `size` bytes from `offset` on can be written; takes them from the system where that was not done."""
        start = 0 if offset < self._half else self._half
        end = offset + size
        if end > start + self._half:
            return False
        missing = end - start - self._has_taken[start]
        if missing > 0:
            try:
                os.posix_fallocate(self._descriptor, start + self._has_taken[start], missing)
            except OSError:
                return False
            self._has_taken[start] += missing
        return True

    def expect(self, size: int) -> None:
        """Makes room for outputs of so many bytes in all, or leaves it as it was."""
        if size > self.answer.size and self.has_room(self._half, size):
            self.answer.size = size

    def holds(self, region: Region) -> bool:
        """Whether a region lies where the server was allowed to write."""
        start, end = self.answer.offset, self.answer.offset + self.answer.size
        return bool(start <= region.offset and region.offset + region.size <= end)

    def close(self) -> None:
        self.forget_name()
        if self._descriptor >= 0:
            # an array that still looks at the memory keeps it, and would keep the lock, until it goes
            with suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1
            with suppress(BufferError):
                self.memory.close()


class MappedFile:
    """The server's side."""

    def __init__(self, memory: mmap.mmap, descriptor: int, *, is_locked: bool) -> None:
        self.memory = memory
        self._descriptor, self._is_locked = descriptor, is_locked

    @classmethod
    def attach(cls, offered: SharedFile, folder: str = FOLDER) -> MappedFile | None:
        """The offered file, or None where this machine does not have it."""
        if not _NAME.fullmatch(offered.name) or len(offered.token) < _TOKEN_BYTES:
            return None
        try:
            descriptor = os.open(Path(folder) / offered.name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        memory = None
        with suppress(OSError, ValueError, OverflowError):
            if os.fstat(descriptor).st_size == offered.size:
                memory = mmap.mmap(descriptor, offered.size)
        if memory is None:
            os.close(descriptor)
            return None
        mapped = cls(memory, descriptor, is_locked=offered.is_locked)
        if secrets.compare_digest(memory[: len(offered.token)], offered.token):
            return mapped
        mapped.close()
        return None

    @property
    def is_abandoned(self) -> bool:
        """Whether the client is gone; False where it never said that it holds a lock."""
        return self._is_locked and self._descriptor >= 0 and _lock(self._descriptor) is True

    def holds(self, region: Region) -> bool:
        return bool(region.offset >= ALIGNMENT and region.offset + region.size <= len(self.memory))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        with suppress(BufferError):
            self.memory.close()


def _lock(descriptor: int) -> bool | None:
    """Whether the lock is ours now; None where the file system has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _sweep(folder: Path) -> None:
    """Removes what killed clients of this user left in the folder: files of our name that nobody has locked."""
    old = time.time() - _LEAST_AGE_SECONDS
    with suppress(OSError):
        for path in [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]:
            # another process may sweep the same folder, and other users have files in it
            with suppress(OSError):
                _remove_abandoned(path, old)


def _remove_abandoned(path: Path, old: float) -> None:
    facts = path.lstat()
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mtime > old:
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if _lock(descriptor):
            path.unlink()
    finally:
        os.close(descriptor)
