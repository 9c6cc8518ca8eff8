"""A path becomes a kind of TensorFlow model; archives are unpacked safely and go away again."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

from mlmodelscope.predictors.port import PredictorFault
from mlmodelscope.predictors.tensorflowfile import GRAPH, KERAS, SAVED_MODEL, check_keras_config, opened


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def refusal(path: Path) -> PredictorFault:
    with pytest.raises(PredictorFault) as caught, opened(str(path)):
        pass
    assert caught.value.code == "model_format"
    assert caught.value.hint
    return caught.value


def zipped(path: Path, members: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def tarred(path: Path, members: dict[str, bytes], link: str | None = None) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        if link:
            entry = tarfile.TarInfo("saved_model.pb")
            entry.type, entry.linkname = tarfile.SYMTYPE, link
            archive.addfile(entry)
    return path


def test_a_folder_is_a_saved_model_where_it_holds_one(tmp_path):
    (tmp_path / "model" / "1").mkdir(parents=True)
    fault = refusal(tmp_path / "model")
    assert "no saved_model.pb" in fault.message
    (tmp_path / "model" / "1" / "saved_model.pb").write_bytes(b"graph")
    with opened(str(tmp_path / "model")) as place:
        assert (place.kind, place.path) == (SAVED_MODEL, str(tmp_path / "model" / "1"))
    with opened(str(tmp_path / "model" / "1" / "saved_model.pb")) as place:
        assert (place.kind, place.path) == (SAVED_MODEL, str(tmp_path / "model" / "1"))


def test_two_saved_models_in_one_folder_are_not_chosen_between(tmp_path):
    for version in ("1", "2"):
        (tmp_path / "model" / version).mkdir(parents=True)
        (tmp_path / "model" / version / "saved_model.pb").write_bytes(b"graph")
    assert "several SavedModels: 1, 2" in refusal(tmp_path / "model").message


def test_files_are_known_by_their_bytes(tmp_path):
    keras = zipped(tmp_path / "model.pb", {"config.json": "{}", "model.weights.h5": ""})
    old = tmp_path / "model.zip"
    old.write_bytes(b"\x89HDF\r\n\x1a\nrest")
    graph = tmp_path / "model.h5"
    graph.write_bytes(b"\x0a\x05graph")
    for path, kind in ((keras, KERAS), (old, KERAS), (graph, GRAPH)):
        with opened(str(path)) as place:
            assert (place.kind, place.path) == (kind, str(path))


@pytest.mark.parametrize("name", ["model.zip", "model.tar", "model.tar.gz"])
def test_an_archive_is_unpacked_and_goes_away_again(tmp_path, scratch, name):
    members = {"model/saved_model.pb": "graph", "model/variables/variables.index": "index"}
    if name.endswith(".zip"):
        path = zipped(tmp_path / name, members)
    else:
        path = tarred(tmp_path / name, {key: text.encode() for key, text in members.items()})
    with opened(str(path)) as place:
        assert place.kind == SAVED_MODEL
        assert (Path(place.path) / "saved_model.pb").read_text() == "graph"
        assert (Path(place.path) / "variables" / "variables.index").read_text() == "index"
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("member", ["../outside", "/outside", "model/../../outside", "..\\outside"])
def test_a_member_outside_of_the_archive_is_refused(tmp_path, scratch, member):
    for path in (zipped(tmp_path / "a.zip", {member: "x"}), tarred(tmp_path / "a.tar", {member: b"x"})):
        assert "outside" in refusal(path).message
    assert list(scratch.iterdir()) == []
    assert not (tmp_path / "outside").exists()


def test_a_link_in_an_archive_is_refused(tmp_path, scratch):
    secret = tmp_path / "secret"
    secret.write_text("x")
    assert "no plain file" in refusal(tarred(tmp_path / "a.tar", {}, link=str(secret))).message
    assert list(scratch.iterdir()) == []


def test_an_archive_that_is_larger_than_the_disk_is_refused(tmp_path, scratch, monkeypatch):
    path = zipped(tmp_path / "a.zip", {"saved_model.pb": "graph"})
    free = type("Usage", (), {"free": 2})()
    monkeypatch.setattr("mlmodelscope.predictors.tensorflowfile.shutil.disk_usage", lambda _: free)
    assert "takes 5 bytes" in refusal(path).message
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_half_an_archive_is_damaged(tmp_path, scratch, name):
    content = os.urandom(5000)
    if name.endswith(".zip"):
        path = zipped(tmp_path / name, {"saved_model.pb": content.hex()})
    else:
        path = tarred(tmp_path / name, {"saved_model.pb": content})
    path.write_bytes(path.read_bytes()[:2000])
    assert "damaged" in refusal(path).message
    assert list(scratch.iterdir()) == []


def test_an_absent_file_is_refused(tmp_path):
    assert "No such file" in refusal(tmp_path / "absent.pb").message


def keras_file(path: Path, layers: list[dict[str, object]]) -> str:
    config = {"class_name": "Functional", "config": {"name": "model", "layers": layers}}
    return str(zipped(path, {"config.json": json.dumps(config)}))


def test_keras_layers_without_code_pass(tmp_path):
    check_keras_config(keras_file(tmp_path / "a.keras", [{"class_name": "Dense", "config": {"name": "lambda"}}]))


@pytest.mark.parametrize("class_name", ["Lambda", "keras>Lambda", "layers.Lambda", "__lambda__"])
def test_keras_layers_with_code_are_refused(tmp_path, class_name):
    inner = {"class_name": "Wrapper", "config": {"name": "outer", "layer": {"class_name": class_name, "config": {}}}}
    with pytest.raises(PredictorFault) as caught:
        check_keras_config(keras_file(tmp_path / "a.keras", [inner]))
    assert caught.value.code == "model_format"
    assert caught.value.fields["layer"] == "outer"
    assert "SavedModel" in str(caught.value.hint)


def test_a_damaged_keras_configuration_is_refused(tmp_path):
    for text in ("{", "[" * 100_000):
        with pytest.raises(PredictorFault) as caught:
            check_keras_config(str(zipped(tmp_path / "a.keras", {"config.json": text})))
        assert "damaged" in caught.value.message
