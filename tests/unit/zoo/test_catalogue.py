"""Manifests by name and by path, built-in and added."""

from pathlib import Path

import pytest

import mlmodelscope.zoo
from mlmodelscope.core.errors import ConstraintError, ManifestError, UnknownNameError, UnsatisfiableError, UsageError
from mlmodelscope.core.manifest import DatasetManifest, ModelManifest
from mlmodelscope.zoo.catalogue import Catalogue

MODEL = """\
name: {name}
version: {version}
description: {description}
framework: {{name: onnxruntime}}
inputs: [{{type: image, steps: [decode: {{}}]}}]
outputs: [{{type: probability, steps: [topk: 5]}}]
source: {{graph_path: files/tiny.onnx}}
"""
DATASET = """\
kind: dataset
name: {name}
version: {version}
layout: {{type: synthetic, count: 3, size: [4, 4]}}
"""


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def catalogue(home):
    return Catalogue(home)


@pytest.fixture
def write(tmp_path):
    """Writes a manifest outside of the home and returns its path."""

    def write(name="Own", version="1.0.0", text=MODEL, folder="mine", file=None, description="mine"):
        path = tmp_path / folder / (file or f"{version}.yml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format(name=name, version=version, description=description))
        return path

    return write


def names(entries):
    return {entry.manifest.name for entry in entries}


def test_the_zoo_without_a_home(catalogue, home):
    assert {"ResNet50", "EfficientNet-Lite0"} <= names(catalogue.models())
    assert {"imagenet-photos", "cifar10-test"} <= names(catalogue.datasets())
    assert all(entry.is_builtin for entry in (*catalogue.models(), *catalogue.datasets()))
    assert not home.exists()


@pytest.mark.parametrize("text", ["ResNet50", "resnet50", "RESNET50", "resnet50@1", "ResNet50@>=1 <2", "resnet50@"])
def test_by_name_in_any_case_and_by_constraint(catalogue, text):
    entry = catalogue.model(text)
    assert entry.manifest.name == "ResNet50"
    assert entry.pinned.origin.startswith("zoo:")
    assert entry.pinned.digest == entry.manifest.digest


def test_the_newest_version_that_fits(catalogue, write):
    for version in ("1.9.0", "1.10.0", "2.0.0rc1"):
        catalogue.add(write(version=version), "model")
    assert catalogue.model("own").manifest.version == "1.10.0"
    assert catalogue.model("own@<1.10").manifest.version == "1.9.0"
    assert catalogue.model("own@2.0.0rc1").manifest.version == "2.0.0rc1"


def test_no_version_that_fits(catalogue, write):
    catalogue.add(write(), "model")
    with pytest.raises(UnsatisfiableError) as caught:
        catalogue.model("own@>=2")
    assert caught.value.message == "no version of model own fits '>=2'"
    assert caught.value.hint == "known versions: 1.0.0"


def test_a_constraint_that_cannot_be_read(catalogue):
    with pytest.raises(ConstraintError):
        catalogue.model("ResNet50@>=")


@pytest.mark.parametrize("text", ["resnet-50", "ResNet5", "resnet_50@1"])
def test_an_unknown_name_lists_near_ones(catalogue, text):
    with pytest.raises(UnknownNameError) as caught:
        catalogue.model(text)
    assert "ResNet50" in caught.value.fields["near"]
    assert "ResNet50" in caught.value.hint


def test_models_and_data_sets_are_apart(catalogue):
    with pytest.raises(UnknownNameError, match="there is no model named 'cifar10-test'"):
        catalogue.model("cifar10-test")
    with pytest.raises(UnknownNameError, match="there is no data set named 'ResNet50'"):
        catalogue.dataset("ResNet50")


def test_by_path(catalogue, write):
    path = write()
    entry = catalogue.model(str(path))
    assert (entry.manifest.name, entry.is_builtin) == ("Own", False)
    assert (entry.pinned.text, entry.pinned.origin) == (path.read_text(), str(path))
    assert entry.pinned.base == str(path.parent)


def test_by_relative_path(catalogue, write, monkeypatch):
    path = write()
    monkeypatch.chdir(path.parent)
    assert catalogue.model("1.0.0.yml").pinned.base == str(path.parent)
    assert catalogue.model("./1.0.0.yml").manifest.name == "Own"


def test_a_path_without_a_suffix(catalogue, write, monkeypatch):
    path = write(file="manifest")
    assert catalogue.model(str(path)).manifest.name == "Own"
    monkeypatch.chdir(path.parent)
    with pytest.raises(UnknownNameError) as caught:
        catalogue.model("manifest")
    assert caught.value.hint == "to use the file, write ./manifest"
    assert catalogue.model("./manifest").manifest.name == "Own"


def test_a_name_may_hold_a_slash(catalogue, write):
    catalogue.add(write(name="someone/own"), "model")
    assert catalogue.model("Someone/Own@1").manifest.name == "someone/own"


def test_a_path_that_is_not_there_lists_the_manifests_beside_it(catalogue, write):
    path = write()
    with pytest.raises(UnknownNameError, match="there is no manifest file named") as caught:
        catalogue.model(str(path.with_name("1.0.1.yml")))
    assert str(path) in caught.value.hint


@pytest.mark.parametrize("text", ["x" * 300, "x" * 300 + ".yml", "./" + "x" * 300, "", "@1", "a\0b", "./a\0b.yml"])
def test_a_text_that_no_file_can_be_named_is_unknown(catalogue, text):
    with pytest.raises(UnknownNameError):
        catalogue.model(text)


def test_a_path_of_the_wrong_kind(catalogue, write):
    with pytest.raises(UsageError, match="is a dataset manifest, not a model"):
        catalogue.model(str(write(text=DATASET)))
    with pytest.raises(UsageError, match="is a model manifest, not a dataset"):
        catalogue.dataset(str(write()))


def test_a_path_to_a_broken_manifest_says_what_is_wrong(catalogue, write):
    with pytest.raises(ManifestError) as caught:
        catalogue.model(str(write(text="name: [")))
    assert caught.value.fields["problems"]


def test_a_folder_is_not_a_manifest(catalogue, tmp_path):
    (tmp_path / "folder.yml").mkdir()
    with pytest.raises(ManifestError, match="not a regular file"):
        catalogue.model(str(tmp_path / "folder.yml"))


def test_what_is_added_is_found_by_name(catalogue, write):
    added = catalogue.add(write(), "model")
    found = catalogue.model("OWN")
    assert (found.manifest, found.is_builtin) == (added.manifest, False)
    assert found == added


def test_relative_sources_still_start_from_the_folder_of_the_original(catalogue, write):
    path = write()
    catalogue.add(path, "model")
    path.unlink()
    found = catalogue.model("own")
    assert found.pinned.base == str(path.parent)
    assert found.manifest.source.graph.locations == ("files/tiny.onnx",)


def test_a_copy_that_is_added_again_keeps_its_base(catalogue, write):
    path = write()
    copy = catalogue.add(path, "model").pinned.origin
    catalogue.add(Path(copy), "model")
    assert catalogue.model("own").pinned.base == str(path.parent)


def test_adding_again_replaces_and_leaves_nothing_behind(catalogue, write, home):
    catalogue.add(write(description="old"), "model")
    catalogue.add(write(folder="elsewhere", description="new"), "model")
    found = catalogue.model("own")
    assert found.manifest.description == "new"
    assert found.pinned.base.endswith("elsewhere")
    assert sorted(path.name for path in (home / "models").iterdir()) == ["own-1.0.0.base", "own-1.0.0.yml"]


def test_only_valid_manifests_of_the_kind_are_added(catalogue, write, home):
    with pytest.raises(ManifestError):
        catalogue.add(write(text="name: x\n"), "model")
    with pytest.raises(UsageError):
        catalogue.add(write(text=DATASET), "model")
    with pytest.raises(UsageError):
        catalogue.add(write(), "dataset")
    with pytest.raises(UsageError, match="framework manifest"):
        catalogue.add(write(text="kind: framework\nname: x\nversion: 1.0.0\n"), "model")
    with pytest.raises(UnknownNameError):
        catalogue.add(home / "none.yml", "model")
    assert not home.exists()


def test_a_user_s_manifest_wins_over_a_built_in_one_of_the_same_name_and_version(catalogue, write):
    builtin = catalogue.model("resnet50")
    catalogue.add(write(name="RESNET50", version=builtin.manifest.version), "model")
    found = catalogue.model("resnet50")
    assert (found.is_builtin, found.manifest.description) == (False, "mine")
    same = [entry for entry in catalogue.models() if entry.manifest.name.lower() == "resnet50"]
    assert same == [found]
    catalogue.remove("resnet50", "model")
    assert catalogue.model("resnet50") == builtin


def test_another_version_stands_beside_the_built_in_one(catalogue, write):
    catalogue.add(write(name="ResNet50", version="0.0.1"), "model")
    assert catalogue.model("resnet50").is_builtin
    assert not catalogue.model("resnet50@0.0.1").is_builtin


def test_what_is_removed_is_gone(catalogue, write, home):
    for version in ("1.0.0", "1.1.0", "2.0.0"):
        catalogue.add(write(version=version), "model")
    assert catalogue.remove("OWN@<2", "model") == ["Own@1.0.0", "Own@1.1.0"]
    assert catalogue.model("own").manifest.version == "2.0.0"
    assert catalogue.remove("own", "model") == ["Own@2.0.0"]
    assert list((home / "models").iterdir()) == []


def test_a_model_and_a_data_set_of_one_name_are_removed_one_at_a_time(catalogue, write):
    catalogue.add(write(), "model")
    catalogue.add(write(text=DATASET), "dataset")
    assert catalogue.remove("own", "model") == ["Own@1.0.0"]
    assert isinstance(catalogue.dataset("own").manifest, DatasetManifest)


def test_nothing_to_remove(catalogue, write):
    with pytest.raises(UnknownNameError, match="there is no added model named 'ResNet50'"):
        catalogue.remove("ResNet50", "model")
    catalogue.add(write(text=DATASET), "dataset")
    with pytest.raises(UnknownNameError, match="there is no added data set named 'owm'") as caught:
        catalogue.remove("owm", "dataset")
    assert caught.value.fields["near"] == ["Own"]
    with pytest.raises(UnknownNameError):
        catalogue.remove("own@>=2", "dataset")


def test_what_is_broken_in_the_folder_breaks_nothing(catalogue, write, home):
    catalogue.add(write(), "model")
    folder = home / "models"
    (folder / "broken.yml").write_text("name: [")
    (folder / "latin.yaml").write_bytes(b"name: \xe4\n")
    (folder / "folder.yml").mkdir()
    (folder / "dangling.yml").symlink_to(folder / "none")
    (folder / "data.yml").write_text(DATASET.format(name="data", version="1.0.0"))
    (folder / "notes.txt").write_text("notes")
    listed = catalogue.models()
    assert "Own" in names(listed)
    assert all(isinstance(entry.manifest, ModelManifest) for entry in listed)
    assert catalogue.remove("own", "model") == ["Own@1.0.0"]


def test_the_zoo_holds_no_broken_manifest(catalogue):
    root = Path(mlmodelscope.zoo.__file__).parent
    assert len(list((root / "models").glob("*.yml"))) == len(catalogue.models())
    assert len(list((root / "datasets").glob("*.yml"))) == len(catalogue.datasets())
