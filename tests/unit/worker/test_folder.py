"""Where the shared memory of a launch lies: in a folder that nobody else has prepared."""

import os
import stat
from pathlib import Path

import pytest

from mlmodelscope.worker import folder


def occupy_with_a_link(usual: Path) -> None:
    (usual.parent / "elsewhere").mkdir(mode=0o700)
    usual.symlink_to(usual.parent / "elsewhere")


def occupy_openly(usual: Path) -> None:
    usual.mkdir()
    usual.chmod(0o755)


def test_the_folder_of_a_user_is_made_once_and_private(tmp_path):
    first = folder._private_folder(tmp_path)
    assert first == tmp_path / f"mlmodelscope-{os.getuid()}"
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    assert folder._private_folder(tmp_path) == first


@pytest.mark.parametrize("occupy", [occupy_with_a_link, occupy_openly, Path.touch])
def test_a_folder_that_somebody_prepared_for_us_is_not_used(tmp_path, occupy):
    usual = tmp_path / f"mlmodelscope-{os.getuid()}"
    occupy(usual)
    found = folder._private_folder(tmp_path)
    assert found != usual
    assert (found.parent, found.is_symlink()) == (tmp_path, False)
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


def test_a_folder_of_another_user_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    (tmp_path / "mlmodelscope-4000000000").mkdir(mode=0o700)
    assert folder._private_folder(tmp_path).name != "mlmodelscope-4000000000"


@pytest.mark.parametrize("is_occupied", [False, True])
def test_nothing_of_a_launch_is_left_in_the_shared_memory(tmp_path, monkeypatch, is_occupied):
    usual = tmp_path / f"mlmodelscope-{os.getuid()}"
    if is_occupied:
        usual.touch()
    monkeypatch.setattr(folder, "_memory_folder", lambda: tmp_path)
    with folder.shared_folder() as shared:
        (shared / "tensor").touch()
        assert shared.is_relative_to(tmp_path)
    assert [path for path in tmp_path.rglob("*") if path != usual] == []
