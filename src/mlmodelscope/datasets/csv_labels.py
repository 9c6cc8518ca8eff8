"""A csv file that names image files and their classes -> a data set."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.errors import InputError
from mlmodelscope.core.manifest import CsvLabels
from mlmodelscope.datasets.files import Entry, FileDataset, checked, listed, unreadable

__all__ = ["open_csv"]


def open_csv(layout: CsvLabels, resolve: Callable[[Asset], Path]) -> FileDataset:
    """The samples in the order of the lines; a sample's id is the file as the csv names it."""
    root, table = resolve(layout.path), resolve(layout.labels)
    entries = list(_entries(layout, root, table))
    missing = [entry.id for entry in entries if isinstance(entry.source, Path) and not entry.source.is_file()]
    if missing:
        raise InputError(
            f"{len(missing)} of the {len(entries)} files that {table.name} names are not in {root}: {listed(missing)}",
            hint="is the path of the data set right?",
            file=str(table),
            missing=missing[:100],
        )
    return checked(entries, str(root))


def _entries(layout: CsvLabels, root: Path, table: Path) -> Iterator[Entry]:
    try:
        with table.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            _check_columns(layout, table, reader.fieldnames or ())
            seen: dict[str, int] = {}
            for row in reader:
                entry = _entry(layout, root, table, row, reader.line_num)
                first = seen.setdefault(entry.id, reader.line_num)
                if first != reader.line_num:
                    raise _problem(table, reader.line_num, f"{entry.id} was already named on line {first}")
                yield entry
    except csv.Error as error:
        raise _problem(table, reader.reader.line_num, str(error)) from None
    except (OSError, UnicodeError) as error:
        raise unreadable(table, error) from None


def _check_columns(layout: CsvLabels, table: Path, columns: object) -> None:
    names = [str(name) for name in columns] if isinstance(columns, list | tuple) else []
    for wanted in (layout.file_column, layout.label_column):
        if wanted not in names:
            raise _problem(
                table, 1, f"there is no column {wanted!r}", hint=f"the first line names the columns: {', '.join(names)}"
            )


def _entry(layout: CsvLabels, root: Path, table: Path, row: dict[str, str], line: int) -> Entry:
    name, text = (row[layout.file_column] or "").strip(), (row[layout.label_column] or "").strip()
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts:
        raise _problem(table, line, f"{name!r} is not the name of a file below the data set's folder")
    try:
        label = int(text) + layout.label_offset
    except ValueError:
        raise _problem(table, line, f"the label {text!r} is not a whole number") from None
    if label < 0:
        raise _problem(table, line, f"the class index {label} is negative")
    return Entry(name, root / path, label)


def _problem(table: Path, line: int, message: str, hint: str | None = None) -> InputError:
    return InputError(f"{table}:{line}: {message}", hint=hint, file=str(table), line=line)
