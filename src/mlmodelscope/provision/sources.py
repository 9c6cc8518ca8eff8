"""A location -> its files in a folder: from the web, an archive on this machine, or a package registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from urllib.parse import quote, urljoin, urlsplit

from mlmodelscope.core.asset import Location, public_location
from mlmodelscope.core.errors import ArchiveError, DigestError, DownloadError, UnknownNameError
from mlmodelscope.provision import npm
from mlmodelscope.provision.archives import Limits, extract, extract_files
from mlmodelscope.provision.cache import Cache
from mlmodelscope.provision.digests import hash_file
from mlmodelscope.provision.download import Downloader
from mlmodelscope.provision.durable import storing
from mlmodelscope.provision.locations import local_path
from mlmodelscope.provision.pip_settings import load_pip_settings
from mlmodelscope.provision.progress import NoProgress, Progress, Renamed
from mlmodelscope.provision.pypi import Offer, PythonPackages

__all__ = ["Sources"]

Companions = Callable[[Path], Sequence[str]]


class Sources:
    """Fetches what is not here yet. Archives are kept in the cache, so that several members cost one download."""

    def __init__(
        self,
        cache: Cache,
        *,
        downloader: Downloader | None = None,
        packages: PythonPackages | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._cache = cache
        self._downloader = downloader or Downloader()
        self._given_packages = packages
        self._limits = limits or Limits()

    def deliver(
        self,
        location: Location,
        base: Path | None,
        target: Path,
        companions: Companions | None = None,
        progress: Progress | None = None,
        *,
        is_pinned: bool = False,
        is_fresh: bool = False,
    ) -> bool:
        """Writes the file or files into the empty folder `target`; whether asking the server again may give others.

        `companions` says, once the file itself is there, which files it needs beside it. `is_fresh` asks a web server
        for its archive again although the cache has one. An archive of the web that is not needed again is dropped
        by `forget`.
        """
        watcher = progress or NoProgress()
        if location.member is None:
            return self._deliver_url(location.target, location.name, target, companions, watcher, is_pinned=is_pinned)
        if location.kind == "url":
            return self._deliver_member(location, target, companions, watcher, is_fresh=is_fresh)
        missing: UnknownNameError | None = None
        for archive in self._archives(location, base, watcher):
            try:
                self._unpack(archive, location, target, companions)
                return False
            except UnknownNameError as error:
                missing = missing or error
        assert missing is not None, "every kind of source gives an archive or raises"
        raise missing

    def download(self, url: str, target: Path, progress: Progress | None = None) -> None:
        """One file of a mirror, whose digest is known. A mirror that is away must not hold up the others for long."""
        quick = replace(self._downloader, tries=min(2, self._downloader.tries), timeout_seconds=20.0)
        self._download(quick, url, target, progress or NoProgress(), is_pinned=True)

    def forget(self, location: Location) -> None:
        """Drops the archive that a web address served."""
        if location.kind == "url" and location.member is not None:
            self._cache.forget(location.target)

    def _deliver_member(
        self, location: Location, target: Path, companions: Companions | None, watcher: Progress, *, is_fresh: bool
    ) -> bool:
        if is_fresh:
            self.forget(location)
        is_known = self._cache.recall(location.target) is not None
        try:
            self._unpack(self._web_archive(location.target, watcher), location, target, companions)
        except (ArchiveError, UnknownNameError) as error:
            if is_known:
                # the file at this address may be another by now
                return self._deliver_member(location, target, companions, watcher, is_fresh=True)
            if isinstance(error, ArchiveError):
                self.forget(location)
            raise
        return is_known

    def _deliver_url(
        self, url: str, name: str, target: Path, companions: Companions | None, watcher: Progress, *, is_pinned: bool
    ) -> bool:
        is_resumed = self._download(self._downloader, url, target / name, watcher, is_pinned=is_pinned)
        for relative in companions(target / name) if companions else ():
            address = urljoin(urlsplit(url)._replace(query="", fragment="").geturl(), quote(relative))
            is_resumed |= self._download(self._downloader, address, target / relative, watcher, is_pinned=is_pinned)
        return is_resumed

    def _download(
        self, downloader: Downloader, url: str, target: Path, watcher: Progress, *, is_pinned: bool = False
    ) -> bool:
        part = self._cache.part(url)
        with self._cache.locked(f"part {url}"):
            is_resumed = downloader.download(url, part, watcher, is_pinned=is_pinned)
            with storing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                part.path.rename(target)
            part.discard()
        return is_resumed

    def _unpack(self, archive: Path, location: Location, target: Path, companions: Companions | None) -> None:
        assert location.member is not None
        skips_top = location.kind == "pypi"
        extract(archive, location.member, target, self._limits, skips_top=skips_top)
        if companions is None or location.is_folder:
            return
        folder = PurePosixPath(location.member).parent
        files = {str(folder / relative): relative for relative in companions(target / location.name)}
        if files:
            extract_files(archive, files, target, self._limits, skips_top=skips_top)

    def _archives(self, location: Location, base: Path | None, watcher: Progress) -> Iterator[Path]:
        """The archives in which the member may lie, best first."""
        match location.kind:
            case "path":
                path = local_path(location, base)
                if not path.is_file():
                    raise DownloadError(
                        f"there is no file {path}", location=str(location), reason="there is no such file"
                    )
                yield path
            case "npm":
                yield self._npm_archive(location.target, str(location.version), watcher)
            case _:
                yield from self._pypi_archives(location.target, str(location.version), watcher)

    def _web_archive(self, url: str, watcher: Progress) -> Path:
        def fetch(folder: Path) -> Path:
            target = folder / Location(kind="url", target=url).name
            self._download(self._downloader, url, target, watcher)
            return target

        return self._kept(url, public_location(url), fetch)

    def _npm_archive(self, name: str, version: str, watcher: Progress) -> Path:
        key = f"npm:{name}@{version}"

        def fetch(folder: Path) -> Path:
            watcher.start(None, key)
            try:
                return npm.pack(name, version, folder)
            finally:
                watcher.done()

        return self._kept(key, key, fetch)

    def _pypi_archives(self, name: str, version: str, watcher: Progress) -> Iterator[Path]:
        from packaging.utils import canonicalize_name

        release = f"pypi:{canonicalize_name(name)}=={version}"
        seen: set[str] = set()
        for form in ("wheel", "sdist"):
            if (entry := self._cache.recall(f"{release} {form}")) is not None:
                seen.add(entry.name)
                yield entry.folder / entry.name
        packages = self._given_packages or PythonPackages(load_pip_settings())
        for offers in packages.offers(name, version):
            for form, is_wheel in (("wheel", True), ("sdist", False)):
                chosen = [offer for offer in offers if offer.is_wheel == is_wheel]
                if chosen and chosen[0].filename not in seen:
                    seen.add(chosen[0].filename)
                    mirrors = [offer for offer in chosen if offer.filename == chosen[0].filename]
                    yield self._first_of(packages, mirrors, f"{release} {form}", watcher)

    def _first_of(self, packages: PythonPackages, offers: Sequence[Offer], key: str, watcher: Progress) -> Path:
        for offer in offers[:-1]:
            try:
                return self._pypi_archive(packages, offer, key, watcher)
            except (DownloadError, DigestError):
                continue
        return self._pypi_archive(packages, offers[-1], key, watcher)

    def _pypi_archive(self, packages: PythonPackages, offer: Offer, key: str, watcher: Progress) -> Path:
        if offer.path is not None:
            if not offer.path.is_file():
                raise DownloadError(f"there is no file {offer.path}", location=key, reason="there is no such file")
            offer.verify(offer.path)
            return offer.path
        url = str(offer.url)

        def fetch(folder: Path) -> Path:
            target = folder / offer.filename
            named = Renamed(watcher, f"pypi:{offer.filename}")
            self._download(packages.downloader(offer), url, target, named, is_pinned=bool(offer.digests))
            offer.verify(target)
            return target

        return self._kept(key, f"{key.partition(' ')[0]} ({offer.filename})", fetch)

    def _kept(self, key: str, location: str, fetch: Callable[[Path], Path]) -> Path:
        """The archive from the cache, or from `fetch`, which gets an empty folder; one process at a time does it."""
        with self._cache.locked(key):
            entry = self._cache.recall(key)
            if entry is None:
                with self._cache.scratch() as folder:
                    archive = fetch(folder)
                    entry = self._cache.add(folder, location, is_tree=False, digests=hash_file(archive))
                self._cache.remember(key, entry.digests.sha256, location)
            return entry.folder / entry.name
