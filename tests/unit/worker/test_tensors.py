"""Arrays cross unchanged, through a file as large as they need, that is there even when they hold nothing."""

import errno
import os

import numpy as np
import pytest

from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.worker.tensors import Inbox, Outbox, RoomFault, fixed_width


@pytest.fixture
def boxes(tmp_path):
    outbox = Outbox(str(tmp_path), "out")
    yield outbox, Inbox(str(tmp_path))
    outbox.close()


@pytest.mark.parametrize(
    "arrays",
    [
        [np.empty((0, 4), np.float32)],
        [np.empty((0, 4), np.float32), np.empty((2, 0), np.int64)],
        [],
    ],
    ids=["one empty array", "two empty arrays", "no arrays"],
)
def test_a_first_message_without_a_byte_crosses(boxes, arrays):
    outbox, inbox = boxes
    found = inbox.get(outbox.put(arrays))
    assert [(array.dtype, array.shape) for array in found] == [(array.dtype, array.shape) for array in arrays]


def test_full_messages_cross_after_an_empty_one_and_before(boxes):
    outbox, inbox = boxes
    empty, full = np.empty((0, 4), np.float32), np.arange(40000, dtype=np.float32).reshape(-1, 4)
    for array in (empty, full, empty, full[:1]):
        (found,) = inbox.get(outbox.put([array]))
        np.testing.assert_array_equal(found, array)


def test_an_empty_array_may_end_a_file_that_is_full(boxes):
    outbox, inbox = boxes
    full, empty = np.arange(1 << 16, dtype=np.uint8), np.empty(0, np.float64)
    found = inbox.get(outbox.put([full, empty]))
    np.testing.assert_array_equal(found[0], full)
    assert (found[1].dtype, found[1].shape) == (empty.dtype, (0,))


def test_a_file_is_hardly_larger_than_what_it_must_hold(boxes, tmp_path):
    outbox, _ = boxes
    for size in (38_535_168, 50_000_000):
        message = outbox.put([np.broadcast_to(np.uint8(0), size)])
        assert size <= (tmp_path / message["file"]).stat().st_size < 1.3 * size


def test_arrays_that_grow_a_little_each_time_do_not_need_a_new_file_each_time(boxes):
    outbox, _ = boxes
    files = {outbox.put([np.zeros(size, np.uint8)])["file"] for size in range(100_000, 1_000_000, 1000)}
    assert len(files) < 20


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM])
def test_a_folder_without_room_is_told_as_such_and_used_again_later(boxes, monkeypatch, tmp_path, reason):
    def full(*_):
        raise OSError(reason, os.strerror(reason))

    outbox, inbox = boxes
    array = np.arange(1_000_000, dtype=np.float64)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        for given in (array, array[:0]):
            with pytest.raises(RoomFault, match="no room for"):
                outbox.put([given])
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(inbox.get(outbox.put([array]))[0], array)


def test_other_troubles_with_the_folder_stay_what_they_are(tmp_path):
    with pytest.raises(FileNotFoundError):
        Outbox(str(tmp_path / "absent"), "out").put([np.zeros(1)])


@pytest.mark.parametrize(
    "items",
    [["a", "grün", "", "a\0b", "\udcff"], [b"a\xff", b"", b"a\0b"], [], [["a", "bc"], ["d", "e"]]],
    ids=["texts", "bytes", "nothing", "a table"],
)
def test_texts_of_any_length_cross_unchanged(boxes, items):
    outbox, inbox = boxes
    (found,) = inbox.get(outbox.put([fixed_width(np.array(items, object), "input 0")]))
    assert found.tolist() == items


@pytest.mark.parametrize(
    ("items", "got"),
    [
        (["a\0", "b"], "NULs at the end"),
        ([b"a\0"], "NULs at the end"),
        (["x", None], "NoneType, str"),
        (["x", b"y"], "bytes, str"),
        ([1, 2.5], "float, int"),
    ],
)
def test_what_would_not_come_back_as_it_went_is_refused(items, got):
    with pytest.raises(PredictorFault, match="input 0") as caught:
        fixed_width(np.array(items, object), "input 0")
    assert (caught.value.code, caught.value.fields["got"]) == ("shape_mismatch", got)


def test_a_record_that_holds_objects_is_refused():
    with pytest.raises(PredictorFault):
        fixed_width(np.zeros(2, [("name", object)]), "input 0")
