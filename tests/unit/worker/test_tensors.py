"""Arrays cross through a file that is there even when the first of them hold nothing."""

import numpy as np
import pytest

from mlmodelscope.worker.tensors import Inbox, Outbox


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
