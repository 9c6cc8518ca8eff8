"""Files with labels on this machine -> a data set that reads one of them at a time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mlmodelscope.core.errors import InputError, SampleError
from mlmodelscope.core.sample import Sample

__all__ = ["Entry", "FileDataset", "checked", "from_files", "image_files", "listed", "unreadable"]

_SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".jpe", ".jp2", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Entry:
    """One sample before it is read."""

    id: str
    source: Path | bytes
    label: int | None = None


class FileDataset:
    """Samples whose data are the bytes of one file each."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, index: int) -> Sample:
        entry = self._entries[index]
        if isinstance(entry.source, bytes):
            return Sample(entry.id, entry.source, entry.label)
        try:
            return Sample(entry.id, entry.source.read_bytes(), entry.label)
        except OSError as error:
            raise SampleError(
                f"cannot read the sample {entry.id}: {error.strerror or error}",
                sample=entry.id,
                file=str(entry.source),
            ) from None

    def __iter__(self) -> Iterator[Sample]:
        return (self.get(index) for index in range(len(self)))

    def ids(self) -> list[str]:
        return [entry.id for entry in self._entries]


def from_files(files: Sequence[str | Path | bytes], ids: Sequence[str] | None = None) -> FileDataset:
    """A data set without labels of files or of bytes at hand; `ids` where the names of the files are not the samples'.

    InputError lists every file that is not there.
    """
    names = list(ids) if ids is not None else [_name(index, file) for index, file in enumerate(files)]
    sources = [file if isinstance(file, bytes) else Path(file) for file in files]
    missing = [str(source) for source in sources if isinstance(source, Path) and not source.is_file()]
    if missing:
        raise InputError(f"no such file: {listed(missing)}", missing=missing)
    if not sources:
        raise InputError("no input was given")
    entries = [Entry(name, source) for name, source in zip(_distinct(names), sources, strict=True)]
    return FileDataset(entries)


def image_files(folder: Path) -> list[Path]:
    """Every image file below `folder`, by its name's ending; hidden files and folders are left out. Sorted."""
    found: list[Path] = []
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found.extend(
            Path(parent, name)
            for name in names
            if not name.startswith(".") and os.path.splitext(name)[1].lower() in _SUFFIXES  # noqa: PTH122 - 50,000 names
        )
    return sorted(found)


def checked(entries: list[Entry], where: str) -> FileDataset:
    """The data set of `entries`; InputError where there are none or two have one id."""
    if not entries:
        raise InputError(f"no image file was found in {where}", hint="is this the right folder?", folder=where)
    twice = sorted(name for name, times in Counter(entry.id for entry in entries).items() if times > 1)
    if twice:
        raise InputError(f"two samples have one name: {listed(twice)}", hint="rename the files", samples=twice[:_SHOWN])
    return FileDataset(entries)


def unreadable(path: Path, error: OSError | UnicodeError) -> InputError:
    reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
    return InputError(f"cannot read {path}: {reason or error}", file=str(path))


def listed(names: Iterable[str]) -> str:
    """The first few, and how many more there are."""
    known = list(names)
    more = len(known) - _SHOWN
    return ", ".join(known[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _name(index: int, file: str | Path | bytes) -> str:
    return f"input-{index}" if isinstance(file, bytes) else str(file)


def _distinct(names: Sequence[str]) -> list[str]:
    """The same file given twice is two samples: `a.jpg` and `a.jpg#2`."""
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name] += 1
        result.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return result
