"""A Python package's name and version -> its archives as the configured indexes offer them, never installed or run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

from mlmodelscope.core.asset import public_location
from mlmodelscope.core.errors import DigestError, DownloadError, MLModelScopeError
from mlmodelscope.provision.digests import hash_file
from mlmodelscope.provision.download import Downloader, new_session
from mlmodelscope.provision.pip_settings import PipSettings

if TYPE_CHECKING:
    import requests
    from pypi_simple import DistributionPackage

__all__ = ["Offer", "PythonPackages"]


@dataclass(frozen=True, slots=True)
class Offer:
    """One archive of a release. `path` where it lies on this machine, else `url`; `digests` are the index's own."""

    filename: str
    is_wheel: bool
    digests: tuple[tuple[str, str], ...]
    path: Path | None = None
    url: str | None = None
    index: str | None = None

    @property
    def rank(self) -> tuple[bool, bool, str]:
        """Wheels that are the same everywhere first, then other wheels, then source distributions."""
        return (not self.is_wheel, not self.filename.endswith("-none-any.whl"), self.filename)

    def verify(self, archive: Path) -> None:
        """Raises DigestError unless `archive` has the index's own digest; an index without one is taken at its word."""
        for algorithm in ("sha256", "sha512", "sha384", "blake2b", "sha1", "md5"):
            expected = dict(self.digests).get(algorithm)
            if expected is not None:
                actual = _digest(archive, algorithm)
                if actual != expected.lower():
                    raise DigestError(
                        f"{self.filename} is not the file of its index: "
                        f"its {algorithm.upper()} is {actual}, expected {expected}",
                        hint="try again; if it stays, the index or a proxy on the way serves a wrong file",
                        location=self.filename,
                        algorithm=algorithm,
                        expected=expected,
                        actual=actual,
                    )
                return


def _digest(archive: Path, algorithm: str) -> str:
    if algorithm == "sha256":
        return hash_file(archive).sha256
    with archive.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


class PythonPackages:
    """The configured indexes. Those on this machine are asked first: they cost no network."""

    def __init__(self, configured: PipSettings, downloader: Downloader | None = None) -> None:
        self._settings = configured
        self._given = downloader

    def offers(self, name: str, version: str) -> Iterator[list[Offer]]:
        """The archives of the release, best first: of the local indexes, then (asked only when needed) of the others.

        DownloadError lists what each index said where none has the release.
        """
        reasons: dict[str, str] = {}
        is_found = False
        for sources in self._sources():
            found: list[Offer] = []
            for label, read in sources:
                try:
                    packages = read(name)
                except DownloadError as error:
                    reasons[label] = str(error.fields.get("reason", error.message))
                    continue
                offers = [offer for offer in packages if _is_release(offer.filename, name, version)]
                reasons[label] = f"has no version {version}" if packages else "has no such package"
                found += offers
            if found:
                is_found = True
                yield sorted(found, key=lambda offer: offer.rank)
        if not is_found:
            raise _unknown_release(name, version, reasons)

    def downloader(self, offer: Offer) -> Downloader:
        """The downloader with this index's certificate, proxy and credentials."""
        return self._given or Downloader(
            timeout_seconds=self._settings.timeout_seconds, session=partial(self._session, offer.index, offer.url)
        )

    def _sources(self) -> Iterator[list[tuple[str, Callable[[str], list[Offer]]]]]:
        local: list[tuple[str, Callable[[str], list[Offer]]]] = []
        remote: list[tuple[str, Callable[[str], list[Offer]]]] = []
        for place in self._settings.find_links:
            if (path := _local(place)) is not None:
                local.append((place, partial(_read_folder, path)))
            else:
                remote.append((public_location(place), partial(self._read_page, place)))
        for index in self._settings.indexes:
            if index is not None and (path := _local(index)) is not None:
                local.append((index, partial(_read_local_index, path)))
            else:
                label = "the public index" if index is None else public_location(index)
                remote.append((label, partial(self._read_index, index)))
        yield local
        yield remote

    def _session(self, index: str | None, url: str | None = None) -> requests.Session:
        session = new_session()
        if self._settings.cert:
            session.verify = self._settings.cert
        session.cert = self._settings.client_cert
        if self._settings.proxy:
            session.proxies = {"http": self._settings.proxy, "https": self._settings.proxy}
        parts = urlsplit(index or "")
        # the index's name and password go to its own host only
        if parts.username is not None and (url is None or urlsplit(url).hostname == parts.hostname):
            session.auth = (unquote(parts.username), unquote(parts.password or ""))
        return session

    def _read_index(self, index: str | None, name: str) -> list[Offer]:
        from packaging.utils import canonicalize_name
        from pypi_simple import ACCEPT_ANY, PYPI_SIMPLE_ENDPOINT, ProjectPage, UnsupportedRepoVersionError

        base = _without_credentials(index or PYPI_SIMPLE_ENDPOINT).rstrip("/")
        url = f"{base}/{canonicalize_name(name)}/"
        response = self._get(url, index, {"Accept": ACCEPT_ANY})
        if response is None:
            return []
        try:
            page = ProjectPage.from_response(response, name)
        except (ValueError, LookupError, TypeError, UnsupportedRepoVersionError) as error:
            raise _unreadable(url) from error
        return [_offer(package, index) for package in page.packages]

    def _read_page(self, url: str, name: str) -> list[Offer]:
        response = self._get(_without_credentials(url), url, {})
        return [] if response is None else _parse_page(response.text, response.url, name, url)

    def _get(self, url: str, index: str | None, headers: dict[str, str]) -> requests.Response | None:
        downloader = self._given or Downloader(
            timeout_seconds=self._settings.timeout_seconds, session=partial(self._session, index, url)
        )
        return downloader.get(url, headers)


