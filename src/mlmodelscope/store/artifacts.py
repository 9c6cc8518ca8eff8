"""Bytes or a file <-> a file of the artifact folder that is named after its SHA-256."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mlmodelscope.core.errors import StoreError
from mlmodelscope.core.record import Artifact

__all__ = ["ArtifactFolder"]

_CHUNK_BYTES = 1 << 20


class ArtifactFolder:
    """`folder`/sha256/ab/abcd...: complete files only, each once. Safe for many threads and processes.

    A file gets its name by a rename, after its content is on the disk: whoever sees the name sees the content. What a
    killed process leaves is a file in `folder`/tmp that nobody reads.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, content: bytes | Path, name: str, media_type: str) -> Artifact:
        with _translating(name):
            sha256, size = _measure(content)
            place = self._place(sha256)
            # a damaged file of that name is replaced: the content is at hand
            if place.is_file() and _measure(place) == (sha256, size):
                # younger than anything that is pruned: the record that will name it is still to come
                os.utime(place)
            else:
                stored = self._write(content, place)
                if stored != sha256:
                    raise StoreError(
                        f"the file of the artifact {name!r} changed while it was stored",
                        hint="close the file before it is stored",
                        name=name,
                    )
            return Artifact(name=name, sha256=sha256, size_bytes=size, media_type=media_type)

    def read(self, artifact: Artifact) -> bytes:
        with _translating(artifact.name):
            try:
                content = self._place(artifact.sha256).read_bytes()
            except FileNotFoundError:
                raise _missing(artifact) from None
        found = hashlib.sha256(content).hexdigest()
        if found != artifact.sha256:
            raise StoreError(
                f"the artifact {artifact.name!r} is damaged: its SHA-256 is {found}, not {artifact.sha256}",
                hint="restore the file from a backup, or run the evaluation again",
                name=artifact.name,
                expected=artifact.sha256,
                found=found,
            )
        return content

    def require(self, artifact: Artifact) -> None:
        """Raises StoreError unless the file is there with the size it should have."""
        with _translating(artifact.name):
            place = self._place(artifact.sha256)
            if not place.is_file() or place.stat().st_size != artifact.size_bytes:
                raise _missing(artifact)

    def files(self) -> Iterator[tuple[str, int, float]]:
        """(SHA-256, bytes, last use in Unix seconds) of every file."""
        yield from _files(self._folder / "sha256", "*/*")

    def unfinished(self) -> Iterator[tuple[str, int, float]]:
        """The same of what killed processes left, under its file name."""
        yield from _files(self._folder / "tmp", "*")

    def discard(self, sha256: str, oldest: float) -> bool:
        """Removes the file of a digest, or an unfinished one, unless it was used after `oldest`."""
        is_digest = len(sha256) == 64
        place = self._place(sha256) if is_digest else self._folder / "tmp" / Path(sha256).name
        with _translating(sha256):
            if not place.is_file() or place.stat().st_mtime > oldest:
                return False
            place.unlink(missing_ok=True)
        return True

    def _place(self, sha256: str) -> Path:
        if len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
            raise StoreError(f"{sha256!r} is not a SHA-256 digest", sha256=sha256)
        return self._folder / "sha256" / sha256[:2] / sha256

    def _write(self, content: bytes | Path, place: Path) -> str:
        """Writes to a temporary file that becomes `place`; returns the digest of what was written, and gives the file
        its name only if that is the name it should have."""
        waiting = self._folder / "tmp"
        _make_folder(waiting)
        _make_folder(place.parent)
        with _temporary_file(waiting) as (file, path):
            digest = hashlib.sha256()
            for chunk in _chunks(content):
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fchmod(file.fileno(), 0o444)
            os.fsync(file.fileno())
            if digest.hexdigest() == place.name:
                path.replace(place)
                _sync_folder(place.parent)
        return digest.hexdigest()


def _files(folder: Path, pattern: str) -> Iterator[tuple[str, int, float]]:
    for path in folder.glob(pattern):
        # another process may finish or remove it meanwhile
        with suppress(FileNotFoundError):
            facts = path.stat()
            yield path.name, facts.st_size, facts.st_mtime


@contextmanager
def _temporary_file(folder: Path) -> Iterator[tuple[IO[bytes], Path]]:
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        path = Path(file.name)
        try:
            yield file, path
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _translating(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the artifact {name!r} cannot be stored or read: {error.strerror or error}",
            hint="check the free space and the permissions of MLMODELSCOPE_HOME",
            name=name,
            path=str(error.filename or ""),
        ) from error


def _missing(artifact: Artifact) -> StoreError:
    return StoreError(
        f"the artifact {artifact.name!r} ({artifact.sha256[:12]}) is not in the store",
        hint="restore the artifacts folder of MLMODELSCOPE_HOME from a backup",
        name=artifact.name,
        sha256=artifact.sha256,
    )


def _measure(content: bytes | Path) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(content):
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


def _chunks(content: bytes | Path) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
        return
    with content.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive the loss of power, as fsync does for the content of a file."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
