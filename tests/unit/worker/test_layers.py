"""Files of what layers compute: whole ones are read back, and nothing that a hostile one says is believed."""

import io
import zipfile

import numpy as np
import pytest

from mlmodelscope.core.errors import UnknownNameError, WorkerCrashError
from mlmodelscope.worker.layers import (
    checked_layers,
    read_arrays,
    read_names,
    write_arrays,
    write_names,
)

ARRAYS = {
    "a.png/conv:0": np.arange(6, dtype=np.float32).reshape(1, 2, 3),
    "a.png/scope/relu": np.asfortranarray(np.arange(4).reshape(2, 2)),
    "file": np.array(3.5),
    "empty": np.empty((0, 4), np.int8),
    "texts": np.array(["a", "bcd"], object),
}


def saved(path, arrays=None):
    with path.open("wb") as file:
        write_arrays(file, (ARRAYS if arrays is None else arrays).items())
    return path


def archive(path, members, **options):
    with zipfile.ZipFile(path, "w", **options) as target:
        for name, content in members.items():
            target.writestr(name, content)
    return path


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_arrays_come_back_as_numpy_reads_them_too(tmp_path):
    path = saved(tmp_path / "layers.npz")
    found = read_arrays(path)
    assert list(found) == list(ARRAYS)
    with np.load(path) as theirs:
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(found[name], array)
            np.testing.assert_array_equal(theirs[name], array)
    assert found["texts"].dtype == np.dtype("<U3")


def test_equal_arrays_make_equal_files(tmp_path):
    assert saved(tmp_path / "a").read_bytes() == saved(tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (npy(np.ones(4))[:-1], "bytes for an array"),
        (npy(np.ones(4)).replace(b"(4,)", b"(9,)"), "bytes for an array"),
        (npy(np.ones((1, 4))).replace(b"(1, 4)", b"(-1,4)"), "shape"),
        (npy(np.ones(4)).replace(b"<f8", b"|O8"), "array of"),
        (npy(np.ones(4)).replace(b"\x93NUMPY\x01", b"\x93NUMPY\x02"), "another version"),
        (npy(np.ones(4)).replace(b"{'descr'", b"{'discr'"), "."),
        (b"nonsense", "."),
        (b"", "."),
    ],
)
def test_an_array_that_lies_is_refused(tmp_path, content, reason):
    with pytest.raises(WorkerCrashError, match=reason):
        read_arrays(archive(tmp_path / "layers.npz", {"a.npy": content}))


def test_a_packed_file_is_refused(tmp_path):
    path = archive(tmp_path / "layers.npz", {"a.npy": npy(np.zeros(100_000))}, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(WorkerCrashError, match="larger than it is"):
        read_arrays(path)


def test_what_is_no_archive_or_too_large_is_refused(tmp_path):
    path = tmp_path / "layers.npz"
    path.write_bytes(b"nonsense")
    with pytest.raises(WorkerCrashError, match=r"layers\.npz"):
        read_arrays(path)
    with pytest.raises(WorkerCrashError, match="more than 10"):
        read_arrays(saved(path), 10)


def test_names_come_back(tmp_path):
    write_names(tmp_path / "layers.json", ["conv/1", "é", "\udcff"])
    assert read_names(tmp_path / "layers.json") == ["conv/1", "é", "?"]


@pytest.mark.parametrize("text", ["", "{}", "[1]", "[" * 100_000])
def test_what_are_no_names_is_refused(tmp_path, text):
    (tmp_path / "layers.json").write_text(text)
    with pytest.raises(WorkerCrashError, match="no list of names"):
        read_names(tmp_path / "layers.json")


def test_a_layer_that_is_not_there_is_named():
    assert checked_layers(["b", "a"], ["a", "b", "c"]) == ["b", "a"]
    with pytest.raises(UnknownNameError, match="no layer named 'conv2'"):
        checked_layers(["conv1", "conv2"], ["conv1", "conv3"])
