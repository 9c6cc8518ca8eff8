"""From a model file to a manifest that runs, through the command line."""

import hashlib

import pytest
import yaml

from mlmodelscope.manifest import load_manifest


@pytest.fixture
def file(lab):
    return lab.write("nets/colours.onnx", lab.colours_onnx)


def test_a_classifier_runs_with_its_skeleton_as_it_is(lab, file):
    done = lab.run("init", "nets/colours.onnx", "-o", "nets/draft.yml")
    assert done.code == 0, done.err
    assert "guesses" in done.out
    checked = lab.run("validate", "nets/draft.yml")
    assert (checked.code, checked.out) == (0, "nets/draft.yml: model colours 1.0.0 is valid\n")
    value = yaml.safe_load((lab.root / "nets/draft.yml").read_text())
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert value["source"] == {"graph_path": "colours.onnx", "checksum": {"sha256": digest}}
    record = lab.evaluate(str(lab.root / "nets/draft.yml"), dataset=lab.photos(), measure="accuracy")
    assert record.status == "succeeded"
    assert record.accuracy is not None
    assert record.accuracy.top1 is not None
    assert record.accuracy.top1.value == pytest.approx(5 / 6)


def test_the_default_is_a_file_of_the_models_name_here(lab, file):
    assert lab.run("init", str(file)).code == 0
    manifest = load_manifest(lab.root / "colours.yml")
    assert manifest.source.graph.locations == ("nets/colours.onnx",)
    again = lab.run("init", str(file))
    assert (again.code, "already there" in again.err) == (2, True)
    assert lab.run("init", str(file), "--force").code == 0


def test_standard_output_and_json(lab, file):
    text = lab.run("init", str(file), "-o", "-").out
    assert load_manifest(text).name == "colours"
    assert lab.run("init", str(file), "-o", "-", "--json").json == {"file": None, "manifest": text}
    assert not (lab.root / "colours.yml").exists()


@pytest.mark.parametrize(
    "name", ["a!b.onnx", "a:b.onnx", " blank .onnx", "ä ö.onnx", "pypi:x.onnx", "line\nbreak.onnx"]
)
def test_any_file_name(lab, name):
    lab.write(name, lab.colours_onnx)
    done = lab.run("init", f"./{name}", "-o", "draft.yml")
    assert done.code == 0, done.err
    record = lab.evaluate(str(lab.root / "draft.yml"), dataset=lab.photos(), measure="accuracy")
    assert record.status == "succeeded", record.failure


@pytest.mark.parametrize(
    "content, code, message",
    [
        (b"", 4, "it is an empty file"),
        (b"<html></html>", 4, "it is an HTML page"),
        (b"\x10\0\0\0TFL3", 4, "cut short or damaged"),
        (None, 2, "is not there"),
    ],
)
def test_what_is_no_model(lab, content, code, message):
    if content is not None:
        lab.write("bad.onnx", content)
    done = lab.run("init", "bad.onnx", "--json")
    assert (done.code, message in done.json["error"]["message"]) == (code, True), done.out
    assert not (lab.root / "bad.yml").exists()


def test_where_nothing_can_be_written(lab, file):
    done = lab.run("init", str(file), "-o", "nowhere/draft.yml")
    assert (done.code, "cannot write nowhere/draft.yml" in done.err) == (3, True)
    assert lab.run("init", ".").code == 2
