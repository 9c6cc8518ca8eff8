"""Files and folders -> digests, and the cheap question whether a file is still the one that was hashed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlmodelscope.core.asset import Checksum
from mlmodelscope.core.errors import DigestError, StorageError
from mlmodelscope.provision.durable import read_json, storing, write_json

__all__ = [
    "Digests",
    "HashMemory",
    "check",
    "combine",
    "describe_mismatch",
    "hash_file",
    "hash_path",
    "list_files",
    "text_key",
]

_CHUNK = 1 << 20
# a file may change twice within the resolution of its time stamp: a stamp this young proves nothing
_SETTLED_NS = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests and total size of one file or tree."""

    sha256: str
    md5: str
    size_bytes: int


def text_key(text: str) -> str:
    """A file name for any text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def hash_file(path: Path) -> Digests:
    sha256, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
    with storing(path), path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            sha256.update(chunk)
            md5.update(chunk)
            size += len(chunk)
    return Digests(sha256.hexdigest(), md5.hexdigest(), size)


def list_files(folder: Path) -> list[str]:
    """Relative paths of all files under `folder`, sorted; links inside it are followed for files only."""
    with storing(folder):
        return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def combine(files: Mapping[str, Digests]) -> Digests:
    """The tree digest: the hash of the lines `<digest>  <relative path>\\n`, sorted by path (as bytes)."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    for name in sorted(files, key=lambda name: name.encode("utf-8", "surrogateescape")):
        text = name.encode("utf-8", "surrogateescape")
        sha256.update(files[name].sha256.encode() + b"  " + text + b"\n")
        md5.update(files[name].md5.encode() + b"  " + text + b"\n")
    return Digests(sha256.hexdigest(), md5.hexdigest(), sum(file.size_bytes for file in files.values()))


def hash_path(path: Path) -> Digests:
    """The digest of a file, or the tree digest of a folder."""
    if path.is_dir():
        return combine({name: hash_file(path / name) for name in list_files(path)})
    return hash_file(path)


def _differences(found: Digests, checksum: Checksum | None) -> Iterator[tuple[str, str, str]]:
    if checksum is not None and checksum.sha256 is not None and checksum.sha256 != found.sha256:
        yield "SHA-256", checksum.sha256, found.sha256
    if checksum is not None and checksum.md5 is not None and checksum.md5 != found.md5:
        yield "MD5", checksum.md5, found.md5


def describe_mismatch(found: Digests, checksum: Checksum | None) -> str | None:
    """Why `found` is not what `checksum` says; None where it is."""
    for algorithm, expected, actual in _differences(found, checksum):
        return f"its {algorithm} is {actual}, expected {expected}"
    return None


def check(found: Digests, checksum: Checksum | None, location: str, *, is_tree: bool = False) -> None:
    """Raises DigestError unless `found` is what `checksum` says."""
    for algorithm, expected, actual in _differences(found, checksum):
        hint = "the file changed at its source, or the manifest's checksum is wrong"
        if is_tree:
            hint += "; the checksum of several files is their tree digest (docs/reference/sources.md)"
        raise DigestError(
            f"{location} is not the expected file: its {algorithm} is {actual}, expected {expected}",
            hint=hint,
            location=location,
            algorithm=algorithm,
            expected=expected,
            actual=actual,
        )


class HashMemory:
    """Remembers the digests of files used in place, by path, size, times and inode; a full hash where any changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def hash(self, path: Path) -> Digests:
        """The digest of a file, or the tree digest of a folder; one note is kept for each."""
        note = self._folder / f"{text_key(str(path.absolute()))}.json"
        known = (read_json(note) or {}).get("files")
        files = _remembered(path, known if isinstance(known, dict) else {})
        kept = {name: file.note for name, file in files.items() if file.note is not None}
        if kept != known:
            # a memory that cannot be written costs time, not correctness
            with suppress(StorageError):
                write_json(note, {"schema": 1, "path": str(path), "files": kept})
        if path.is_dir():
            return combine({name: file.digests for name, file in files.items()})
        return files[""].digests


@dataclass(frozen=True, slots=True)
class _Hashed:
    digests: Digests
    note: dict[str, Any] | None


def _remembered(path: Path, known: Mapping[str, Any]) -> dict[str, _Hashed]:
    names = list_files(path) if path.is_dir() else [""]
    return {name: _hash_unless(path / name if name else path, known.get(name)) for name in names}


def _hash_unless(path: Path, known: Any) -> _Hashed:
    with storing(path):
        before = _identity(path)
    if isinstance(known, dict) and known.get("identity") == before:
        with suppress(KeyError, TypeError):
            return _Hashed(Digests(**known["digests"]), known)
    found = hash_file(path)
    with storing(path):
        after = _identity(path)
    if before != after or time.time_ns() - after["changed_ns"] < _SETTLED_NS:
        return _Hashed(found, None)
    return _Hashed(found, {"identity": after, "digests": asdict(found)})


def _identity(path: Path) -> dict[str, int]:
    facts = path.stat()
    return {
        "size": facts.st_size,
        "mtime_ns": facts.st_mtime_ns,
        "changed_ns": max(facts.st_ctime_ns, facts.st_mtime_ns),
        "inode": facts.st_ino,
        "device": facts.st_dev,
    }
