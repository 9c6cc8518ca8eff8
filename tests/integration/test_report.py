"""Reports and exports of real records, through the command line into files."""

import base64
import csv
import io
import re
import sys
from pathlib import Path

import pytest

from mlmodelscope.core.record import Record
from mlmodelscope.show.report.html import format_html
from mlmodelscope.testing.records import example_record, failed_record


@pytest.fixture
def two(lab):
    """The colours model, and the same with red and blue swapped, on the same photos."""
    photos = lab.photos()
    right = lab.evaluate(lab.model(), dataset=photos)
    swapped = lab.evaluate(lab.model("swapped", color_layout="BGR"), dataset=photos)
    return right, swapped


@pytest.fixture
def stored(lab):
    """Two records that were never run, for what does not look behind them."""
    records = example_record(), failed_record()
    with lab.workspace() as workspace:
        return tuple(workspace.store.add(record) for record in records)


def ids_of(*records):
    return [record.id for record in records]


def read_rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_page_of_two_records(lab, two):
    done = lab.run("report", *ids_of(*two), "-o", "report.html")
    assert (done.code, done.out) == (0, "")
    page = (lab.root / "report.html").read_text()
    assert "A fair comparison: one factor differs." in page
    assert "fair: pipeline differs" in page
    assert page.index("fair: pipeline differs") < page.index("83.3 %")
    links = dict(re.findall(r'href="data:application/json;base64,([^"]+)" download="([^"]+)"', page))
    stored = {name: Record.model_validate_json(base64.b64decode(content)) for content, name in links.items()}
    assert stored == {f"{record.id}.json": record for record in two}
    assert list(lab.root.glob(".*.part")) == []


def test_pictures_are_small_jpegs_of_the_samples_with_what_each_record_said(lab, two):
    from PIL import Image

    with lab.workspace() as workspace:
        data = workspace.report(ids_of(*two))
    (group,) = data.pictures
    assert (group.dataset, group.samples, group.note) == ("photos", 6, None)
    assert len(group.pictures) == 6
    by_sample = {picture.sample: picture for picture in group.pictures}
    bright = next(picture for name, picture in by_sample.items() if name.endswith("0-red/bright.png"))
    assert bright.truth == "red"
    assert [(said.numbers, said.answer.label, said.is_right) for said in bright.said] == [
        ((1,), "red", True),
        ((2,), "blue", False),
    ]
    with Image.open(io.BytesIO(bright.thumbnail)) as image:
        assert (image.format, image.size) == ("JPEG", (bright.width, bright.height))
        red, green, blue = image.convert("RGB").getpixel((0, 0))
    assert red > 200 > 60 > max(green, blue)
    # those on which the two disagree come first
    disagreed = [len({said.is_right for said in picture.said}) > 1 for picture in group.pictures]
    assert disagreed == sorted(disagreed, reverse=True)


@pytest.mark.parametrize("change", ["removed", "altered"])
def test_photos_that_are_gone_or_changed_are_not_shown(lab, two, change):
    photo = lab.root / "photos" / "0-red" / "bright.png"
    if change == "removed":
        photo.unlink()
    else:
        photo.write_bytes((lab.root / "photos" / "2-blue" / "bright.png").read_bytes())
    with lab.workspace() as workspace:
        data = workspace.report(ids_of(*two))
    assert data.pictures[0].pictures == ()
    assert data.pictures[0].note == "its files have changed since they were run"
    assert "No pictures of photos: its files have changed" in format_html(data)


def test_a_whole_data_set_that_is_gone_is_said(lab, two):
    (lab.root / "photos").rename(lab.root / "elsewhere")
    with lab.workspace() as workspace:
        data = workspace.report(ids_of(*two))
    assert data.pictures[0].note == "its files are not in the cache of this machine"


def test_a_lost_artifact_is_said_and_the_rest_is_shown(lab, two):
    latencies = two[0].artifact("latencies.npz")
    (lab.home / "artifacts" / "sha256" / latencies.sha256[:2] / latencies.sha256).unlink()
    done = lab.run("report", *ids_of(*two), "-o", "report.html")
    assert done.code == 0
    page = (lab.root / "report.html").read_text()
    assert "is not in the store" in page
    assert "one of the two has no latencies" in page


def test_a_failed_record_is_reported_with_the_others(lab, two):
    failed = lab.evaluate(
        lab.model("broken", source={"graph_path": "nothing.onnx"}), dataset=str(lab.root / "photos.yml")
    )
    assert failed.status == "failed"
    done = lab.run("report", failed.id, *ids_of(*two), "-o", "-")
    assert done.code == 0
    assert "1 of them failed" in done.out
    assert failed.failure.code in done.out
    assert done.out.index("held against") < done.out.index("colours")


def test_markdown_and_csv_by_ending_and_by_option(lab, two):
    assert lab.run("report", *ids_of(*two), "-o", "report.md").code == 0
    text = (lab.root / "report.md").read_text()
    assert text.startswith("# colours against swapped\n\n## Comparability\n")
    assert lab.run("report", *ids_of(*two), "-o", "-", "--format", "markdown").out.startswith(
        "# colours against swapped"
    )
    assert lab.run("report", *ids_of(*two), "-o", "report.csv").code == 0
    rows = read_rows(lab.root / "report.csv")
    assert [row["id"] for row in rows] == ids_of(*two)
    assert [row["comparison"] for row in rows] == ["", "fair"]
    assert float(rows[0]["top1"]) == two[0].accuracy.top1.value


