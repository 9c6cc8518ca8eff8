"""What a dry run prints."""

from dataclasses import replace

from mlmodelscope.core.forecast import ExpectedAsset, Forecast
from mlmodelscope.show.forecasts import format_forecasts

HERE = ExpectedAsset("model", "graph", "https://host/a.onnx", "MIT", True, False, 2048, "0" * 64)
ABSENT = ExpectedAsset("data set", "data", "https://host/photos.zip", "", False, True, None, None)
PLAN = Forecast(
    model="A 1.0.0",
    framework="onnxruntime 1.20.1",
    dataset="D 1.0.0",
    scenario={"type": "batched", "timed": "pipeline", "batch_size": 4},
    threads=2,
    launches=5,
    least_seconds=10.0,
    assets=(HERE, ABSENT),
)


def test_plans_files_and_totals():
    text = format_forecasts([PLAN, replace(PLAN, model="B 1.0.0")])
    assert text.count("https://host/a.onnx") == 1, "a file of several plans is listed once"
    assert "batched pipeline b4" in text
    assert "2.00 KiB" in text
    assert "not stated" in text
    assert "to download: 1 files, 0 B and 1 of unknown size" in text
    assert "10 worker launches, at least 20 s of measuring" in text


def test_a_file_of_two_owners_is_downloaded_once():
    labels = replace(ABSENT, owner="model", role="labels", size_bytes=1024)
    text = format_forecasts([replace(PLAN, assets=(labels, replace(labels, owner="data set")))])
    assert "to download: 1 files, 1.00 KiB" in text
