"""A path given by the user -> a file that is whole or not there at all."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mlmodelscope.core.errors import StorageError, UsageError

__all__ = ["chosen_format", "open_output"]


def chosen_format(path: Path | None, given: str | None, endings: dict[str, str], default: str | None) -> str:
    """The format that was given, else that of the path's ending (`endings`: ending -> format), else the default."""
    if given is not None:
        return given
    if path is None or str(path) == "-":
        if default is not None:
            return default
    elif path.suffix.lower() in endings:
        return endings[path.suffix.lower()]
    name = path.name if path else "-"
    raise UsageError(f"the ending of {name!r} names no format", hint=f"write one of {', '.join(sorted(endings))}")


@contextmanager
def open_output(path: Path) -> Iterator[IO[bytes]]:
    """A file to write; `-` is standard output. The path gets the content when all of it was written, not before.

    StorageError says why a path cannot be written; what lay there is still there then.
    """
    if str(path) == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="give the name of a file")
    try:
        if path.exists() and not path.is_file():
            # a pipe or a device cannot be replaced
            with path.open("wb") as file:
                yield file
            return
        with _replacing(path) as file:
            yield file
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {(error.strerror or str(error)).lower()}",
            hint=None if path.parent.is_dir() else "the folder is not there",
            path=str(path),
        ) from error


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    target = path.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:40]}-", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            # mkstemp gives the file to its owner alone
            os.fchmod(file.fileno(), _mode(target))
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mode(target: Path) -> int:
    """The mode of the file that is replaced, else that of any new file."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
