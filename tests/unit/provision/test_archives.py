import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.errors import ArchiveError, StorageError, UnknownNameError
from mlmodelscope.provision.archives import Limits, extract, extract_files, select, table

FILES = {"top/a.txt": b"alpha", "top/sub/b.bin": b"beta" * 1000, "top/sub/deep/c.jpg": b"", "top/d.jpg": b"delta"}


def make_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def make_tar(path: Path, files: dict[str, bytes], mode: str = "w", extra: tuple[tarfile.TarInfo, ...] = ()) -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for info in extra:
            archive.addfile(info)
    return path


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.fixture(params=["zip", "whl", "tar", "tgz", "tar.gz", "tar.xz", "tar.bz2"])
def archive(request, tmp_path):
    path = tmp_path / f"a.{request.param}"
    if request.param in ("zip", "whl"):
        return make_zip(path, FILES)
    return make_tar(
        path, FILES, {"tar": "w", "tgz": "w:gz", "tar.gz": "w:gz"}.get(request.param, f"w:{path.suffix[1:]}")
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "member, expected",
    [
        ("top/a.txt", {"a.txt": b"alpha"}),
        ("./top//a.txt", {"a.txt": b"alpha"}),
        ("top/sub/", {"b.bin": FILES["top/sub/b.bin"], "deep/c.jpg": b""}),
        ("top/*.jpg", {"d.jpg": b"delta"}),
        ("top/**/*.jpg", {"d.jpg": b"delta", "sub/deep/c.jpg": b""}),
        ("top/?.txt", {"a.txt": b"alpha"}),
        ("/", FILES),
    ],
)
def test_a_member_chooses_files(archive, tmp_path, member, expected):
    assert extract(archive, member, tmp_path / "out") == sorted(expected)
    assert contents(tmp_path / "out") == expected


def test_the_table_lists_every_file(archive):
    assert table(archive) == sorted(FILES)


def test_an_unknown_member_names_near_ones_and_writes_nothing(archive, tmp_path):
    with pytest.raises(UnknownNameError) as caught:
        extract(archive, "top/b.txt", tmp_path / "out")
    assert "top/a.txt" in str(caught.value.hint)
    assert not (tmp_path / "out").exists()


def test_the_top_folder_of_a_source_distribution_may_be_left_out(tmp_path):
    path = make_tar(tmp_path / "p-1.tar.gz", {"p-1/p/m.bin": b"x", "p-1/PKG-INFO": b"y"}, "w:gz")
    assert extract(path, "p/*.bin", tmp_path / "out", skips_top=True) == ["m.bin"]
    extract_files(path, {"p/m.bin": "weights/m.bin"}, tmp_path / "more", skips_top=True)
    assert contents(tmp_path / "more") == {"weights/m.bin": b"x"}
    with pytest.raises(UnknownNameError):
        extract(path, "p/m.bin", tmp_path / "never")


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up", "C:/x", "a\\..\\..\\up"])
@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_an_entry_that_leads_out_spoils_the_whole_archive(tmp_path, make, name):
    path = make(tmp_path / "a", {"good": b"good", name: b"bad"})
    with pytest.raises(ArchiveError):
        extract(path, "good", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "info",
    [
        link("l", "/etc/passwd"),
        link("a/l", "../../up"),
        link("l", "../up", tarfile.LNKTYPE),
        link("dev", "", tarfile.CHRTYPE),
        link("fifo", "", tarfile.FIFOTYPE),
    ],
    ids=["absolute", "symbolic", "hard", "device", "fifo"],
)
def test_links_that_escape_and_devices_are_refused(tmp_path, info):
    path = make_tar(tmp_path / "a.tar", {"good": b"good"}, extra=(info,))
    with pytest.raises(ArchiveError):
        extract(path, "good", tmp_path / "out")


