"""The portable layer as a folder: it appears when all that is in it is on the disk."""

import os
from pathlib import Path

import pytest

from mlmodelscope.core.errors import StorageError
from mlmodelscope.provision.portable import portable_folder


def test_it_appears_when_its_content_is_on_the_disk(tmp_path, monkeypatch):
    synced: list[int] = []
    rename = Path.rename

    def fsync(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)

    def checked(path: Path, target: Path) -> Path:
        made = {found.stat().st_ino for found in (path, *path.rglob("*"))}
        assert made == set(synced), "a power cut would leave files without content under the final name"
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", checked)
    folder = portable_folder(tmp_path)
    assert synced[-1] == folder.parent.stat().st_ino
    synced.clear()
    assert portable_folder(tmp_path) == folder
    assert synced == [], "every start would wait for the disk"


def test_a_disk_that_fails_leaves_none(tmp_path, monkeypatch):
    def fails(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StorageError, match="input/output error"):
        portable_folder(tmp_path)
    assert list((tmp_path / "portable").iterdir()) == []


def test_another_process_may_be_quicker(tmp_path, monkeypatch):
    rename = Path.rename
    first: list[Path] = []

    def raced(path: Path, target: Path) -> Path:
        if not first:
            first.append(target)
            (target / "mlmodelscope").mkdir(parents=True)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", raced)
    assert portable_folder(tmp_path) == first[0]
    assert list((tmp_path / "portable").iterdir()) == first
