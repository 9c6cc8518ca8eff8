"""What every converter keeps: found by name, a digest of its own, strict about options."""

import sys

import pytest

from mlmodelscope.core.errors import ConvertError, EnvironmentMissingError, UnknownNameError
from mlmodelscope.provision.convert import CONVERTERS, converter
from mlmodelscope.provision.convert.source import code_digest


def test_every_name_leads_to_a_converter_of_that_name():
    assert sorted(CONVERTERS) == ["state-dict-to-onnx", "tfjs-to-onnx"]
    for name in CONVERTERS:
        found = converter(name)
        assert found.name == name
        assert found.extension == ".onnx"


def test_a_misspelt_converter_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError) as caught:
        converter("tfjs-onnx")
    assert caught.value.fields["near"] == ["tfjs-to-onnx"]


@pytest.mark.parametrize("name", sorted(CONVERTERS))
def test_unknown_options_are_refused_before_the_source_is_read(name, tmp_path):
    with pytest.raises(UnknownNameError, match="colour"):
        converter(name).convert(tmp_path / "absent", tmp_path / "out.onnx", {"colour": "red"})


@pytest.mark.parametrize("name", sorted(CONVERTERS))
def test_a_source_that_is_not_there_is_a_convert_error(name, tmp_path):
    pytest.importorskip("onnx")
    options = {"architecture": "resnet18-cifar"} if name == "state-dict-to-onnx" else {}
    with pytest.raises(ConvertError, match="absent"):
        converter(name).convert(tmp_path / "absent", tmp_path / "out.onnx", options)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("name", sorted(CONVERTERS))
def test_without_onnx_the_error_says_how_to_get_it(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    options = {"architecture": "resnet18-cifar"} if name == "state-dict-to-onnx" else {}
    with pytest.raises(EnvironmentMissingError) as caught:
        converter(name).convert(tmp_path / "model", tmp_path / "out.onnx", options)
    assert caught.value.hint == "pip install 'mlmodelscope[convert]'"


def test_digests_are_stable_and_differ_between_converters():
    first, second = (converter(name).digest() for name in sorted(CONVERTERS))
    assert first != second
    assert first == converter("state-dict-to-onnx").digest()
    assert len(first) == 64


def test_the_digest_changes_with_the_code_and_with_the_onnx_version(tmp_path, monkeypatch):
    folder = tmp_path / "one"
    folder.mkdir()
    for file in (tmp_path / "graph.py", tmp_path / "source.py", folder / "converter.py"):
        file.write_text("a = 1\n")
    before = code_digest(folder)
    (folder / "converter.py").write_text("a = 2\n")
    changed = code_digest(folder)
    (tmp_path / "graph.py").write_text("a = 3\n")
    shared = code_digest(folder)
    monkeypatch.setattr("mlmodelscope.provision.convert.source.version", lambda name: "0.0.1")
    assert len({before, changed, shared, code_digest(folder)}) == 4
