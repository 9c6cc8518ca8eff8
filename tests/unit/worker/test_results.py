import io
import os
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.errors import MemoryLimitError, WorkerCrashError
from mlmodelscope.testing.records import example_record
from mlmodelscope.worker.protocol import ProtocolViolation
from mlmodelscope.worker.results import (
    checked_error,
    checked_message,
    read_predictions,
    read_result,
    read_stamps,
    read_table,
)

LINE = b'{"sample":"a","label":1,"answer":{"type":"custom","value":1}}\n'


def packed(table) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(table))
    return buffer.getvalue()


def lying_header(shape: str) -> bytes:
    good = packed(np.zeros((3, 2), dtype=np.int64))
    # as long as the old text, so that the header's length stays true
    return good.replace(b"'shape': (3, 2), }", f"'shape': {shape}, }}".encode().ljust(18))


def test_a_table_comes_back_as_it_was_saved(tmp_path):
    path = tmp_path / "stamps-0.npy"
    table = np.array([[1, 5], [6, 6], [7, 2**62]], dtype=np.int64)
    np.save(path, table)
    assert np.array_equal(read_stamps(path), table)
    np.save(path, table[:, ::-1])
    assert np.array_equal(read_table(path), table[:, ::-1])


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\x93NUMPY", id="cut"),
        pytest.param(packed(np.zeros((3, 2), dtype=np.int64))[:-8], id="short"),
        pytest.param(lying_header("(9**9,9)"), id="a header that computes"),
        pytest.param(lying_header("(10**9, 2)"), id="more rows than bytes, computed"),
        pytest.param(lying_header("(900000, 2)"), id="more rows than bytes"),
        pytest.param(lying_header("(-3, 2)"), id="negative"),
        pytest.param(packed(np.zeros((3, 2))), id="floats"),
        pytest.param(packed(np.zeros(3, dtype=np.int64)), id="one dimension"),
        pytest.param(packed(np.zeros((0, 2), dtype=np.int64)), id="no rows"),
        pytest.param(packed(np.zeros((3, 1), dtype=np.int64)), id="one column"),
        pytest.param(packed(np.array([["a", "b"]], dtype=object)), id="pickled objects"),
        pytest.param(packed(np.asfortranarray(np.zeros((3, 2), dtype=np.int64))), id="columns first"),
        pytest.param(packed(np.array([[5, 1]], dtype=np.int64)), id="backwards"),
        pytest.param(packed(np.array([[-5, 1]], dtype=np.int64)), id="below zero"),
        pytest.param(b"\x93NUMPY\x03\x00" + b"\xff" * 40, id="another version"),
    ],
)
def test_a_table_that_is_none_is_our_error(tmp_path, content):
    path = tmp_path / "stamps-0.npy"
    path.write_bytes(content)
    with pytest.raises(WorkerCrashError) as caught:
        read_stamps(path)
    assert caught.value.fields["file"] == "stamps-0.npy"


def test_an_archive_in_place_of_a_table_is_not_opened(tmp_path):
    path = tmp_path / "stamps-0.npy"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(10_000_000))
    with pytest.raises(WorkerCrashError):
        read_stamps(path)


@given(st.binary(max_size=300), st.integers(0, 150), st.integers(0, 150))
def test_no_other_error_escapes(tmp_path_factory, noise, start, stop):
    good = packed(np.arange(8, dtype=np.int64).reshape(4, 2))
    path = tmp_path_factory.getbasetemp() / "fuzzed.npy"
    path.write_bytes(good[:start] + noise + good[stop:])
    for read in (read_stamps, read_predictions):
        with suppress(WorkerCrashError):
            read(path)


def test_answers_come_back_with_their_text(tmp_path):
    path = tmp_path / "predictions.jsonl"
    path.write_bytes(LINE * 2)
    text, answers = read_predictions(path)
    assert text == LINE * 2
    assert [answer.sample for answer in answers] == ["a", "a"]


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[" * 100_000,
        b"\xff",
        b"1",
        b'{"sample":"a"}',
        LINE.replace(b":1}}", b":NaN}}"),
        LINE.replace(b":1}}", b":1e999}}"),
        LINE + b"{}",
        b"\n",
    ],
)
def test_answers_that_are_none_are_our_error(tmp_path, content):
    path = tmp_path / "predictions.jsonl"
    path.write_bytes(content)
    with pytest.raises(WorkerCrashError):
        read_predictions(path)


def test_no_link_is_followed_no_pipe_waited_for_and_nothing_too_large_read(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(LINE)
    (tmp_path / "link").symlink_to(secret)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder", "nothing"):
        with pytest.raises(WorkerCrashError):
            read_result(tmp_path / name)
    with pytest.raises(WorkerCrashError, match="more than 10"):
        read_result(secret, 10)
    assert read_result(secret, len(LINE)) == LINE


def message() -> dict:
    values = example_record().model_dump(mode="json")
    execution = {**values["execution"], "version": "1"}
    parts = {"launch": values["launches"][0], "software": values["software"], "system": values["system"]}
    facts = {"performance_set": [], "sample_count": 1, "sample_ids_digest": ""}
    return {"type": "done", "execution": execution, **facts, **parts, "trace": None}


def test_a_whole_message_passes_unchanged():
    assert checked_message(message(), is_first=True) == message()
    later = {**message(), "software": None, "system": None}
    assert checked_message(later, is_first=False) == later
    with pytest.raises(ProtocolViolation, match="software"):
        checked_message(later, is_first=True)


@pytest.mark.parametrize("name", ["execution", "performance_set", "sample_count", "sample_ids_digest", "launch"])
@pytest.mark.parametrize("value", [None, [{}], {"x": 1}, float("nan")])
def test_a_part_of_another_kind_is_a_violation(name, value):
    with pytest.raises(ProtocolViolation, match=name):
        checked_message({**message(), name: value}, is_first=True)


def test_an_error_comes_back_as_its_class():
    told = MemoryLimitError("too much", hint="less", used_bytes=3)
    found = checked_error(told.to_fields())
    assert type(found) is MemoryLimitError
    assert found.to_fields() == told.to_fields()


@pytest.mark.parametrize(
    "value",
    [None, [], "x", {}, {"code": "usage"}, {"code": 1, "message": ""}, {"code": "", "message": "", "fields": 3}],
)
def test_an_error_that_is_none_is_a_violation(value):
    with pytest.raises(ProtocolViolation):
        checked_error(value)
