"""What the layers inside a model computed -> a file of arrays (.npz) or of names, and such a file -> checked values.

A worker writes both into its run folder. It may have meant harm: nothing that a file says of itself is believed.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from mlmodelscope.core.errors import UnknownNameError, WorkerCrashError
from mlmodelscope.worker.results import MOST_BYTES, read_result

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = ["ARRAYS_FILE", "NAMES_FILE", "checked_layers", "read_arrays", "read_names", "write_arrays", "write_names"]

ARRAYS_FILE = "layers.npz"
NAMES_FILE = "layers.json"
_ENDING = ".npy"
# of text, numbers and dates; an array of anything else runs code when it is read
_KINDS = "biufcmMSU"


def checked_layers(asked: Sequence[str], known: Sequence[str]) -> list[str]:
    """Those asked for; UnknownNameError where one is not among those that the model has."""
    for name in asked:
        if name not in known:
            raise UnknownNameError("layer", name, known)
    return list(asked)


def write_arrays(file: IO[bytes], arrays: Iterable[tuple[str, Array]]) -> None:
    """One .npz file, an array at a time, as `numpy.load` reads it; texts of any length become texts of one length."""
    import numpy as np

    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for key, array in arrays:
            kept = array.astype(str) if array.dtype.hasobject else array
            # a fixed time: equal arrays make equal files
            member = zipfile.ZipInfo(key + _ENDING)
            with archive.open(member, "w", force_zip64=True) as target:
                np.lib.format.write_array(target, kept, allow_pickle=False)


def read_arrays(path: Path, most_bytes: int = MOST_BYTES) -> dict[str, Array]:
    """The arrays of a file that `write_arrays` wrote, by key, in order. WorkerCrashError: it is no such file."""
    content = read_result(path, most_bytes)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            # members that overlap, or are packed, could be far larger than their file
            if sum(member.file_size for member in members) > len(content):
                raise ValueError("its parts are larger than it is")
            return {member.filename.removesuffix(_ENDING): _array(archive.read(member)) for member in members}
    except (
        EOFError,
        NotImplementedError,
        RuntimeError,
        SyntaxError,
        TypeError,
        ValueError,
        zipfile.BadZipFile,
    ) as error:
        raise WorkerCrashError(
            f"the worker left a result that cannot be used: {path.name}: {error}", file=path.name, reason=str(error)
        ) from None


def _array(content: bytes) -> Array:
    import numpy as np

    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array of another version")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.kind not in _KINDS or any(size < 0 for size in shape):
        raise ValueError(f"an array of {dtype} and shape {shape}")
    body = memoryview(content)[file.tell() :]
    # our own integers do not overflow
    if math.prod(shape) * dtype.itemsize != len(body):
        raise ValueError(f"{len(body)} bytes for an array of {dtype} and shape {shape}")
    if not len(body):
        return np.empty(shape, dtype)
    return np.frombuffer(body, dtype).reshape(shape, order="F" if is_fortran else "C").copy()


def write_names(path: Path, names: Sequence[str]) -> None:
    path.write_text(json.dumps(list(names), ensure_ascii=False), encoding="utf-8", errors="replace")


def read_names(path: Path, most_bytes: int = MOST_BYTES) -> list[str]:
    """WorkerCrashError: it is no list of names."""
    try:
        names = json.loads(read_result(path, most_bytes))
    except (ValueError, RecursionError) as error:
        names = error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise WorkerCrashError(
            f"the worker left a result that cannot be used: {path.name}: it is no list of names", file=path.name
        )
    return names
