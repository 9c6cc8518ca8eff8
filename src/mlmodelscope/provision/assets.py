"""An asset of a manifest -> a verified file or folder on this machine, converted where the manifest asks for it.

The steps: what is here already (in place, or in the cache) is checked and used; else the mirrors are asked by digest,
then the locations are tried in order; whatever arrives is checked before it gets its name in the cache; then the
converter runs, once per original.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mlmodelscope.core import settings
from mlmodelscope.core.asset import Asset, Checksum, Conversion, FetchedAsset, Location, parse_location
from mlmodelscope.core.errors import (
    ArchiveError,
    DigestError,
    DownloadError,
    EnvironmentMissingError,
    MLModelScopeError,
    ModelFormatError,
    UnknownNameError,
)
from mlmodelscope.core.value import digest_of
from mlmodelscope.provision.bundles import AssetContent
from mlmodelscope.provision.cache import Cache, Entry
from mlmodelscope.provision.convert import Converter, converter
from mlmodelscope.provision.digests import Digests, check, combine, describe_mismatch, hash_path, list_files
from mlmodelscope.provision.durable import place, read_json, remove, storing, write_json
from mlmodelscope.provision.locations import index_key, is_in_place, label, local_path
from mlmodelscope.provision.mirrors import Mirrors, configured_places
from mlmodelscope.provision.progress import Progress
from mlmodelscope.provision.sources import Sources

__all__ = ["AssetState", "Assets"]

# what one location may fail with while another may still serve
_LOCATION_ERRORS = (ArchiveError, DigestError, DownloadError, EnvironmentMissingError, UnknownNameError)


@dataclass(frozen=True, slots=True)
class AssetState:
    """What a fetch would find, without doing it. `needs_download` is about the network; `path` is of the original."""

    is_present: bool
    needs_download: bool
    path: Path | None = None
    sha256: str | None = None
    size_bytes: int | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class _Original:
    path: Path
    digests: Digests
    location: str


class Assets:
    """The assets of this machine, under `home`. Any number of threads and processes may share one home.

    `fetch` raises DigestError (not what the checksum says), DownloadError (each location with its reason),
    ArchiveError, UnknownNameError (no such member, or no such converter), EnvironmentMissingError, StorageError or
    ConvertError.
    """

    def __init__(self, home: Path, *, sources: Sources | None = None, mirrors: Sequence[str] | None = None) -> None:
        """`mirrors`: folders and web addresses; None for those of the settings and of this home."""
        self._cache = Cache(home / "assets")
        self._sources = sources or Sources(self._cache)
        self._mirrors = Mirrors([*settings.mirrors(), *configured_places(home)] if mirrors is None else mirrors)

    @property
    def cache(self) -> Cache:
        return self._cache

    def fetch(
        self, asset: Asset, *, base: Path | None = None, progress: Progress | None = None, reads_paths: bool = True
    ) -> FetchedAsset:
        """The asset, ready to be used. `base` is the folder that relative paths start from: the manifest's own.

        Without `reads_paths`, paths of this machine are passed over: a stranger's manifest means files of another one.
        """
        reader = converter(asset.conversion.name) if asset.conversion else None
        request = _Request(asset, base, reader, reads_paths)
        original = self._present(request) or self._first_served(request, progress)
        if reader is None or asset.conversion is None:
            return _fetched(original, original.path)
        return self._converted(original, reader, asset.conversion)

    def content(
        self, asset: Asset, *, base: Path | None = None, progress: Progress | None = None, reads_paths: bool = True
    ) -> AssetContent:
        """The original files of the asset, before any conversion, fetched where they are not here."""
        reader = converter(asset.conversion.name) if asset.conversion else None
        request = _Request(asset, base, reader, reads_paths)
        original = self._present(request) or self._first_served(request, progress)
        path, digests = original.path, original.digests
        if path.is_dir():
            files = {name: path / name for name in list_files(path)}
        else:
            companions = _companions(reader, path) if reader is not None else []
            files = {path.name: path} | {name: path.parent / name for name in companions}
        is_tree = path.is_dir() or len(files) > 1
        return AssetContent(digests.sha256, digests.size_bytes, original.location, is_tree, files)

    def describe(self, asset: Asset, *, base: Path | None = None) -> AssetState:
        """Whether `fetch` would need the network, without using it."""
        request = _Request(asset, base, converter(asset.conversion.name) if asset.conversion else None)
        found = self._present(request)
        if found is not None:
            digests = found.digests
            return AssetState(True, False, found.path, digests.sha256, digests.size_bytes, found.location)
        paths = [local_path(place, base) for place in request.locations if place.kind == "path"]
        return AssetState(False, not any(path.exists() for path in paths))

    def _present(self, request: _Request) -> _Original | None:
        """The asset as it is here already; a file that is not what it should be is passed over."""
        for location in request.usable:
            if is_in_place(location):
                with suppress(*_LOCATION_ERRORS):
                    return self._in_place(location, request)
            elif (entry := self._cached(location, request)) is not None:
                return _original(entry, location)
        # brought here by digest: from a bundle, or by another manifest
        known = self._cache.lookup(request.sha256) if request.sha256 is not None else None
        return _original(known, request.locations[0]) if known is not None else None

    def _cached(self, location: Location, request: _Request) -> Entry | None:
        checksum = request.checksum
        if checksum is not None and checksum.sha256 is not None:
            entry = self._cache.lookup(checksum.sha256)
        else:
            key = self._key(location, request)
            entry = self._cache.recall(key) if key is not None else None
        return None if entry is None or describe_mismatch(entry.digests, checksum) else entry

    def _key(self, location: Location, request: _Request) -> str | None:
        reader = f"{request.reader.name} {request.reader.digest()}" if request.reader else ""
        if location.kind != "path":
            return index_key(location, None, reader)
        archive = local_path(location, request.base)
        return index_key(location, self._cache.hashes.hash(archive).sha256, reader) if archive.is_file() else None

    def _in_place(self, location: Location, request: _Request) -> _Original:
        """A file or folder used where it lies."""
        path = local_path(location, request.base)
        if not path.exists():
            raise DownloadError(f"there is no file {path}", location=str(path), reason="there is no such file")
        digests = self._hash_with_companions(path, request.reader)
        check(digests, request.checksum, str(path), is_tree=path.is_dir() or request.reader is not None)
        return _Original(path, digests, label(location))

    def _hash_with_companions(self, path: Path, reader: Converter | None) -> Digests:
        own = self._cache.hashes.hash(path)
        companions = _companions(reader, path) if reader is not None and path.is_file() else []
        if not companions:
            return own
        files = {name: path.parent / name for name in companions}
        missing = [name for name, file in files.items() if not file.is_file()]
        if missing:
            raise DownloadError(
                f"{path} needs {missing[0]} beside it", location=str(path), reason=f"it needs {missing[0]} beside it"
            )
        return combine({path.name: own} | {name: self._cache.hashes.hash(file) for name, file in files.items()})

    def _first_served(self, request: _Request, progress: Progress | None) -> _Original:
        if (entry := self._mirrored(request, progress)) is not None:
            return _original(entry, request.locations[0])
        failures: list[tuple[Location, MLModelScopeError]] = []
        for location in request.usable:
            try:
                return self._served(location, request, progress)
            except _LOCATION_ERRORS as error:
                failures.append((location, error))
        raise _all_failed(failures, request)

    def _mirrored(self, request: _Request, progress: Progress | None) -> Entry | None:
        sha256, name = request.sha256, request.locations[0].name
        if sha256 is None:
            return None
        with self._cache.locked(f"mirror {sha256}"), self._cache.scratch() as folder:
            found = self._mirrors.deliver(
                sha256, name, folder, lambda url, target: self._sources.download(url, target, progress)
            )
            if found is None:
                return None
            return self._cache.add(folder, found.location, is_tree=found.is_tree, digests=found.digests)

    def _served(self, location: Location, request: _Request, progress: Progress | None) -> _Original:
        if is_in_place(location):
            return self._in_place(location, request)
        key = self._key(location, request)
        with self._cache.locked(key or str(location)):
            entry = self._cached(location, request) or self._delivered(location, request, key, progress)
        return _original(entry, location)

    def _delivered(
        self,
        location: Location,
        request: _Request,
        key: str | None,
        progress: Progress | None,
        *,
        is_last: bool = False,
    ) -> Entry:
        reader = request.reader
        with self._cache.scratch() as folder:
            may_differ = self._sources.deliver(
                location,
                request.base,
                folder,
                (lambda path: _companions(reader, path)) if reader is not None else None,
                progress,
                is_pinned=request.is_pinned,
                is_fresh=is_last,
            )
            is_tree = location.is_folder or len(list(folder.iterdir())) > 1
            digests = hash_path(folder if is_tree else folder / location.name)
            try:
                check(digests, request.checksum, label(location), is_tree=is_tree)
            except DigestError:
                if is_last or not may_differ:
                    self._sources.forget(location)
                    raise
                # put together from two answers, or from an archive fetched long ago: once more, from the start
                return self._delivered(location, request, key, progress, is_last=True)
            entry = self._cache.add(folder, label(location), is_tree=is_tree, digests=digests)
        if key is not None:
            self._cache.remember(key, digests.sha256, label(location))
        return entry

    def _converted(self, original: _Original, reader: Converter, conversion: Conversion) -> FetchedAsset:
        facts = {
            "converter": conversion.name,
            "converter_digest": reader.digest(),
            "options": dict(conversion.options),
            "original_sha256": original.digests.sha256,
        }
        key = digest_of(facts)
        folder = self._cache.converted_folder(key)
        note = folder.with_name(f"{key}.json")
        target = folder / f"{original.path.stem}{reader.extension}"
        with self._cache.locked(f"converted {key}"):
            known = read_json(note)
            if known is None or not _is_stamped(target, known):
                remove(note)
                with self._cache.scratch() as scratch:
                    with storing(scratch):
                        reader.convert(original.path, scratch / target.name, conversion.options)
                    sha256 = hash_path(scratch / target.name).sha256
                    with storing(scratch):
                        scratch.chmod(0o755)
                        (scratch / target.name).chmod(0o444)
                    place(scratch, folder)
                known = {"schema": 1, "location": original.location, "sha256": sha256, **facts, **_stamp(target)}
                write_json(note, known)
            else:
                with suppress(OSError):
                    os.utime(note)
        return _fetched(original, target).model_copy(
            update={
                "converted_sha256": str(known["sha256"]),
                "converter": conversion.name,
                "converter_digest": facts["converter_digest"],
            }
        )


@dataclass(frozen=True, slots=True)
class _Request:
    """One call of `fetch` or `describe`: the asset parsed, with what was looked up for it."""

    asset: Asset
    base: Path | None
    reader: Converter | None
    reads_paths: bool = True

    @property
    def usable(self) -> Sequence[Location]:
        """The locations to look at."""
        return [place for place in self.locations if self.reads_paths or place.kind != "path"]

    @property
    def sha256(self) -> str | None:
        return self.checksum.sha256 if self.checksum is not None else None

    @property
    def locations(self) -> Sequence[Location]:
        return [parse_location(text) for text in self.asset.locations]

    @property
    def checksum(self) -> Checksum | None:
        return self.asset.checksum

    @property
    def is_pinned(self) -> bool:
        return self.checksum is not None and (self.checksum.sha256 or self.checksum.md5) is not None


def _original(entry: Entry, location: Location) -> _Original:
    if not entry.is_tree:
        path = entry.file(location.name)
    else:
        # a folder may also be named without a slash at its end
        path = entry.folder / location.name
        path = path if not location.is_folder and path.is_file() else entry.folder
    return _Original(path, entry.digests, entry.location)


def _fetched(original: _Original, path: Path) -> FetchedAsset:
    return FetchedAsset(
        path=path,
        sha256=original.digests.sha256,
        original_sha256=original.digests.sha256,
        size_bytes=original.digests.size_bytes,
        location=original.location,
    )


def _companions(reader: Converter, path: Path) -> list[str]:
    names = reader.companions(path)
    for name in names:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\\" in name:
            raise ModelFormatError(
                f"{path.name} names a file outside its folder: {name}", path=str(path), companion=name
            )
    return [name for name in dict.fromkeys(str(PurePosixPath(name)) for name in names) if name != path.name]


def _stamp(path: Path) -> dict[str, int]:
    with storing(path):
        facts = path.stat()
    return {"size_bytes": facts.st_size, "mtime_ns": facts.st_mtime_ns}


def _is_stamped(path: Path, known: dict[str, object]) -> bool:
    """Whether the converted file is the one that was hashed; one that was touched but is equal counts as the same."""
    if not path.is_file() or not isinstance(known.get("sha256"), str):
        return False
    return _stamp(path).items() <= known.items() or hash_path(path).sha256 == known.get("sha256")


def _all_failed(failures: Sequence[tuple[Location, MLModelScopeError]], request: _Request) -> MLModelScopeError:
    if not failures:
        return _not_here(request)
    if len(failures) == 1:
        return _with_digest(failures[0][1], request)
    reasons = {label(location): str(error.fields.get("reason", error.message)) for location, error in failures}
    for _, error in failures:
        if isinstance(error, DigestError):
            error.fields["reasons"] = reasons
            return error
    listed = "".join(f"\n  {place}: {reason}" for place, reason in reasons.items())
    hints = [error.hint for _, error in failures if error.hint]
    error = DownloadError(
        f"none of the {len(failures)} locations could be fetched:{listed}",
        hint=hints[0] if hints else None,
        reasons=reasons,
    )
    return _with_digest(error, request)


def _with_digest(error: MLModelScopeError, request: _Request) -> MLModelScopeError:
    """An asset that cannot be fetched can still be brought by hand, if its digest is known."""
    if isinstance(error, DownloadError) and request.sha256 is not None:
        error.fields.setdefault("sha256", request.sha256)
        error.hint = "; or ".join(filter(None, [error.hint, _bring(request.sha256)]))
    return error


def _not_here(request: _Request) -> DownloadError:
    places = ", ".join(label(location) for location in request.locations)
    return DownloadError(
        f"{places} is a file of the machine that made the record, and its content is not here"
        + (f" (SHA-256 {request.sha256})" if request.sha256 else ""),
        hint=_bring(request.sha256) if request.sha256 else "ask the author of the record for the file",
        sha256=request.sha256,
        reason="it lies on another machine",
    )


def _bring(sha256: str) -> str:
    return (
        f"where the file is, run `mlmodelscope assets export ... -o bundle.tar`; here, `mlmodelscope assets import "
        f"bundle.tar` (asset {sha256[:12]})"
    )
