"""Verified files -> a store on this machine, addressed by content hash, that many processes may use at once.

assets/sha256/ab/abcd.../NAME    a file, or the files of a tree, read-only, under its (tree) digest
assets/sha256/ab/abcd....json    size and time of each file when it was hashed, so that a look-up need not hash again
assets/index/KEY.json            where something came from -> its digest
assets/converted/ab/KEY/NAME     what a converter made, with its provenance in KEY.json
assets/parts, locks, tmp, hashes transfers under way, locks, unfinished files, digests of files used in place
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlmodelscope.provision.digests import Digests, HashMemory, combine, hash_file, list_files, text_key
from mlmodelscope.provision.download import Part
from mlmodelscope.provision.durable import locked, place, private_folder, read_json, remove, storing, write_json

__all__ = ["Cache", "Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in the cache: one file under `name`, or a tree. `location` is where it first came from."""

    folder: Path
    digests: Digests
    is_tree: bool
    name: str
    location: str

    def file(self, wanted: str) -> Path:
        """The path of the one file, by the name that is wanted: its ending may mean something to a framework."""
        path = self.folder / wanted
        if wanted == self.name or path.exists():
            return path
        source = self.folder / self.name
        with storing(path):
            try:
                os.link(source, path)
            except FileExistsError:
                pass
            except OSError:
                shutil.copy2(source, path)
        return path


class Cache:
    """The store under `root`. Reading creates nothing; each method may be called from any thread or process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.hashes = HashMemory(root / "hashes")

    @contextmanager
    def locked(self, key: str) -> Iterator[None]:
        with locked(self.root / "locks" / f"{text_key(key)}.lock"):
            yield

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        with private_folder(self.root / "tmp") as folder:
            yield folder

    def part(self, key: str) -> Part:
        return Part(self.root / "parts" / f"{text_key(key)}.part")

    def converted_folder(self, key: str) -> Path:
        return self.root / "converted" / key[:2] / key

    def remember(self, key: str, sha256: str, location: str) -> None:
        write_json(self._note(key), {"schema": 1, "location": location, "sha256": sha256})

    def recall(self, key: str) -> Entry | None:
        """What came from `key` before, if it is still there and sound."""
        sha256 = (read_json(self._note(key)) or {}).get("sha256")
        return self.lookup(sha256) if isinstance(sha256, str) else None

    def forget(self, key: str) -> None:
        """Drops what came from `key`."""
        sha256 = (read_json(self._note(key)) or {}).get("sha256")
        if isinstance(sha256, str):
            self._drop(sha256)
        remove(self._note(key))

    def lookup(self, sha256: str) -> Entry | None:
        """The entry of this digest; one whose files changed since they were hashed is hashed again, or dropped."""
        folder, stamp = self._folder(sha256), read_json(self._stamp(sha256))
        if not folder.is_dir():
            return None
        if stamp is not None and stamp.get("files") == _stamps(folder, stamp):
            # the time of the last use, by which old entries are found; a cache that cannot be written is still a cache
            with suppress(OSError):
                os.utime(self._stamp(sha256))
            return _entry(folder, stamp)
        with self.locked(sha256):
            return self._recovered(sha256, stamp or {})

    def add(self, source: Path, location: str, *, is_tree: bool, digests: Digests) -> Entry:
        """Takes the folder `source` (from `scratch`), which holds a tree or one file, into the cache."""
        names = list_files(source)
        with storing(source):
            source.chmod(0o755)
            for name in names:
                (source / name).chmod(0o444)
        folder = self._folder(digests.sha256)
        with self.locked(digests.sha256):
            known = read_json(self._stamp(digests.sha256))
            if known is not None and folder.is_dir() and known.get("files") == _stamps(folder, known):
                return _entry(folder, known)
            place(source, folder)
            name = "" if is_tree else names[0]
            return self._stamped(digests, is_tree=is_tree, name=name, location=location)

    def _stamped(self, digests: Digests, *, is_tree: bool, name: str, location: str) -> Entry:
        folder = self._folder(digests.sha256)
        stamp: dict[str, Any] = {"schema": 1, "is_tree": is_tree, "name": name, "location": location}
        stamp |= {"sha256": digests.sha256, "md5": digests.md5, "size_bytes": digests.size_bytes}
        stamp["files"] = _stamps(folder, stamp)
        write_json(self._stamp(digests.sha256), stamp)
        return _entry(folder, stamp)

    def _recovered(self, sha256: str, stamp: dict[str, Any]) -> Entry | None:
        """The entry, hashed in full: nobody may use bytes that only look right."""
        folder = self._folder(sha256)
        if not folder.is_dir():
            return None
        files = {name: hash_file(folder / name) for name in list_files(folder)}
        location = str(stamp.get("location", f"sha256:{sha256}"))
        if files and all(file.sha256 == sha256 for file in files.values()):
            name = str(stamp.get("name") or min(files))
            if name in files:
                return self._stamped(files[name], is_tree=False, name=name, location=location)
        elif files and (tree := combine(files)).sha256 == sha256:
            return self._stamped(tree, is_tree=True, name="", location=location)
        self._drop_unlocked(sha256)
        return None

    def entries(self) -> Iterator[tuple[Entry, float]]:
        """Every entry with the time of its last use, in Unix seconds; nothing is hashed."""
        for note in sorted(self.root.glob("sha256/*/*.json")):
            stamp, folder = read_json(note), note.with_suffix("")
            with suppress(KeyError, ValueError, TypeError, FileNotFoundError):
                if stamp is not None and folder.is_dir():
                    yield _entry(folder, stamp), note.stat().st_mtime

    def notes(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Every note of where something came from."""
        for path in sorted(self.root.glob("index/*.json")):
            if (note := read_json(path)) is not None:
                yield path, note

    def drop(self, sha256: str, oldest: float) -> bool:
        """Removes the entry unless it was used after `oldest`."""
        with self.locked(sha256), storing(self._folder(sha256)):
            stamp = self._stamp(sha256)
            if stamp.is_file() and stamp.stat().st_mtime > oldest:
                return False
            self._drop_unlocked(sha256)
        return True

    def _drop(self, sha256: str) -> None:
        with self.locked(sha256):
            self._drop_unlocked(sha256)

    def _drop_unlocked(self, sha256: str) -> None:
        remove(self._stamp(sha256))
        remove(self._folder(sha256))

    def _folder(self, sha256: str) -> Path:
        return self.root / "sha256" / sha256[:2] / sha256

    def _stamp(self, sha256: str) -> Path:
        return self.root / "sha256" / sha256[:2] / f"{sha256}.json"

    def _note(self, key: str) -> Path:
        return self.root / "index" / f"{text_key(key)}.json"


def _entry(folder: Path, stamp: dict[str, Any]) -> Entry:
    digests = Digests(str(stamp["sha256"]), str(stamp["md5"]), int(stamp["size_bytes"]))
    return Entry(folder, digests, bool(stamp["is_tree"]), str(stamp["name"]), str(stamp["location"]))


def _stamps(folder: Path, stamp: dict[str, Any]) -> dict[str, list[int]]:
    """Size and time of every file; of a lone file under all the names it was given."""
    found = {}
    for name in list_files(folder) if stamp.get("is_tree") else [str(stamp.get("name"))]:
        try:
            facts = (folder / name).stat()
        except OSError:
            return {}
        found[name] = [facts.st_size, facts.st_mtime_ns]
    return found