def test_a_zip_may_hold_links_that_stay_inside(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("dir/real", b"bytes")
        info = zipfile.ZipInfo("dir/link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "real")
    extract(path, "dir/link", tmp_path / "out")
    assert contents(tmp_path / "out") == {"link": b"bytes"}
    assert not (tmp_path / "out" / "link").is_symlink()


def test_a_zip_link_that_escapes_is_refused(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "../../etc/passwd")
    with pytest.raises(ArchiveError):
        table(path)


def test_links_inside_a_tar_become_plain_files(tmp_path):
    extra = (link("d/soft", "../good"), link("d/hard", "good", tarfile.LNKTYPE))
    path = make_tar(tmp_path / "a.tar", {"good": b"good"}, extra=extra)
    extract(path, "d/", tmp_path / "out")
    assert contents(tmp_path / "out") == {"soft": b"good", "hard": b"good"}
    assert not (tmp_path / "out" / "soft").is_symlink()


def test_links_in_a_circle_or_to_nothing_are_refused(tmp_path):
    path = make_tar(tmp_path / "a.tar", {}, extra=(link("x", "y"), link("y", "x"), link("z", "none")))
    for member in ("x", "z"):
        with pytest.raises(ArchiveError):
            extract(path, member, tmp_path / "out")


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_one_name_cannot_be_a_file_and_a_folder(tmp_path, make):
    path = make(tmp_path / "a", {"x": b"1", "x/y": b"2"})
    with pytest.raises(ArchiveError, match="both a file and a folder"):
        extract(path, "/", tmp_path / "out")


def test_archives_beyond_the_limits_are_refused(archive, tmp_path):
    for limits in (Limits(total_bytes=100), Limits(entries=2), Limits(ratio=1, ratio_from_bytes=4)):
        if limits.ratio == 1 and archive.suffix == ".tar":
            continue
        with pytest.raises(ArchiveError):
            extract(archive, "top/a.txt", tmp_path / "out", limits)
    assert not (tmp_path / "out").exists()


def test_a_bomb_is_refused_by_its_ratio(tmp_path):
    path = make_tar(tmp_path / "bomb.tar.xz", {"zeros": bytes(5_000_000)}, "w:xz")
    with pytest.raises(ArchiveError, match="times its size"):
        extract(path, "zeros", tmp_path / "out", Limits(ratio_from_bytes=1_000_000))


def test_broken_archives_are_refused_not_raised_as_they_are(archive, tmp_path):
    data = archive.read_bytes()
    for broken in (b"", b"PK", data[: len(data) // 2], b"not an archive at all"):
        archive.write_bytes(broken)
        with pytest.raises((ArchiveError, UnknownNameError)):
            extract(archive, "top/d.jpg", tmp_path / "out")


def test_a_flipped_byte_in_the_data_is_noticed(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"m": bytes(range(256)) * 40})
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(ArchiveError):
        extract(path, "m", tmp_path / "out")


def test_an_encrypted_entry_is_refused(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"m": b"x"})
    data = path.read_bytes()
    at = data.index(b"PK\x01\x02") + 8
    path.write_bytes(data[:at] + b"\x01\x00" + data[at + 2 :])
    with pytest.raises(ArchiveError, match="encrypted"):
        extract(path, "m", tmp_path / "out")


def test_a_missing_archive_is_a_matter_of_storage(tmp_path):
    with pytest.raises(StorageError):
        table(tmp_path / "none.zip")


PARTS = st.text(st.characters(codec="utf-8", exclude_characters="/\\*?\0", exclude_categories=["Cs", "Cc"]), min_size=1)
NAMES = st.lists(PARTS.filter(lambda part: part not in (".", "..")), min_size=1, max_size=4).map("/".join)


@given(names=st.sets(NAMES, min_size=1, max_size=8))
def test_everything_is_chosen_by_the_root_and_each_file_by_its_name(names):
    known = dict.fromkeys(names)
    assert select(known, "/") == {name: name for name in names}
    assert select(known, "**") == {name: name for name in names}
    for name in names:
        assert select(known, name) == {name: name.rpartition("/")[2]}
        folder = name.rpartition("/")[0]
        if folder:
            assert all(f"{folder}/{relative}" == found for found, relative in select(known, f"{folder}/").items())
