"""Addresses of mirrors and a digest -> the verified files of an asset: from folders and plain file servers.

A mirror holds objects by digest (objects.py), so it needs no trust: what it serves is either the asset or refused.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from mlmodelscope.core.asset import public_location
from mlmodelscope.core.errors import ArchiveError, DigestError, DownloadError, UnknownNameError, UsageError
from mlmodelscope.provision.digests import Digests, combine, hash_file
from mlmodelscope.provision.durable import read_json, storing, write_json
from mlmodelscope.provision.objects import FILES, TREES, object_path, parse_listing

__all__ = ["Mirrored", "Mirrors", "add_place", "configured_places", "is_web_address", "remove_place"]

_LIST = "mirrors.json"
_LARGEST_LISTING_BYTES = 256 << 20

# (URL, target): fetches one file of a server; DownloadError where it cannot
Download = Callable[[str, Path], None]


def configured_places(home: Path) -> list[str]:
    """The mirrors that were added in this home, in order."""
    listed = (read_json(home / _LIST) or {}).get("mirrors")
    return [str(place) for place in listed] if isinstance(listed, list) else []


def add_place(home: Path, place: str) -> str:
    """Remembers a mirror; the text it is kept as. A folder must be there: a server may be away today."""
    if is_web_address(place):
        kept = place.rstrip("/")
        if not urlsplit(kept).hostname:
            raise UsageError(
                f"{public_location(place)} names no host", hint="write it like https://mirror.example/assets"
            )
    elif re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", place):
        raise UsageError(f"{place!r} cannot be a mirror", hint="give a folder, or an address that begins with https://")
    else:
        kept = str(Path(place).expanduser().absolute())
        if not Path(kept).is_dir():
            raise UsageError(
                f"there is no folder {kept}", hint=f"make it with `mlmodelscope assets export MODEL -o {place}`"
            )
    places = configured_places(home)
    if kept not in places:
        write_json(home / _LIST, {"schema": 1, "mirrors": [*places, kept]})
    return kept


def remove_place(home: Path, place: str) -> None:
    places = configured_places(home)
    meant = {place, place.rstrip("/"), str(Path(place).expanduser().absolute())}
    if not meant.intersection(places):
        raise UnknownNameError("mirror", place, map(public_location, places))
    write_json(home / _LIST, {"schema": 1, "mirrors": [kept for kept in places if kept not in meant]})


def is_web_address(place: str) -> bool:
    return re.match(r"https?://", place, re.IGNORECASE) is not None


class _Folder:
    """A folder on this machine or a mounted one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.label = str(folder)

    def fetch(self, path: str, target: Path, download: Download) -> bool:
        """Copies one object to `target`; False where the mirror does not hold it."""
        source = self.folder / path
        if not source.is_file():
            return False
        with storing(target):
            shutil.copyfile(source, target)
        return True


class _Server:
    """Any server of static files. One that does not answer is not asked again by this process."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self.label = public_location(self._url)
        self._is_down = False

    def fetch(self, path: str, target: Path, download: Download) -> bool:
        if self._is_down:
            return False
        try:
            download(f"{self._url}/{path}", target)
        except DownloadError as error:
            # an answer means that the server is there but not the file
            self._is_down = not str(error.fields.get("reason", "")).startswith("HTTP 4")
            return False
        return True


@dataclass(frozen=True, slots=True)
class Mirrored:
    """What a mirror delivered. `location` says which one."""

    digests: Digests
    is_tree: bool
    location: str


class Mirrors:
    """Folders and web addresses, in the order in which they are asked."""

    def __init__(self, places: Sequence[str] = ()) -> None:
        self._mirrors = [
            _Server(place) if is_web_address(place) else _Folder(Path(place).expanduser()) for place in places
        ]

    def deliver(self, sha256: str, name: str, target: Path, download: Download) -> Mirrored | None:
        """Writes the asset of that digest into the empty folder `target`, a single file under `name`.

        None where no mirror holds it; a mirror whose object is not what its digest says is passed over.
        """
        for mirror in self._mirrors:
            try:
                if (found := _from_mirror(mirror, sha256, name, target, download)) is not None:
                    return found
            except (ArchiveError, DigestError):
                pass
            _empty(target)
        return None


def _from_mirror(
    mirror: _Folder | _Server, sha256: str, name: str, target: Path, download: Download
) -> Mirrored | None:
    location = f"{mirror.label} (sha256:{sha256})"
    if mirror.fetch(object_path(FILES, sha256), target / name, download):
        return Mirrored(_verified(target / name, sha256, mirror.label), False, location)
    listing = target / f"{sha256}.listing"
    if not mirror.fetch(object_path(TREES, sha256), listing, download):
        return None
    _verified(listing, sha256, mirror.label)
    if listing.stat().st_size > _LARGEST_LISTING_BYTES:
        raise ArchiveError(f"the listing of {sha256[:12]} is too large", sha256=sha256)
    files = parse_listing(listing.read_bytes(), sha256)
    listing.unlink()
    digests = {}
    for path, digest in files.items():
        place = target / path
        with storing(place):
            place.parent.mkdir(parents=True, exist_ok=True)
        if not mirror.fetch(object_path(FILES, digest), place, download):
            return None
        digests[path] = _verified(place, digest, mirror.label)
    return Mirrored(combine(digests), True, location)


def _verified(path: Path, sha256: str, mirror: str) -> Digests:
    found = hash_file(path)
    if found.sha256 != sha256:
        raise DigestError(
            f"the mirror {mirror} serves another file as {sha256}",
            expected=sha256,
            actual=found.sha256,
            location=mirror,
        )
    return found


def _empty(folder: Path) -> None:
    with storing(folder):
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
