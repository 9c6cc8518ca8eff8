"""Every model of the zoo, downloaded, converted and run on real photos: a manifest is a test."""

from pathlib import Path

import pytest

from mlmodelscope.zoo.catalogue import Catalogue

# one at a time: they use all cores and much memory, and share one home
pytestmark = [pytest.mark.needs("registry"), pytest.mark.xdist_group("zoo")]

MODELS = {entry.manifest.name: entry.manifest for entry in Catalogue(Path("/nowhere")).models()}
IMAGENET = {
    "EfficientNet-Lite0",
    "EfficientNet-Lite1",
    "EfficientNet-Lite2",
    "Inception-v3",
    "MobileNet-v1",
    "ResNet50",
}
ELSEWHERE = {"ResNet18-CIFAR10"}


@pytest.mark.parametrize("name", sorted(IMAGENET))
def test_imagenet_photos(name, accuracy_of):
    record = accuracy_of(name, "imagenet-photos")
    accuracy = record["accuracy"]
    assert (record["status"], accuracy["labelled"]) == ("succeeded", 70)
    assert accuracy["top1"]["value"] >= 0.65
    assert accuracy["top5"]["value"] >= 0.85
    # what the manifest promises, but for one photo: decoders and processors differ in the last bit
    measured = MODELS[name].attributes["measured"]
    assert (measured["dataset"], measured["n"]) == ("imagenet-photos", 70)
    assert 100 * accuracy["top1"]["value"] == pytest.approx(measured["top1"], abs=1.5)
    assert 100 * accuracy["top5"]["value"] == pytest.approx(measured["top5"], abs=1.5)


@pytest.mark.parametrize("name", sorted(MODELS.keys() - IMAGENET - ELSEWHERE))
def test_a_model_of_another_task_answers(name, accuracy_of):
    record = accuracy_of(name, "imagenet-photos", "--samples", "3")
    assert (record["status"], record["accuracy"]["samples"]) == ("succeeded", 3)


def test_resnet18_on_all_of_cifar10(accuracy_of):
    record = accuracy_of("ResNet18-CIFAR10", "cifar10-test", "--batch-size", "100")
    assert record["accuracy"]["labelled"] == 10_000
    assert record["accuracy"]["top1"]["value"] == pytest.approx(0.9422, abs=0.0005)


def test_swapped_colours_differ_in_the_pipeline_alone(command, accuracy_of):
    right = accuracy_of("ResNet50", "imagenet-photos")
    wrong = accuracy_of("examples/resnet50-colours-swapped.yml", "imagenet-photos")
    (comparison,) = command("compare", right["id"], wrong["id"])
    assert (comparison["kind"], comparison["groups"]) == ("fair", ["pipeline"])
    assert comparison["common_samples"] == 70
    assert wrong["accuracy"]["top1"]["value"] < right["accuracy"]["top1"]["value"]


def test_performance_of_a_real_model_is_whole(command):
    options = ("--launches", "2", "--duration", "1", "--queries", "20", "--samples", "10")
    record = command("evaluate", "MobileNet-v1", "--dataset", "imagenet-photos", *options)
    performance = record["performance"]
    assert performance["latency_median_ns"]["value"] > 0
    assert performance["latency_median_ns"]["interval"]["basis"] == "launches"
    assert performance["memory_bytes"]["value"] > 0
    assert record["execution"]["precision"] == "float32"
