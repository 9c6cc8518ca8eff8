import json

import numpy as np
import pytest
from PIL import Image

from mlmodelscope.core.asset import Asset
from mlmodelscope.core.errors import HostError, InputError, SampleError
from mlmodelscope.core.manifest import CsvLabels, DatasetManifest, FolderPerClass, ImageStrip, NamedFiles, Synthetic
from mlmodelscope.datasets.open import open_dataset


@pytest.fixture
def opened(tmp_path):
    """Opens a layout whose assets are paths below the test's folder."""

    def run(layout):
        manifest = DatasetManifest(name="d", version="1.0.0", layout=layout)
        return open_dataset(manifest, lambda asset: tmp_path / asset.locations[0], tmp_path / "cache")

    return run


@pytest.fixture
def put(tmp_path):
    def run(name, content=b"x"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return run


def asset(name):
    return Asset(locations=(name,))


def listing(dataset):
    assert len(dataset) == len(dataset.ids())
    assert [sample.id for sample in dataset] == dataset.ids()
    return [(sample.id, sample.label) for sample in dataset]


def test_folder_per_class_is_sorted_and_ignores_what_is_no_image(opened, put):
    for name in (
        "n02/b.JPEG",
        "n02/a.png",
        "n01/deep/c.jpg",
        "n01/notes.txt",
        ".git/x.png",
        "n01/.hidden.png",
        "r.png",
    ):
        put(f"val/{name}", name)
    dataset = opened(FolderPerClass(path=asset("val")))
    assert listing(dataset) == [("n01/deep/c.jpg", 0), ("n02/a.png", 1), ("n02/b.JPEG", 1)]
    assert dataset.get(1).data == b"n02/a.png"


def test_folder_per_class_takes_the_index_from_the_classes_file(opened, put):
    for name in ("n01/a.png", "n07/b.png", "two words/c.png"):
        put(f"val/{name}")
    put("classes.txt", "n07 tench, Tinca tinca\nn05 other\nn01\ntwo words\n")
    layout = FolderPerClass(path=asset("val"), classes=asset("classes.txt"))
    assert listing(opened(layout)) == [("n01/a.png", 2), ("n07/b.png", 0), ("two words/c.png", 3)]
    put("val/n99/d.png")
    with pytest.raises(InputError, match="n99") as caught:
        opened(layout)
    assert caught.value.fields["folders"] == ["n99"]


def test_folders_that_hold_nothing_are_refused(opened, put, tmp_path):
    with pytest.raises(InputError, match="No such file"):
        opened(FolderPerClass(path=asset("val")))
    put("val/a.png")
    with pytest.raises(InputError, match="holds no folder"):
        opened(FolderPerClass(path=asset("val")))
    put("val/n01/readme.txt")
    with pytest.raises(InputError, match="no image file"):
        opened(FolderPerClass(path=asset("val")))


def test_csv_keeps_the_order_of_its_lines(opened, put):
    put("images/b.png", b"B")
    put("images/sub/a.png", b"A")
    put("labels.csv", '\ufefffile,author,label\nsub/a.png,me,7\n\nb.png,"you, too",1\n')
    layout = CsvLabels(path=asset("images"), labels=asset("labels.csv"))
    assert listing(opened(layout)) == [("sub/a.png", 7), ("b.png", 1)]
    put("one.csv", "name;x\n")
    put("renamed.csv", "name,class\nb.png,1\n")
    named = CsvLabels(
        path=asset("images"), labels=asset("renamed.csv"), file_column="name", label_column="class", label_offset=-1
    )
    assert listing(opened(named)) == [("b.png", 0)]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("name,label\n", 1, "no column 'file'"),
        ("", 1, "no column 'file'"),
        ("file,label\na.png,1\nb.png,cat\n", 3, "'cat' is not a whole number"),
        ("file,label\na.png\n", 2, "'' is not a whole number"),
        ("file,label\n../a.png,1\n", 2, "below the data set's folder"),
        ("file,label\n/a.png,1\n", 2, "below the data set's folder"),
        ("file,label\n,1\n", 2, "below the data set's folder"),
        ("file,label\na.png,-1\n", 2, "negative"),
        ("file,label\na.png,1\na.png,2\n", 3, "already named on line 2"),
        ('file,label\n"a.png,1\n', 2, "unexpected end"),
    ],
)
def test_csv_mistakes_name_their_line(opened, put, text, line, message):
    put("images/a.png")
    put("labels.csv", text)
    with pytest.raises(InputError, match=message) as caught:
        opened(CsvLabels(path=asset("images"), labels=asset("labels.csv")))
    assert caught.value.fields["line"] == line
    assert f"labels.csv:{line}:" in caught.value.message


def test_csv_lists_the_files_that_are_missing(opened, put):
    put("images/a.png")
    put("labels.csv", "file,label\na.png,0\n" + "".join(f"m{n}.png,0\n" for n in range(12)))
    with pytest.raises(InputError, match=r"12 of the 13 files .* m9\.png and 2 more") as caught:
        opened(CsvLabels(path=asset("images"), labels=asset("labels.csv")))
    assert caught.value.fields["missing"][0] == "m0.png"
    put("broken.csv", b"file,label\n\xff\xfe,1\n")
    with pytest.raises(InputError, match="UTF-8"):
        opened(CsvLabels(path=asset("images"), labels=asset("broken.csv")))
    with pytest.raises(InputError, match="No such file"):
        opened(CsvLabels(path=asset("images"), labels=asset("none.csv")))


