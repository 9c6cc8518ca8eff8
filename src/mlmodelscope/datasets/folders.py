"""Folders of image files whose place or name tells the class -> a data set."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.errors import InputError
from mlmodelscope.core.manifest import FolderPerClass, NamedFiles
from mlmodelscope.datasets.files import Entry, FileDataset, checked, image_files, listed, unreadable

__all__ = ["open_folder_per_class", "open_named_files"]

Resolve = Callable[[Asset], Path]


def open_folder_per_class(layout: FolderPerClass, resolve: Resolve) -> FileDataset:
    """One folder per class. A sample's id is its path below the root."""
    root = resolve(layout.path)
    try:
        folders = sorted(item.name for item in root.iterdir() if item.is_dir() and not item.name.startswith("."))
    except OSError as error:
        raise unreadable(root, error) from None
    if not folders:
        raise InputError(
            f"{root} holds no folder, one per class was expected", hint="is this the right folder?", folder=str(root)
        )
    classes = _class_index(resolve(layout.classes), folders) if layout.classes else _in_order(folders)
    entries = [
        Entry(file.relative_to(root).as_posix(), file, classes[name])
        for name in folders
        for file in image_files(root / name)
    ]
    return checked(entries, str(root))


def open_named_files(layout: NamedFiles, resolve: Resolve) -> FileDataset:
    """Files whose names carry the class. A sample's id is the file's name."""
    pattern = _label_pattern(layout.pattern)
    files: list[Path] = []
    for asset in layout.files:
        path = resolve(asset)
        files.extend(image_files(path) if path.is_dir() else [path])
    entries, strangers = [], []
    for file in files:
        found = pattern.search(file.name)
        if found is None or not (found["label"] or "").isdecimal():
            strangers.append(file.name)
            continue
        entries.append(Entry(file.name, file, _shifted(int(found["label"]), layout.label_offset, file.name)))
    if strangers:
        raise InputError(
            f"no class index in the name of {listed(strangers)}",
            hint=f"the pattern is {layout.pattern!r}; its group 'label' must match digits",
            files=strangers[:100],
        )
    return checked(sorted(entries, key=lambda entry: entry.id), ", ".join(layout.files[0].locations))


def _label_pattern(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise InputError(f"the pattern {text!r} is not a regular expression: {error}", pattern=text) from None
    if "label" not in pattern.groupindex:
        raise InputError(
            f"the pattern {text!r} has no group 'label'", hint=r"write the digits as (?P<label>\d+)", pattern=text
        )
    return pattern


def _shifted(label: int, offset: int, name: str) -> int:
    if label + offset < 0:
        raise InputError(
            f"{name}: class index {label} with the offset {offset} is negative", label=label, offset=offset
        )
    return label + offset


def _in_order(folders: list[str]) -> dict[str, int]:
    return {name: index for index, name in enumerate(folders)}


def _class_index(path: Path, folders: list[str]) -> dict[str, int]:
    """The line of each folder in the classes file; a line may go on with a description after the folder's name."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeError) as error:
        raise unreadable(path, error) from None
    index: dict[str, int] = {}
    for number, line in enumerate(lines):
        if line.strip():
            index.setdefault(line.strip(), number)
            index.setdefault(line.split()[0], number)
    unknown = [name for name in folders if name not in index]
    if unknown:
        raise InputError(
            f"{path} does not name the folder of {len(unknown)} classes: {listed(unknown)}",
            hint="the classes file has one folder name a line, in the order of the class index",
            file=str(path),
            folders=unknown[:100],
        )
    return index
