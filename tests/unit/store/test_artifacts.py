import os

import pytest

from mlmodelscope.core.errors import StoreError
from mlmodelscope.store.artifacts import ArtifactFolder
from mlmodelscope.testing.records import example_artifact


@pytest.fixture
def folder(tmp_path):
    return ArtifactFolder(tmp_path / "artifacts")


def files(tmp_path):
    return sorted(path for path in tmp_path.rglob("*") if path.is_file())


def test_equal_content_is_one_file_named_by_its_digest(folder, tmp_path):
    first = folder.put(b"content", "one", "text/plain")
    second = folder.put(b"content", "two", "text/plain")
    assert (first.sha256, second.name) == (second.sha256, "two")
    assert files(tmp_path) == [tmp_path / "artifacts" / "sha256" / first.sha256[:2] / first.sha256]


def test_a_damaged_file_is_noticed_and_healed_when_the_content_comes_again(folder, tmp_path):
    artifact = folder.put(b"content", "one", "text/plain")
    (path,) = files(tmp_path)
    path.chmod(0o644)
    path.write_bytes(b"CONTENT")
    with pytest.raises(StoreError, match="damaged"):
        folder.read(artifact)
    folder.put(b"content", "one", "text/plain")
    assert folder.read(artifact) == b"content"


def test_a_file_that_is_not_there_is_a_store_error_with_a_hint(folder):
    with pytest.raises(StoreError, match="not in the store") as caught:
        folder.read(example_artifact())
    assert caught.value.hint


def test_an_empty_artifact_is_an_artifact(folder):
    assert folder.read(folder.put(b"", "empty", "text/plain")) == b""


@pytest.mark.parametrize("sha256", ["", "../../etc/passwd", "A" * 64, "0" * 63])
def test_a_digest_that_is_none_never_becomes_a_path(folder, sha256):
    with pytest.raises(StoreError, match="not a SHA-256"):
        folder.read(example_artifact().model_copy(update={"sha256": sha256}))


def test_a_file_that_cannot_be_read_is_a_store_error(folder, tmp_path):
    with pytest.raises(StoreError, match="No such file"):
        folder.put(tmp_path / "missing", "one", "text/plain")


def test_a_full_disk_leaves_nothing_behind(folder, tmp_path, monkeypatch):
    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        folder.put(b"content", "one", "text/plain")
    assert files(tmp_path) == []


def test_a_file_that_changes_while_it_is_stored_is_refused(folder, tmp_path, monkeypatch):
    source = tmp_path / "log"
    source.write_bytes(b"first")
    write = ArtifactFolder._write

    def late(self, content, place):
        source.write_bytes(b"second")
        return write(self, content, place)

    monkeypatch.setattr(ArtifactFolder, "_write", late)
    with pytest.raises(StoreError, match="changed while it was stored"):
        folder.put(source, "log", "text/plain")
    assert files(tmp_path) == [source]
