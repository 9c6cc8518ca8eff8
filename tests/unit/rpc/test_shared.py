import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("google.protobuf", reason="protobuf is not installed: pip install 'mlmodelscope[rpc]'")

from mlmodelscope.rpc.predictor_pb2 import Region, SharedFile
from mlmodelscope.rpc.shared import ALIGNMENT, MappedFile, OfferedFile

SIZE = 1 << 22


@pytest.fixture
def offered(tmp_path):
    made = OfferedFile.make(str(tmp_path), SIZE)
    yield made
    made.close()


def test_both_sides_see_the_same_bytes(offered, tmp_path):
    mapped = MappedFile.attach(offered.described(), str(tmp_path))
    offered.memory[ALIGNMENT : ALIGNMENT + 4] = b"here"
    assert mapped.memory[ALIGNMENT : ALIGNMENT + 4] == b"here"
    mapped.memory[-5:] = b"there"
    assert offered.memory[-5:] == b"there"
    mapped.close()


def test_the_name_goes_and_the_memory_stays(offered, tmp_path):
    mapped = MappedFile.attach(offered.described(), str(tmp_path))
    offered.forget_name()
    assert list(tmp_path.iterdir()) == []
    offered.memory[100:101] = b"x"
    assert mapped.memory[100:101] == b"x"
    mapped.close()


def test_a_file_of_the_same_name_elsewhere_is_not_taken(offered, tmp_path):
    described = offered.described()
    described.token = bytes(len(described.token))
    assert MappedFile.attach(described, str(tmp_path)) is None


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "mlmodelscope-", "mlmodelscope-00/../x", "", "other"])
def test_no_other_file_can_be_named(tmp_path, name):
    (tmp_path / "secret").write_bytes(bytes(100))
    folder = tmp_path / "shared"
    folder.mkdir()
    assert MappedFile.attach(SharedFile(name=name, size=100, token=bytes(32)), str(folder)) is None


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "secret").write_bytes(bytes(100))
    name = "mlmodelscope-" + "0" * 32
    (tmp_path / name).symlink_to(tmp_path / "secret")
    assert MappedFile.attach(SharedFile(name=name, size=100, token=bytes(32)), str(tmp_path)) is None


@pytest.mark.parametrize("size", [0, SIZE - 1, SIZE + 1, 1 << 63])
def test_a_size_that_is_not_the_files_is_refused(offered, tmp_path, size):
    described = offered.described()
    described.size = size
    assert MappedFile.attach(described, str(tmp_path)) is None


def test_a_short_token_is_refused(offered, tmp_path):
    described = offered.described()
    described.token = described.token[:8]
    assert MappedFile.attach(described, str(tmp_path)) is None


def test_a_folder_that_is_not_there_offers_nothing(tmp_path):
    assert OfferedFile.make(str(tmp_path / "absent")) is None


def test_inputs_and_outputs_have_a_half_each(offered):
    half = SIZE // 2
    assert offered.has_room(ALIGNMENT, half - ALIGNMENT)
    assert not offered.has_room(ALIGNMENT, half)
    offered.expect(half)
    assert offered.answer == Region(offset=half, size=half)
    offered.expect(half + 1)
    assert offered.answer.size == half


def test_only_the_answers_part_may_hold_outputs(offered):
    start, size = offered.answer.offset, offered.answer.size
    assert offered.holds(Region(offset=start, size=size))
    assert not offered.holds(Region(offset=start - 1, size=1))
    assert not offered.holds(Region(offset=start, size=size + 1))
    assert not offered.holds(Region(offset=1 << 63, size=1))


def test_closing_leaves_nothing(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    made = OfferedFile.make(str(tmp_path), SIZE)
    view = np.frombuffer(made.memory, np.uint8, 4, 0)
    made.close()
    made.close()
    assert view[0] >= 0
    del view
    assert list(tmp_path.iterdir()) == []
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1


def test_the_lock_tells_whether_the_client_is_there(offered, tmp_path):
    described = offered.described()
    mapped = MappedFile.attach(described, str(tmp_path))
    assert described.is_locked
    assert not mapped.is_abandoned
    view = np.frombuffer(offered.memory, np.uint8, 4, 0)
    offered.close()
    assert mapped.is_abandoned
    assert len(view) == 4
    mapped.close()


def test_a_client_that_holds_no_lock_is_never_missed(offered, tmp_path):
    described = offered.described()
    described.is_locked = False
    mapped = MappedFile.attach(described, str(tmp_path))
    offered.close()
    assert not mapped.is_abandoned
    mapped.close()


LEFT = "mlmodelscope-" + "0" * 32


def age(path, seconds):
    moment = path.lstat().st_mtime - seconds
    os.utime(path, (moment, moment), follow_symlinks=False)


def test_what_a_killed_client_left_is_removed_by_a_later_one(tmp_path):
    (tmp_path / LEFT).write_bytes(bytes(8))
    age(tmp_path / LEFT, 7200)
    OfferedFile.make(str(tmp_path), SIZE).close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name, seconds", [(LEFT, 60), ("mlmodelscope-1000", 7200), ("other", 7200)])
def test_what_is_young_or_not_ours_stays(tmp_path, name, seconds):
    (tmp_path / name).write_bytes(bytes(8))
    age(tmp_path / name, seconds)
    OfferedFile.make(str(tmp_path), SIZE).close()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_what_a_living_client_offers_stays(offered, tmp_path):
    path = tmp_path / offered.described().name
    age(path, 7200)
    OfferedFile.make(str(tmp_path), SIZE).close()
    assert list(tmp_path.iterdir()) == [path]


def test_no_link_and_no_folder_is_swept(tmp_path):
    folder, elsewhere = tmp_path / "shared", tmp_path / "elsewhere"
    elsewhere.write_bytes(bytes(8))
    (folder / LEFT.replace("0", "1")).mkdir(parents=True)
    (folder / LEFT).symlink_to(elsewhere)
    for path in (elsewhere, *folder.iterdir()):
        age(path, 7200)
    OfferedFile.make(str(folder), SIZE).close()
    assert elsewhere.exists()
    assert len(list(folder.iterdir())) == 2
