"""An archive (zip, wheel, tar and its compressed forms) -> some of its files in a folder, safely.

The whole table of contents is checked before anything is written: an archive with one hostile entry is refused even
where another entry was asked for. Nothing is ever run, no owner, mode or time is restored, links become plain files.
"""

from __future__ import annotations

import lzma
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import RawIOBase
from pathlib import Path, PurePosixPath
from typing import IO

from mlmodelscope.core.asset import is_pattern
from mlmodelscope.core.errors import ArchiveError, UnknownNameError
from mlmodelscope.provision.durable import storing, write_all

__all__ = ["BoundedHeader", "Limits", "extract", "extract_files", "select", "table"]

_CHUNK = 1 << 20
_LINK_DEPTH = 8
# for a path, a link and a few attributes; they may follow each other until Python's stack ends, all kept so long
_LARGEST_HEADER_BYTES = 1 << 16
_EXTENSIONS = (
    tarfile.GNUTYPE_LONGLINK,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.XHDTYPE,
)
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    UnicodeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What an archive may unpack to. The ratio only counts for archives that unpack to more than `ratio_from_bytes`."""

    total_bytes: int = 8 << 30
    entries: int = 200_000
    ratio: int = 250
    ratio_from_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class _Entry:
    """One file of the table of contents; `link` is the normal path of the entry that a link stands for."""

    size_bytes: int
    link: str | None
    order: int
    open: Callable[[], IO[bytes]]


def table(archive: Path, limits: Limits | None = None) -> list[str]:
    """The paths of all files in the archive, sorted."""
    with _opened(archive, limits or Limits()) as entries:
        return sorted(entries)


def extract(
    archive: Path, member: str, target: Path, limits: Limits | None = None, *, skips_top: bool = False
) -> list[str]:
    """Writes the files that `member` chooses into `target`; their paths relative to it, sorted.

    `member` is one path, a folder (`dir/`; `/` for everything) or a pattern; files of a folder or a pattern keep their
    path below the folder, or below the last folder before the first wildcard. UnknownNameError where nothing fits.
    `skips_top`: where nothing fits and all files lie in one top folder, as in a source distribution, `member` may be
    relative to that folder.
    """
    allowed = limits or Limits()
    with _opened(archive, allowed) as entries:
        chosen = _choose(entries, member, skips_top=skips_top)
        _write_all(archive, entries, chosen, target, allowed)
    return sorted(chosen.values())


def extract_files(
    archive: Path, files: Mapping[str, str], target: Path, limits: Limits | None = None, *, skips_top: bool = False
) -> None:
    """Writes each member that is a key of `files` to the path below `target` that is its value, in one pass."""
    allowed = limits or Limits()
    with _opened(archive, allowed) as entries:
        chosen: dict[str, str] = {}
        for member, relative in files.items():
            chosen |= dict.fromkeys(_choose(entries, member, skips_top=skips_top), relative)
        _write_all(archive, entries, chosen, target, allowed)


def _choose(entries: Mapping[str, _Entry], member: str, *, skips_top: bool) -> dict[str, str]:
    chosen = select(entries, member)
    if not chosen and skips_top and len(tops := {name.partition("/")[0] for name in entries}) == 1:
        chosen = select(entries, f"{tops.pop()}/{member}")
    if not chosen:
        raise UnknownNameError("archive member", member, entries)
    return chosen


def _write_all(
    archive: Path, entries: Mapping[str, _Entry], chosen: Mapping[str, str], target: Path, limits: Limits
) -> None:
    work = [(entries[_followed(entries, name, archive)], name, relative) for name, relative in chosen.items()]
    if sum(entry.size_bytes for entry, _, _ in work) > limits.total_bytes:
        raise _refused(archive, f"the chosen files are larger than {limits.total_bytes} bytes together")
    # going backwards in a compressed archive means unpacking it again from the start
    for entry, name, relative in sorted(work, key=lambda item: item[0].order):
        _write(archive, name, entry, target / relative)


def select(names: Mapping[str, object], member: str) -> dict[str, str]:
    """The names that `member` chooses, each with its path relative to the folder that is asked for."""
    if member == "/":
        return {name: name for name in names}
    if is_pattern(member):
        form = _pattern(member)
        fixed = re.split(r"[*?]", member, maxsplit=1)[0]
        prefix = fixed[: fixed.rfind("/") + 1]
        return {name: name[len(prefix) :] for name in names if form.fullmatch(name)}
    wanted = "/".join(part for part in member.split("/") if part not in ("", "."))
    if member.endswith("/"):
        return {name: name[len(wanted) + 1 :] for name in names if name.startswith(f"{wanted}/")}
    return {wanted: PurePosixPath(wanted).name} if wanted in names else {}


def _pattern(member: str) -> re.Pattern[str]:
    forms = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", member)
    return re.compile("".join(forms.get(part, re.escape(part)) for part in parts), re.DOTALL)


def _refused(archive: Path, reason: str) -> ArchiveError:
    return ArchiveError(f"the archive {archive.name} is refused: {reason}", archive=str(archive), reason=reason)


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            with storing(archive):
                raise
        raise _refused(archive, f"it cannot be read ({error})") from error
    except _BROKEN as error:
        raise _refused(archive, f"it cannot be read ({error or type(error).__name__})") from error


@contextmanager
def _opened(archive: Path, limits: Limits) -> Iterator[dict[str, _Entry]]:
    with _reading(archive):
        with archive.open("rb") as file:
            is_zip = file.read(2) == b"PK"
        # both are closed below
        handle = zipfile.ZipFile(archive) if is_zip else tarfile.open(archive, "r:*", tarinfo=BoundedHeader)  # noqa: SIM115
    with handle:
        with _reading(archive):
            found = _zip_entries(handle) if isinstance(handle, zipfile.ZipFile) else _tar_entries(handle)
            entries = _checked(archive, found, limits)
        yield entries


def _checked(archive: Path, found: Iterator[tuple[str, _Entry | None]], limits: Limits) -> dict[str, _Entry]:
    packed = max(1, archive.stat().st_size)
    entries: dict[str, _Entry] = {}
    total = 0
    for count, (name, entry) in enumerate(found, start=1):
        if count > limits.entries:
            raise _refused(archive, f"it has more than {limits.entries} entries")
        if entry is None:
            continue
        total += entry.size_bytes
        if total > limits.total_bytes:
            raise _refused(archive, f"it unpacks to more than {limits.total_bytes} bytes")
        if total > limits.ratio_from_bytes and total > packed * limits.ratio:
            raise _refused(archive, f"it unpacks to more than {limits.ratio} times its size")
        entries[name] = entry
    for name in entries:
        if not name or any(str(parent) in entries for parent in PurePosixPath(name).parents):
            raise _refused(archive, f"the entry {name!r} is both a file and a folder")
    return entries


def _safe_name(name: str) -> str:
    parts = re.split(r"[/\\]", name)
    if name.startswith(("/", "\\")) or re.match(r"^[A-Za-z]:", name) or "\0" in name:
        raise tarfile.TarError(f"the entry {name!r} has an absolute path")
    if ".." in parts:
        raise tarfile.TarError(f"the entry {name!r} leads out of the archive")
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def _link_target(name: str, link: str, folder: PurePosixPath) -> str:
    steps: list[str] = []
    if link.startswith(("/", "\\")):
        raise tarfile.TarError(f"the link {name!r} has an absolute target")
    for part in (folder / link).parts:
        if part == "..":
            if not steps:
                raise tarfile.TarError(f"the link {name!r} leads out of the archive")
            steps.pop()
        else:
            steps.append(part)
    return "/".join(steps)


def _zip_entries(handle: zipfile.ZipFile) -> Iterator[tuple[str, _Entry | None]]:
    for info in handle.infolist():
        if not info.filename:
            raise zipfile.BadZipFile("an entry has no name")
        name = _safe_name(info.filename)
        mode = info.external_attr >> 16
        link = None
        if info.is_dir():
            yield name, None
            continue
        if info.flag_bits & 1:
            raise zipfile.BadZipFile(f"the entry {name!r} is encrypted")
        # the library unpacks what other methods packed as a whole: 300 bytes may become gigabytes of memory
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile(f"the entry {name!r} is packed neither by deflate nor not at all")
        if stat.S_ISLNK(mode):
            with handle.open(info) as file:
                text = file.read(4096).decode()
            link = _link_target(name, text, PurePosixPath(name).parent)
        elif stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise zipfile.BadZipFile(f"the entry {name!r} is a device")
        yield name, _Entry(info.file_size, link, info.header_offset, partial(handle.open, info))


class BoundedHeader(tarfile.TarInfo):
    """A header without those extensions that the library would read into memory however large they claim to be."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError(f"the entry {self.name!r} is a sparse file")
        if self.type in _EXTENSIONS and self.size > _LARGEST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header claims {self.size} bytes")
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member

    def _proc_gnusparse_10(self, entry: tarfile.TarInfo, *_: object) -> None:
        raise tarfile.ReadError(f"the entry {entry.name!r} is a sparse file")


