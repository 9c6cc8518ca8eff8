"""The cache of assets <-> what takes up space in it, piece by piece."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from mlmodelscope.core.storage import LEAST_AGE_SECONDS, StorageItem, StorageKind
from mlmodelscope.provision.cache import Cache
from mlmodelscope.provision.durable import read_json, remove

__all__ = ["discard", "folder_item", "storage_items"]


def storage_items(cache: Cache, needed: set[str] | None = None) -> list[StorageItem]:
    """`needed`: the digests that stored records name; None where nobody asked."""
    archives = _archive_digests(cache)
    items = [
        StorageItem(
            "archives" if (sha256 := entry.digests.sha256) in archives else "assets",
            sha256,
            entry.location,
            entry.digests.size_bytes,
            used_at,
            None if needed is None else sha256 in needed,
        )
        for entry, used_at in cache.entries()
    ]
    for note in sorted(cache.root.glob("converted/*/*.json")):
        known = read_json(note) or {}
        name = f"{known.get('location', '')} by {known.get('converter', '')}"
        items += _item("converted", note.with_suffix(""), name, used_by=note)
    for folder in ("parts", "tmp"):
        for path in sorted((cache.root / folder).glob("*")):
            items += _item("unfinished", path, path.name)
    return items


def discard(cache: Cache, items: Iterable[StorageItem]) -> list[StorageItem]:
    """Removes assets, archives, converted and unfinished files; those that were removed."""
    oldest = time.time() - LEAST_AGE_SECONDS
    removed = [item for item in items if _discarded(cache, item, oldest)]
    gone = {item.key for item in removed if item.kind in ("assets", "archives")}
    for path, note in cache.notes():
        if note.get("sha256") in gone:
            remove(path)
    return removed


def folder_item(kind: StorageKind, path: Path) -> StorageItem | None:
    """A file, or a folder with all that is in it; None where it is gone by now."""
    return next(iter(_item(kind, path, path.name)), None)


def _discarded(cache: Cache, item: StorageItem, oldest: float) -> bool:
    if item.kind in ("assets", "archives"):
        return cache.drop(item.key, oldest)
    path = Path(item.key)
    if cache.root not in path.parents:
        return False
    if item.kind == "converted":
        # the note first: a file without its note is made again, a note without its file would be too
        remove(path.with_name(f"{path.name}.json"))
    remove(path)
    return True


def _item(kind: StorageKind, path: Path, name: str, used_by: Path | None = None) -> Iterator[StorageItem]:
    # another process may finish or remove it meanwhile
    with suppress(FileNotFoundError):
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        size = sum(file.stat().st_size for file in files)
        used_at = max([(used_by or path).stat().st_mtime, *(file.stat().st_mtime for file in files if not used_by)])
        yield StorageItem(kind, str(path), name, size, used_at)


def _archive_digests(cache: Cache) -> set[str]:
    """What was kept only because members were taken from it: packages, and web files with a `!member` noted."""
    notes = [(str(note.get("location", "")), str(note.get("sha256", ""))) for _, note in cache.notes()]
    opened = {location.partition("!")[0] for location, _ in notes if "!" in location}
    is_archive: dict[str, bool] = {}
    for location, sha256 in notes:
        found = "!" not in location and (location.startswith(("npm:", "pypi:")) or location in opened)
        is_archive[sha256] = found and is_archive.get(sha256, True)
    return {sha256 for sha256, found in is_archive.items() if found}