def test_named_files_of_two_packages(opened, put):
    put("rvb/data/ffbb_0646.png")
    put("foolbox/imagenet_00_243.jpg")
    put("foolbox/imagenet_15_99.jpg")
    put("single_7.png")
    pattern = r"_(?P<label>\d+)\.(?:png|jpg)$"
    layout = NamedFiles(files=(asset("rvb"), asset("foolbox"), asset("single_7.png")), pattern=pattern)
    assert listing(opened(layout)) == [
        ("ffbb_0646.png", 646),
        ("imagenet_00_243.jpg", 243),
        ("imagenet_15_99.jpg", 99),
        ("single_7.png", 7),
    ]
    shifted = NamedFiles(files=(asset("foolbox"),), pattern=pattern, label_offset=-100)
    with pytest.raises(InputError, match=r"99\.jpg: class index 99 .* negative"):
        opened(shifted)


def test_named_files_that_do_not_fit_their_pattern(opened, put):
    put("a/x_1.png")
    put("a/cover.png")
    with pytest.raises(InputError, match=r"no class index in the name of cover\.png"):
        opened(NamedFiles(files=(asset("a"),), pattern=r"_(?P<label>\d+)\."))
    with pytest.raises(InputError, match="has no group 'label'"):
        opened(NamedFiles(files=(asset("a"),), pattern=r"_(\d+)\."))
    with pytest.raises(InputError, match="not a regular expression"):
        opened(NamedFiles(files=(asset("a"),), pattern="("))
    put("b/x_1.png")
    with pytest.raises(InputError, match=r"two samples have one name: x_1\.png"):
        opened(NamedFiles(files=(asset("a/x_1.png"), asset("b")), pattern=r"_(?P<label>\d+)\."))


@pytest.fixture
def strip(put, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 12, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "batch.png")
    put("labels.json", json.dumps([3, 8, 8, 0, 6]))
    return pixels


STRIP = ImageStrip(image=asset("batch.png"), labels=asset("labels.json"), sample_size=(3, 4))


def test_image_strip_gives_rows_as_images(opened, strip, tmp_path):
    dataset = opened(STRIP)
    assert listing(dataset) == [("000000", 3), ("000001", 8), ("000002", 8), ("000003", 0), ("000004", 6)]
    sample = dataset.get(2)
    np.testing.assert_array_equal(sample.data, strip[2].reshape(3, 4, 3))
    assert not isinstance(sample.data, np.memmap)
    (cached,) = (tmp_path / "cache").iterdir()
    before = cached.stat().st_mtime_ns
    np.testing.assert_array_equal(opened(STRIP).get(2).data, sample.data)
    assert cached.stat().st_mtime_ns == before


def test_a_damaged_cache_is_made_again(opened, strip, tmp_path):
    opened(STRIP)
    (cached,) = (tmp_path / "cache").iterdir()
    cached.write_bytes(b"junk")
    np.testing.assert_array_equal(opened(STRIP).get(4).data, strip[4].reshape(3, 4, 3))


def test_image_strip_mistakes(opened, strip, put, tmp_path):
    with pytest.raises(InputError, match=r"a row of batch\.png has 12 pixels, a sample of 4x4 has 16"):
        opened(ImageStrip(image=asset("batch.png"), labels=asset("labels.json"), sample_size=(4, 4)))
    for text, message in (
        ("[1, 2]", "5 rows for 2 labels"),
        ("{}", "list of class indices"),
        ("[1, true, 2, 3, 4]", "item 1 is True"),
        ("[1", "not JSON"),
    ):
        put("labels.json", text)
        with pytest.raises(InputError, match=message):
            opened(STRIP)
    put("labels.json", "[1, 2, 3, 4, 5]")
    put("batch.png", b"no image")
    with pytest.raises(InputError, match=r"cannot decode batch\.png"):
        opened(STRIP)
    (tmp_path / "batch.png").unlink()
    with pytest.raises(InputError, match="No such file"):
        opened(STRIP)


def test_a_cache_that_cannot_be_written_is_the_hosts_fault(opened, strip, put):
    put("cache", "a file where the folder should be")
    with pytest.raises(HostError, match="cannot write"):
        opened(STRIP)


def test_synthetic_samples_depend_on_seed_and_index_alone(opened):
    layout = Synthetic(count=3, size=(4, 6), classes=2, seed=-5)
    dataset = opened(layout)
    assert listing(dataset) == [("000000", 0), ("000001", 1), ("000002", 0)]
    assert opened(layout).get(2) == dataset.get(2) == dataset.get(-1)
    assert dataset.get(0).data != dataset.get(1).data
    assert opened(layout.model_copy(update={"seed": 1})).get(0).data != dataset.get(0).data
    with pytest.raises(IndexError):
        dataset.get(3)


def test_synthetic_pixels_are_fixed_for_ever(opened, tmp_path):
    dataset = opened(Synthetic(count=1, size=(1, 2)))
    path = tmp_path / "a.png"
    path.write_bytes(dataset.get(0).data)
    with Image.open(path) as image:
        assert image.size == (2, 1)
        assert np.asarray(image).ravel().tolist() == [95, 130, 194, 217, 207, 235]
    jpeg = opened(Synthetic(count=1, size=(8, 8), encoding="jpeg")).get(0)
    assert jpeg.data.startswith(b"\xff\xd8\xff")
    assert jpeg.label is None


def test_a_file_that_vanishes_is_a_sample_error(opened, put):
    path = put("val/n01/a.png")
    dataset = opened(FolderPerClass(path=asset("val")))
    path.unlink()
    with pytest.raises(SampleError, match=r"n01/a\.png") as caught:
        dataset.get(0)
    assert caught.value.fields["sample"] == "n01/a.png"