def test_a_record_given_twice_is_one(lab, stored):
    done = lab.run("report", stored[0].id, stored[0].id, "-o", "-", "--format", "csv")
    assert len(done.out.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["nothing", "-o", "report.html"], 2, "there is no record named 'nothing'"),
        (["-o", "report.html"], 2, "Missing argument"),
        (["{id}", "-o", "report.pdf"], 2, "the ending of 'report.pdf' names no format"),
        (["{id}", "-o", "photos"], 2, "names no format"),
        (["{id}", "-o", "photos", "--format", "html"], 2, "photos is a folder"),
        (["{id}", "-o", "nowhere/report.html"], 3, "cannot write nowhere/report.html"),
        (["{id}", "-o", "/proc/report.html"], 3, "cannot write /proc/report.html"),
    ],
)
def test_what_cannot_be(lab, stored, arguments, code, text):
    (lab.root / "photos").mkdir()
    done = lab.run("report", *(item.format(id=stored[0].id) for item in arguments))
    assert done.code == code
    assert text in done.err
    assert not (lab.root / "report.html").exists()


def test_a_page_that_cannot_be_written_leaves_the_old_one(lab, stored):
    old = lab.write("full/report.html", "old")
    done = lab.run("report", "nothing", "-o", str(old))
    assert done.code == 2
    assert old.read_text() == "old"
    assert lab.run("report", stored[0].id, "-o", str(old)).code == 0
    assert old.read_text().startswith("<!doctype html>")


def test_inputs_without_a_data_set_have_pictures(lab):
    lab.photos()
    inputs = tuple(str(lab.root / "photos" / name) for name in ("0-red/bright.png", "2-blue/dark.png"))
    record = lab.evaluate(lab.model(), inputs=inputs)
    with lab.workspace() as workspace:
        (group,) = workspace.report([record.id]).pictures
    assert [picture.truth for picture in group.pictures] == [None, None]
    assert [picture.said[0].answer.label for picture in group.pictures] == ["red", "blue"]


def test_history_goes_into_a_csv_file(lab, stored):
    good, failed = stored
    done = lab.run("history", "--export", "history.csv")
    assert (done.code, done.err) == (0, "2 records written to history.csv\n")
    rows = read_rows(lab.root / "history.csv")
    assert [row["id"] for row in rows] == ids_of(failed, good)
    assert float(rows[1]["latency_median_ns"]) == good.performance.latency_median_ns.value
    assert (rows[0]["latency_median_ns"], rows[0]["failure_code"]) == ("", "worker_crashed")
    done = lab.run("history", "--status", "failed", "--export", "-")
    assert [row["id"] for row in csv.DictReader(io.StringIO(done.out))] == [failed.id]
    assert len(lab.run("history", "--limit", "1", "--export", "-").out.splitlines()) == 2


def test_an_export_goes_through_all_pages(lab, monkeypatch):
    from mlmodelscope.cli import history

    records = [example_record() for _ in range(5)]
    with lab.workspace() as workspace:
        for record in records:
            workspace.store.add(record)
    monkeypatch.setenv("MLMODELSCOPE_HOME", str(lab.home))
    monkeypatch.setattr(history, "_ROWS_PER_PAGE", 2)
    target = lab.root / "history.csv"
    for limit, expected in ((None, 5), (3, 3), (4, 4), (9, 5)):
        options = ["--limit", str(limit)] if limit else []
        history.command.main(["--export", str(target), *options], standalone_mode=False)
        assert [row["id"] for row in read_rows(target)] == ids_of(*reversed(records))[:expected]


def test_an_empty_history_is_a_file_with_a_header(lab):
    assert lab.run("history", "--export", "history.csv").code == 0
    assert (lab.root / "history.csv").read_text().startswith("id,created_at,status,model")


def test_history_to_an_unknown_kind_of_file_is_refused(lab):
    done = lab.run("history", "--export", "history.xlsx")
    assert done.code == 2
    assert "write one of .csv, .parquet" in done.err


def test_parquet_without_pyarrow_says_what_to_install(lab, monkeypatch, tmp_path):
    from mlmodelscope.core.errors import EnvironmentMissingError
    from mlmodelscope.show.export import write_parquet

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EnvironmentMissingError) as caught, Path(tmp_path / "history.parquet").open("wb") as file:
        write_parquet([], file)
    assert "pip install 'mlmodelscope[report]'" in caught.value.hint


@pytest.mark.needs("pyarrow")
def test_parquet_has_the_columns_and_types_of_history(lab, stored):
    from pyarrow import parquet

    good, failed = stored
    assert lab.run("history", "--export", "history.parquet").code == 0
    table = parquet.read_table(lab.root / "history.parquet")
    assert table.column("id").to_pylist() == ids_of(failed, good)
    assert table.column("top1").to_pylist() == [None, good.accuracy.top1.value]
    types = [str(table.schema.field(name).type) for name in ("batch_size", "throughput", "model")]
    assert types == ["int64", "double", "string"]
