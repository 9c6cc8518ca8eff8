import hashlib
import os
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mlmodelscope.core.asset import Asset, Checksum, Conversion
from mlmodelscope.core.errors import DigestError, DownloadError, ModelFormatError, StorageError, UnknownNameError
from mlmodelscope.provision import Assets, assets as assets_module
from mlmodelscope.provision.cache import Cache
from mlmodelscope.provision.digests import Digests, HashMemory, check, combine, hash_file, hash_path
from mlmodelscope.provision.durable import locked, place, private_folder, read_json, storing, write_json


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(cache: Cache, files: dict[str, bytes], *, is_tree: bool = False):
    with cache.scratch() as folder:
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        target = folder if is_tree else folder / next(iter(files))
        return cache.add(folder, "somewhere", is_tree=is_tree, digests=hash_path(target))


def files_under(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


class Joins:
    """A converter that joins a list of files to the list itself."""

    name = "joins"
    extension = ".joined"

    def __init__(self) -> None:
        self.runs = 0
        self.version = "1"

    def companions(self, source: Path) -> list[str]:
        return source.read_text().split()

    def convert(self, source, target, options):
        self.runs += 1
        parts = [(source.parent / name).read_bytes() for name in self.companions(source)]
        target.write_bytes(options.get("mark", "").encode() + b"".join(parts))

    def digest(self) -> str:
        return sha256(self.version.encode())


@pytest.fixture
def joins(monkeypatch):
    converter = Joins()
    monkeypatch.setattr(assets_module, "converter", lambda name: converter)
    return converter


def test_the_digest_of_a_file_and_of_a_tree(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_bytes(b"one")
    (tmp_path / "a").write_bytes(b"two")
    assert hash_file(tmp_path / "a") == Digests(sha256(b"two"), hashlib.md5(b"two").hexdigest(), 3)
    lines = f"{sha256(b'two')}  a\n{sha256(b'one')}  b/x\n".encode()
    assert hash_path(tmp_path).sha256 == sha256(lines)
    assert hash_path(tmp_path).size_bytes == 6


@given(st.dictionaries(st.text(min_size=1), st.binary(), min_size=1))
def test_a_tree_digest_depends_on_names_and_bytes_not_on_order(files):
    def digest(pairs):
        return combine({name: Digests(sha256(data), "0" * 32, len(data)) for name, data in pairs}).sha256

    assert digest(files.items()) == digest(reversed(files.items()))
    name = next(iter(files))
    assert digest(files.items()) != digest((files | {name: files[name] + b"!"}).items())
    assert digest(files.items()) != digest((files | {name + "!" * 9: b""}).items())


def test_a_mismatch_names_both_digests():
    found = Digests("a" * 64, "b" * 32, 1)
    check(found, None, "x")
    check(found, Checksum(sha256="a" * 64, md5="b" * 32), "x")
    for checksum, expected in ((Checksum(sha256="c" * 64), "c" * 64), (Checksum(md5="d" * 32), "d" * 32)):
        with pytest.raises(DigestError) as caught:
            check(found, checksum, "x")
        assert caught.value.fields["expected"] == expected
        assert caught.value.fields["actual"] in caught.value.message


def test_reading_creates_nothing(tmp_path):
    cache = Cache(tmp_path / "assets")
    assert cache.lookup("a" * 64) is None
    assert cache.recall("x") is None
    assert list(tmp_path.iterdir()) == []


def test_an_entry_is_found_by_digest_and_by_where_it_came_from(tmp_path):
    cache = Cache(tmp_path)
    entry = put(cache, {"m.onnx": b"model"})
    cache.remember("https://h.example/m.onnx", entry.digests.sha256, "shown")
    assert cache.lookup(sha256(b"model")) == cache.recall("https://h.example/m.onnx") == entry
    assert entry.file("m.onnx").read_bytes() == b"model"
    assert entry.file("other.tflite").read_bytes() == b"model"
    assert os.access(entry.folder, os.X_OK)
    assert (entry.file("m.onnx").stat().st_mode & 0o777) == 0o444
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("damage", [b"", b"mod", b"MODEL", b"model and more"])
def test_a_damaged_file_is_noticed_and_dropped(tmp_path, damage):
    cache = Cache(tmp_path)
    entry = put(cache, {"m.onnx": b"model"})
    path = entry.file("m.onnx")
    path.chmod(0o644)
    path.write_bytes(damage)
    os.utime(path, ns=(1, 1))
    assert cache.lookup(sha256(b"model")) is None
    assert not entry.folder.exists()


def test_a_touched_file_is_hashed_again_and_kept(tmp_path):
    cache = Cache(tmp_path)
    entry = put(cache, {"m.onnx": b"model"})
    os.utime(entry.file("m.onnx"), ns=(1, 1))
    assert cache.lookup(sha256(b"model")) == entry


def test_a_lost_stamp_is_made_again(tmp_path):
    cache = Cache(tmp_path)
    for entry in (put(cache, {"m.onnx": b"model"}), put(cache, {"a": b"1", "b/c": b"2"}, is_tree=True)):
        entry.folder.with_name(f"{entry.folder.name}.json").unlink()
        found = cache.lookup(entry.digests.sha256)
        assert (found.digests, found.is_tree) == (entry.digests, entry.is_tree)


@pytest.mark.parametrize("change", ["remove", "add", "edit"])
def test_a_tree_that_lost_gained_or_changed_a_file_is_dropped(tmp_path, change):
    cache = Cache(tmp_path)
    entry = put(cache, {"a": b"1", "b/c": b"2"}, is_tree=True)
    path = entry.folder / "b" / "c"
    match change:
        case "remove":
            path.unlink()
        case "add":
            (entry.folder / "b" / "d").write_bytes(b"")
        case _:
            path.chmod(0o644)
            path.write_bytes(b"3")
            os.utime(path, ns=(1, 1))
    assert cache.lookup(entry.digests.sha256) is None


def test_the_same_content_twice_is_one_entry(tmp_path):
    cache = Cache(tmp_path)
    assert put(cache, {"m.onnx": b"model"}) == put(cache, {"n.onnx": b"model"})


def test_forgetting_drops_note_and_content(tmp_path):
    cache = Cache(tmp_path)
    entry = put(cache, {"m.onnx": b"model"})
    cache.remember("k", entry.digests.sha256, "k")
    cache.forget("k")
    assert cache.recall("k") is None
    assert not entry.folder.exists()


def test_a_local_file_is_used_in_place_and_copied_nowhere(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"model")
    home = tmp_path / "home"
    for location in ("m.onnx", str(tmp_path / "m.onnx"), (tmp_path / "m.onnx").as_uri()):
        found = Assets(home).fetch(Asset(locations=(location,)), base=tmp_path)
        assert found.path == tmp_path / "m.onnx"
        assert (found.sha256, found.size_bytes, found.converter) == (sha256(b"model"), 5, None)
    assert not (home / "assets" / "sha256").exists()


def test_a_local_folder_has_a_tree_digest(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").write_bytes(b"a")
    found = Assets(tmp_path / "home").fetch(Asset(locations=("images/",)), base=tmp_path)
    assert found.path == tmp_path / "images"
    assert found.sha256 == sha256(f"{sha256(b'a')}  a.jpg\n".encode())


def test_a_local_file_that_changes_is_hashed_again(tmp_path):
    path = tmp_path / "m.onnx"
    asset, assets = Asset(locations=("m.onnx",)), Assets(tmp_path / "home")
    for data in (b"one", b"two", b"six"):
        path.write_bytes(data)
        assert assets.fetch(asset, base=tmp_path).sha256 == sha256(data)


def test_a_digest_is_remembered_only_once_the_file_has_settled(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"model")
    memory = HashMemory(tmp_path / "hashes")
    memory.hash(path)
    assert read_json(next((tmp_path / "hashes").iterdir()))["files"] == {}
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 60_000_000_000)
    assert memory.hash(path) == hash_file(path)
    monkeypatch.setattr("mlmodelscope.provision.digests.hash_file", lambda path: pytest.fail("hashed again"))
    assert memory.hash(path).sha256 == sha256(b"model")


def test_a_missing_or_wrong_local_file_says_so(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"model")
    assets = Assets(tmp_path / "home")
    with pytest.raises(DownloadError, match="there is no file"):
        assets.fetch(Asset(locations=("none.onnx",)), base=tmp_path)
    with pytest.raises(DigestError, match=sha256(b"model")):
        assets.fetch(Asset(locations=("m.onnx",), checksum=Checksum(sha256="0" * 64)), base=tmp_path)


def test_alternatives_are_tried_in_order_for_one_digest(tmp_path):
    (tmp_path / "wrong.onnx").write_bytes(b"wrong")
    (tmp_path / "right.onnx").write_bytes(b"right")
    checksum = Checksum(md5=hashlib.md5(b"right").hexdigest())
    assets = Assets(tmp_path / "home")
    asset = Asset(locations=("none.onnx", "wrong.onnx", "right.onnx"), checksum=checksum)
    assert assets.fetch(asset, base=tmp_path).location == "right.onnx"
    with pytest.raises(DigestError) as caught:
        assets.fetch(Asset(locations=("none.onnx", "wrong.onnx"), checksum=checksum), base=tmp_path)
    assert caught.value.fields["reasons"]["none.onnx"] == "there is no such file"
    with pytest.raises(DownloadError) as missing:
        assets.fetch(Asset(locations=("a.onnx", "b.onnx")), base=tmp_path)
    assert "a.onnx: there is no such file" in missing.value.message
    assert "b.onnx: there is no such file" in missing.value.message


def test_describing_says_what_is_here(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"model")
    assets = Assets(tmp_path / "home")
    here = assets.describe(Asset(locations=("https://h.example/m.onnx", "m.onnx")), base=tmp_path)
    assert (here.is_present, here.needs_download, here.path) == (True, False, tmp_path / "m.onnx")
    away = assets.describe(Asset(locations=("https://h.example/m.onnx",)))
    assert (away.is_present, away.needs_download, away.path) == (False, True, None)


def test_a_conversion_runs_once_per_original_code_and_options(tmp_path, joins):
    (tmp_path / "w").mkdir()
    (tmp_path / "list.txt").write_text("w/1 w/2")
    (tmp_path / "w" / "1").write_bytes(b"one")
    (tmp_path / "w" / "2").write_bytes(b"two")
    assets = Assets(tmp_path / "home")

    def fetch(**options):
        conversion = Conversion(name="joins", options=options)
        return assets.fetch(Asset(locations=("list.txt",), conversion=conversion), base=tmp_path)

    first = fetch()
    assert first.path.name == "list.joined"
    assert first.path.read_bytes() == b"onetwo"
    assert first.converted_sha256 == sha256(b"onetwo")
    names = {"list.txt": b"w/1 w/2", "w/1": b"one", "w/2": b"two"}
    lines = "".join(f"{sha256(data)}  {name}\n" for name, data in names.items())
    assert first.sha256 == first.original_sha256 == sha256(lines.encode())
    assert fetch() == first
    assert joins.runs == 1
    assert fetch(mark="x").path.read_bytes() == b"xonetwo"
    joins.version = "2"
    assert fetch().converter_digest != first.converter_digest
    (tmp_path / "w" / "2").write_bytes(b"TWO")
    assert fetch().path.read_bytes() == b"oneTWO"
    assert joins.runs == 4


def test_a_damaged_conversion_is_made_again(tmp_path, joins):
    (tmp_path / "list.txt").write_text("")
    asset = Asset(locations=("list.txt",), conversion=Conversion(name="joins", options={"mark": "m"}))
    assets = Assets(tmp_path / "home")
    path = assets.fetch(asset, base=tmp_path).path
    path.chmod(0o644)
    path.write_bytes(b"")
    assert assets.fetch(asset, base=tmp_path).path.read_bytes() == b"m"
    assert joins.runs == 2


def test_a_conversion_that_fails_leaves_nothing(tmp_path, joins, monkeypatch):
    (tmp_path / "list.txt").write_text("")

    def fail(source, target, options):
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(joins, "convert", fail)
    asset = Asset(locations=("list.txt",), conversion=Conversion(name="joins"))
    with pytest.raises(StorageError, match="no space left"):
        Assets(tmp_path / "home").fetch(asset, base=tmp_path)
    assert [name for name in files_under(tmp_path / "home") if ".lock" not in name and "hashes/" not in name] == []


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up"])
def test_companions_outside_the_folder_are_refused(tmp_path, joins, name):
    (tmp_path / "list.txt").write_text(name)
    asset = Asset(locations=("list.txt",), conversion=Conversion(name="joins"))
    with pytest.raises(ModelFormatError, match="outside its folder"):
        Assets(tmp_path / "home").fetch(asset, base=tmp_path)


def test_a_missing_companion_is_named(tmp_path, joins):
    (tmp_path / "list.txt").write_text("shard1")
    asset = Asset(locations=("list.txt",), conversion=Conversion(name="joins"))
    with pytest.raises(DownloadError, match="shard1"):
        Assets(tmp_path / "home").fetch(asset, base=tmp_path)


def test_an_unknown_converter_is_named(tmp_path):
    with pytest.raises(UnknownNameError):
        Assets(tmp_path).fetch(Asset(locations=("x",), conversion=Conversion(name="no-such")))


def test_what_the_system_says_becomes_an_error_with_path_and_hint(tmp_path):
    with pytest.raises(StorageError) as caught, storing(tmp_path):
        raise OSError(28, "No space left on device")
    assert caught.value.fields["path"] == str(tmp_path)
    assert "MLMODELSCOPE_HOME" in str(caught.value.hint)


def test_json_is_replaced_whole(tmp_path):
    path = tmp_path / "a" / "x.json"
    write_json(path, {"n": 1})
    with pytest.raises(TypeError):
        write_json(path, {"n": object()})
    assert read_json(path) == {"n": 1}
    assert files_under(tmp_path) == ["a/x.json"]
    path.write_text("{broken")
    assert read_json(path) is None
    path.write_text("[1]")
    assert read_json(path) is None


def test_private_folders_go_away_and_so_does_what_killed_processes_left(tmp_path):
    with private_folder(tmp_path) as folder:
        (folder / "x").write_bytes(b"x")
    old, young = tmp_path / "old", tmp_path / "young"
    old.mkdir()
    young.mkdir()
    os.utime(old, (1, 1))
    with private_folder(tmp_path):
        assert not old.exists()
        assert young.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["young"]


def test_placing_replaces_a_folder(tmp_path):
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_bytes(b"")
    place(tmp_path / "new", tmp_path / "old")
    assert files_under(tmp_path) == ["old/new"]


def test_a_home_that_cannot_be_made_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError), locked(tmp_path / "file" / "locks" / "x"):
        pass