def _unreadable(url: str) -> DownloadError:
    location = public_location(url)
    return DownloadError(f"{location} is not an index page", location=location, reason="its page cannot be read")


def _unknown_release(name: str, version: str, reasons: dict[str, str]) -> MLModelScopeError:
    listed = "; ".join(f"{label}: {reason}" for label, reason in reasons.items()) or "no index is configured"
    return DownloadError(
        f"no configured package index has {name}=={version} ({listed})",
        hint="check the name and version, and the indexes with: pip config list",
        location=f"pypi:{name}=={version}",
        reason=f"no configured package index has it ({listed})",
        reasons=reasons,
    )


def _is_release(filename: str, name: str, version: str) -> bool:
    from packaging.utils import canonicalize_name
    from packaging.version import InvalidVersion, Version
    from pypi_simple import UnparsableFilenameError, parse_filename

    try:
        project, found, kind = parse_filename(filename, name)
    except UnparsableFilenameError:
        return False
    if kind not in ("wheel", "sdist") or canonicalize_name(project) != canonicalize_name(name):
        return False
    try:
        return Version(found.replace("_", "-")) == Version(version)
    except InvalidVersion:
        return found == version


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _local(place: str) -> Path | None:
    parts = urlsplit(place)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme in ("http", "https") else Path(place).expanduser()


def _offer(package: DistributionPackage, index: str | None) -> Offer:
    path = _local(package.url) if package.url.startswith("file:") else None
    return Offer(
        filename=package.filename,
        is_wheel=package.package_type == "wheel",
        digests=tuple(sorted(package.digests.items())),
        path=path,
        url=None if path is not None else package.url,
        index=index,
    )


def _parse_page(html: str, url: str, name: str, index: str | None) -> list[Offer]:
    from pypi_simple import DistributionPackage, RepositoryPage, UnsupportedRepoVersionError

    try:
        links = RepositoryPage.from_html(html, base_url=url).links
        return [_offer(DistributionPackage.from_link(link, name), index) for link in links]
    except (ValueError, LookupError, TypeError, UnsupportedRepoVersionError) as error:
        raise _unreadable(url) from error


def _read_local_index(folder: Path, name: str) -> list[Offer]:
    from packaging.utils import canonicalize_name

    project = folder / canonicalize_name(name)
    page = project / "index.html"
    if page.is_file():
        return _parse_page(page.read_text(encoding="utf-8"), urljoin(page.as_uri(), "./"), name, None)
    return _read_folder(project, name)


def _read_folder(place: Path, name: str) -> list[Offer]:
    if place.is_file():
        return _parse_page(place.read_text(encoding="utf-8"), place.as_uri(), name, None)
    if not place.is_dir():
        return []
    files = sorted(path for path in place.iterdir() if path.suffix in (".whl", ".gz", ".zip", ".bz2", ".xz", ".tgz"))
    return [Offer(path.name, path.suffix == ".whl", (), path=path) for path in files]