def _tar_entries(handle: tarfile.TarFile) -> Iterator[tuple[str, _Entry | None]]:
    for info in handle:
        name = _safe_name(info.name)
        link = None
        if info.isdir():
            yield name, None
            continue
        if info.issym():
            link = _link_target(name, info.linkname, PurePosixPath(name).parent)
        elif info.islnk():
            link = _link_target(name, info.linkname, PurePosixPath())
        elif not info.isfile():
            raise tarfile.TarError(f"the entry {name!r} is a device or of an unknown kind")
        size = info.size if link is None else 0
        yield name, _Entry(size, link, info.offset, partial(_tar_file, handle, info))


def _tar_file(handle: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    file = handle.extractfile(info)
    if file is None:
        raise tarfile.TarError(f"the entry {info.name!r} is no file")
    return file


def _followed(entries: Mapping[str, _Entry], name: str, archive: Path) -> str:
    at = name
    for _ in range(_LINK_DEPTH):
        entry = entries.get(at)
        if entry is None:
            raise _refused(archive, f"the link {name!r} stands for no file of the archive")
        if entry.link is None:
            return at
        at = entry.link
    raise _refused(archive, f"the link {name!r} goes through too many links")


def _write(archive: Path, name: str, entry: _Entry, target: Path) -> None:
    with storing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with _reading(archive), entry.open() as source, _created(target) as file:
        while chunk := source.read(_CHUNK):
            written += len(chunk)
            if written > entry.size_bytes:
                break
            with storing(target):
                write_all(file, chunk)
    if written != entry.size_bytes:
        raise _refused(archive, f"the size of {name!r} is not the one in its table of contents")


@contextmanager
def _created(target: Path) -> Iterator[RawIOBase]:
    with storing(target):
        file = target.open("xb", buffering=0)
    with file:
        yield file
