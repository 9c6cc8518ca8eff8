"""Boxes from a model file to a picture, with a tiny detector and with a real one on annotated photos."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mlmodelscope.core.answer import Boxes
from mlmodelscope.zoo.catalogue import Catalogue

PHOTOS = Path(__file__).parents[3] / "shared" / "data" / "coco-val-80"
BOXES = [[[0.25, 0.5, 0.75, 1.0], [0.0, 0.0, 0.5, 0.25], [0.26, 0.5, 0.75, 1.0]]]
SCORES = [[0.5, 0.75, 0.25]]


def fixed_detector() -> bytes:
    """A model that finds the same three boxes in every image; the image only adds zeros to them."""
    from onnx import TensorProto, helper, numpy_helper

    constants = {"boxes": BOXES, "scores": SCORES, "classes": [[1, 0, 1]]}
    nodes = [
        helper.make_node("Cast", ["image"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["numbers"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        *(helper.make_node("Add", [f"{name}_", "nothing"], [name]) for name in constants),
    ]
    values = [numpy_helper.from_array(np.float32(value), f"{name}_") for name, value in constants.items()]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("image", TensorProto.UINT8, [1, 32, 32, 3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in constants],
        [*values, numpy_helper.from_array(np.float32(0), "zero")],
    )
    content: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    ).SerializeToString()
    return content


@pytest.fixture
def detector(lab) -> str:
    lab.write("detector.onnx", fixed_detector())
    lab.write("things.txt", "cat\ndog\n")
    resize = {"resize": {"size": [32, 32], "keep_aspect_ratio": "letterbox"}}
    outputs: list[dict[str, Any]] = [
        {"type": "box", "layer_name": "boxes", "steps": [{"boxes": {}}, {"threshold": 0.1}, {"nms": {"iou": 0.5}}]},
        {"type": "probability", "layer_name": "scores"},
        {"type": "class", "layer_name": "classes", "features_url": "things.txt"},
    ]
    return lab.model(
        "detector",
        task="object_detection",
        inputs=[{"type": "image", "layer_name": "image", "element_type": "uint8", "steps": [resize]}],
        outputs=outputs,
        source={"graph_path": "detector.onnx"},
    )


def photo(width: int, height: int) -> bytes:
    file = BytesIO()
    Image.new("RGB", (width, height)).save(file, "PNG")
    return file.getvalue()


def test_boxes_in_pixels_of_the_photo_and_a_picture_of_them(lab, detector):
    lab.write("wide.png", photo(320, 160))
    done = lab.run("predict", detector, "wide.png", "--draw", "out.png", "--json")
    assert done.code == 0, done.err
    (prediction,) = done.json
    answer = Boxes.model_validate(prediction["answer"])
    # a photo of 320 x 160 fills the rows 8 to 24 of the 32
    assert (answer.width, answer.height) == (320, 160)
    assert [(box.label, box.left, box.top, box.right, box.bottom) for box in answer.boxes] == [
        ("cat", 0, 0, 80, 80),
        ("dog", 160, 0, 320, 160),
    ]
    picture = Image.open(lab.root / "out.png")
    assert picture.size == (320, 160)
    assert picture.getpixel((40, 79)) != (0, 0, 0)
    assert picture.getpixel((40, 60)) == (0, 0, 0)


def test_text_counts_what_it_leaves_out(lab, detector):
    lab.write("wide.png", photo(320, 160))
    done = lab.run("predict", detector, "wide.png", "--min-score", "0.6")
    assert done.out.splitlines() == [
        "wide.png",
        "    0.7500  cat (0)  from 0,0 to 80,80",
        "  1 more with a score below 0.6",
    ]


def test_several_photos_are_drawn_into_a_folder(lab, detector):
    lab.write("a.png", photo(32, 32))
    done = lab.run("predict", detector, "a.png", "-", "--draw", "drawn", stdin=photo(64, 32))
    assert done.code == 0, done.err
    assert sorted(path.name for path in (lab.root / "drawn").iterdir()) == ["001-a.png", "002-stdin.png"]


@pytest.mark.parametrize(
    "target, code, message",
    [("out.unknown", 2, "no ending of a picture"), ("a.png/out.png", 3, "cannot write a.png/out.png")],
)
def test_where_nothing_can_be_drawn(lab, detector, target, code, message):
    lab.write("a.png", photo(32, 32))
    done = lab.run("predict", detector, "a.png", "--draw", target)
    assert (done.code, message in done.err) == (code, True), done.err


def test_classes_cannot_be_drawn(lab):
    lab.write("a.png", photo(12, 10))
    done = lab.run("predict", lab.model(), "a.png", "--draw", "out.png")
    assert done.code == 2
    assert "there are no boxes to draw" in done.err


def test_a_record_says_that_boxes_are_not_scored(lab, detector):
    lab.write("a.png", photo(32, 32))
    record = lab.evaluate(detector, inputs=(str(lab.root / "a.png"),), scenario={"timed": "pipeline"})
    assert record.status == "succeeded"
    assert record.accuracy is None or record.accuracy.top1 is None
    assert any("detection is not scored" in text for text in record.warnings)


@pytest.mark.needs("registry")
@pytest.mark.skipif(not PHOTOS.exists(), reason="the annotated photos of ../shared/data/coco-val-80 are not here")
def test_a_real_detector_finds_what_people_marked(lab):
    marked = json.loads((PHOTOS / "instances.json").read_text())
    names = {category["id"]: category["name"] for category in marked["categories"]}
    truth: dict[str, list[tuple[str, list[float]]]] = {image["file_name"]: [] for image in marked["images"]}
    files = {image["id"]: image["file_name"] for image in marked["images"]}
    for note in marked["annotations"]:
        left, top, width, height = note["bbox"]
        truth[files[note["image_id"]]].append(
            (names[note["category_id"]], [left, top, left + width, top + height]),
        )
    chosen = sorted(truth)[:24]
    with lab.workspace() as workspace:
        predictions = workspace.predict("EfficientDet-Lite0", [str(PHOTOS / "images" / name) for name in chosen])
    sure = right = 0
    for prediction in predictions:
        assert isinstance(prediction.answer, Boxes)
        for box in prediction.answer.boxes:
            if box.score >= 0.6:
                sure += 1
                found = [box.left, box.top, box.right, box.bottom]
                right += any(
                    name == box.label and overlap(found, place) > 0.5 for name, place in truth[prediction.sample]
                )
    assert sure > 20
    assert right / sure > 0.85


def overlap(one: list[float], other: list[float]) -> float:
    across = max(0.0, min(one[2], other[2]) - max(one[0], other[0]))
    down = max(0.0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return across * down / (sum(areas) - across * down)


def test_every_detector_of_the_zoo_is_complete(tmp_path):
    models = [entry.manifest for entry in Catalogue(tmp_path).models()]
    detectors = [one for one in models if one.task == "object_detection"]
    assert {"EfficientDet-Lite0", "EfficientDet-Lite1", "EfficientDet-Lite2", "SSD-MobileNet-v1"} <= {
        one.name for one in detectors
    }
    for one in detectors:
        assert one.source is not None
        assert one.source.graph.checksum is not None
        assert (one.license, one.attributes["size_bytes"] > 0) == ("Apache-2.0", True)
        assert any(output.features is not None for output in one.outputs)
