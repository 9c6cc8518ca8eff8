"""Arrays <-> regions of a shared file: how tensors cross between the worker and the process that hosts a framework.

Each side writes to files of its own in one folder (of memory, where the system has /dev/shm) and maps the other's. A
message names the file and, for each array, its element type, shape and offset. A file that is too small is replaced by
a larger one of another name; whoever still looks at the old one keeps it. Python 3.6 syntax, numpy only.
"""

import errno
import mmap
import os
from typing import Any, Dict, List, Sequence, Tuple

from mlmodelscope.predictors.port import PredictorFault

__all__ = ["Inbox", "Outbox", "RoomFault", "TensorFault", "fixed_width"]

# the widest vector registers, and the start of a cache line
_ALIGNMENT = 64
_SMALLEST = 1 << 16
# the folder is full, or the memory behind it, or a file may not be that large
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM)


class TensorFault(Exception):  # noqa: N818 - a fact about the other side
    """The other side described arrays that are not in its files."""


class RoomFault(Exception):  # noqa: N818 - a fact about the folder
    """There is no room for the arrays in the folder; the text says how much they need."""


def fixed_width(array: Any, name: str) -> Any:
    """An array of texts or bytes of any length, which have no place in shared memory, as elements of one width.

    PredictorFault: they would not arrive as they are; the message calls the array `name`.
    """
    import numpy as np

    items = array.ravel().tolist()
    for kind, filler in ((str, "\0"), (bytes, b"\0")):
        if all(isinstance(item, kind) for item in items):
            if any(item.endswith(filler) for item in items):
                raise _unsendable(name, "NULs at the end")
            width = max([len(item) for item in items] + [1])
            return np.array(items, (kind, width)).reshape(array.shape)
    raise _unsendable(name, ", ".join(sorted({type(item).__name__ for item in items})))


def _unsendable(name: str, got: str) -> PredictorFault:
    return PredictorFault(
        "shape_mismatch",
        f"{name} cannot cross between two processes: it holds {got}",
        hint="an array of objects must hold texts alone, or bytes alone, without NULs at the end",
        expected="texts or bytes",
        got=got,
    )


class Outbox(object):
    """The files that this side writes. `put` overwrites what the last `put` wrote: the other side has read it by then.

    `prefix` sets the two sides apart. One thread.
    """

    def __init__(self, folder: str, prefix: str) -> None:
        self._folder = folder
        self._prefix = prefix
        self._number = 0
        self._capacity = 0
        self._name = ""
        self._view: Any = None

    def put(self, arrays: Sequence[Any]) -> Dict[str, Any]:
        """Copies the arrays into the file; what must be told to the other side."""
        import numpy as np

        described: List[Dict[str, Any]] = []
        end = 0
        for array in arrays:
            offset = -(-end // _ALIGNMENT) * _ALIGNMENT
            described.append({"type": array.dtype.str, "shape": array.shape, "offset": offset})
            end = offset + array.nbytes
        # arrays without a byte, or no arrays, need a file too: the message names one
        if end > self._capacity or not self._name:
            self._grow(end)
        for array, place in zip(arrays, described):  # noqa: B905 - strict is younger than Python 3.6
            target = np.frombuffer(self._view, np.uint8, array.nbytes, place["offset"])
            target.view(array.dtype).reshape(array.shape)[...] = array
        return {"file": self._name, "arrays": described}

    def close(self) -> None:
        self._view = None
        self._capacity = 0
        if self._name:
            _remove(os.path.join(self._folder, self._name))
            self._name = ""

    def _grow(self, size: int) -> None:
        # what comes is often of one size, and the memory little; arrays that creep up must not take a file each time
        wanted = max(_SMALLEST, size, self._capacity * 5 // 4)
        capacity = -(-wanted // mmap.PAGESIZE) * mmap.PAGESIZE
        self.close()
        self._number += 1
        name = f"{self._prefix}-{self._number}"
        try:
            self._view = _mapped(os.path.join(self._folder, name), capacity)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise RoomFault(f"no room for {capacity / 1e6:.1f} MB: {os.strerror(error.errno).lower()}") from error
        self._name, self._capacity = name, capacity


class Inbox(object):
    """The files that the other side writes. One thread."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._name = ""
        self._view: Any = None

    def get(self, message: Dict[str, Any]) -> List[Any]:
        """The arrays that a `put` of the other side described: views, good until its next `put`."""
        import numpy as np

        try:
            name = message["file"]
            if name != self._name:
                self._open(name)
            return [
                np.frombuffer(self._view, np.dtype(place["type"]), _count(place["shape"]), place["offset"]).reshape(
                    place["shape"]
                )
                for place in message["arrays"]
            ]
        except (KeyError, OSError, TypeError, ValueError) as error:
            raise TensorFault(f"there are no such arrays: {error}") from error

    def _open(self, name: str) -> None:
        if name != os.path.basename(name) or not name:
            raise ValueError(f"{name!r} is no name of a file")
        descriptor = os.open(os.path.join(self._folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._view = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)
        self._name = name


def _mapped(path: str, size: int) -> Any:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        # the space is taken now: a full memory would otherwise be a signal in the middle of a copy
        os.posix_fallocate(descriptor, 0, size)
        return mmap.mmap(descriptor, size)
    except OSError:
        _remove(path)
        raise
    finally:
        os.close(descriptor)


def _count(shape: Tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
