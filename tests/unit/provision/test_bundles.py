"""Bundles and mirror folders: what goes in comes out by digest, and nothing else gets into the cache."""

import hashlib
import io
import json
import os
import tarfile
import time
from pathlib import Path

import pytest

from mlmodelscope.core.asset import Asset, Checksum
from mlmodelscope.core.errors import ArchiveError, DigestError, DownloadError, InputError, UnknownNameError, UsageError
from mlmodelscope.core.storage import LEAST_AGE_SECONDS
from mlmodelscope.provision import Assets
from mlmodelscope.provision.bundles import BUNDLE_FORMAT, import_bundle, write_bundle
from mlmodelscope.provision.cache import Cache
from mlmodelscope.provision.digests import hash_file
from mlmodelscope.provision.mirrors import add_place, configured_places, remove_place
from mlmodelscope.provision.upkeep import discard, storage_items

MODEL, LABELS = b"model" * 1000, b"red\ngreen\n"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def assets(tmp_path) -> Assets:
    return Assets(tmp_path / "home", mirrors=[])


@pytest.fixture
def contents(tmp_path, assets):
    """A file, and a folder that holds the same file among others."""
    (tmp_path / "own" / "photos" / "deep").mkdir(parents=True)
    (tmp_path / "own" / "model.bin").write_bytes(MODEL)
    (tmp_path / "own" / "photos" / "model.bin").write_bytes(MODEL)
    (tmp_path / "own" / "photos" / "deep" / "labels.txt").write_bytes(LABELS)
    wanted = [Asset(locations=("model.bin",)), Asset(locations=("photos/",))]
    return [assets.content(asset, base=tmp_path / "own") for asset in wanted]


@pytest.fixture
def other(tmp_path) -> Assets:
    return Assets(tmp_path / "other", mirrors=[])


def gone(content, location: str) -> Asset:
    """The same asset at a location that serves nothing."""
    return Asset(locations=(location,), checksum=Checksum(sha256=content.sha256))


def add(tar: tarfile.TarFile, name: str, data: bytes, **changes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in changes.items():
        setattr(info, field, value)
    tar.addfile(info, io.BytesIO(data))


def bundle_of(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            add(tar, name, data)
    return path


def object_of(data: bytes, kind: str = "sha256") -> str:
    return f"{kind}/{sha256(data)[:2]}/{sha256(data)}"


@pytest.mark.parametrize("target", ["bundle.tar", "folder"])
def test_what_was_packed_is_served_by_digest(tmp_path, contents, other, target):
    packed = write_bundle(contents, tmp_path / target)
    assert {item.sha256 for item in packed} == {content.sha256 for content in contents}
    taken = import_bundle(tmp_path / target, other.cache)
    assert {(item.sha256, item.is_tree, item.size_bytes) for item in taken} == {
        (content.sha256, content.is_tree, content.size_bytes) for content in contents
    }
    file, folder = contents
    fetched = other.fetch(gone(file, "nowhere/model.bin"), base=tmp_path)
    assert (fetched.path.name, fetched.path.read_bytes()) == ("model.bin", MODEL)
    for location in ("nowhere/photos/", "nowhere/photos"):
        tree = other.fetch(gone(folder, location), base=tmp_path)
        assert (tree.path / "deep" / "labels.txt").read_bytes() == LABELS
        assert tree.sha256 == folder.sha256


def test_equal_assets_make_equal_bundles(tmp_path, contents):
    write_bundle(contents, tmp_path / "one.tar")
    write_bundle(contents, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_a_folder_keeps_what_it_holds(tmp_path, contents, other):
    file, folder = contents
    write_bundle([file], tmp_path / "mirror")
    write_bundle([folder], tmp_path / "mirror")
    assert {item.sha256 for item in import_bundle(tmp_path / "mirror", other.cache)} == {file.sha256, folder.sha256}
    listed = json.loads((tmp_path / "mirror" / "mlmodelscope-assets.json").read_text())["assets"]
    assert {item["sha256"] for item in listed} == {file.sha256, folder.sha256}
    assert not (tmp_path / "mirror" / ".unfinished").exists()


def test_importing_twice_changes_nothing(tmp_path, contents, other):
    write_bundle(contents, tmp_path / "bundle.tar")
    import_bundle(tmp_path / "bundle.tar", other.cache)
    before = sorted(path for path in other.cache.root.rglob("*") if "locks" not in path.parts)
    import_bundle(tmp_path / "bundle.tar", other.cache)
    assert sorted(path for path in other.cache.root.rglob("*") if "locks" not in path.parts) == before


def test_a_file_that_changed_is_not_packed(tmp_path, contents):
    (tmp_path / "own" / "model.bin").write_bytes(b"other")
    with pytest.raises(DigestError):
        write_bundle(contents, tmp_path / "bundle.tar")
    assert list(tmp_path.glob("*bundle*")) == []


class TestHostile:
    def refused(self, source: Path, error, other: Assets) -> str:
        with pytest.raises(error) as raised:
            import_bundle(source, other.cache)
        assert list(other.cache.entries()) == []
        assert list((other.cache.root / "tmp").glob("*")) == []
        return raised.value.message

    def test_a_wrong_digest_takes_nothing_in(self, tmp_path, other):
        members = {object_of(LABELS): LABELS, object_of(MODEL): b"other"}
        assert "damaged" in self.refused(bundle_of(tmp_path / "b.tar", members), DigestError, other)

    @pytest.mark.parametrize("name", ["../x", "/x", "sha256/../x", "x", "sha256/00/" + "1" * 64])
    def test_names_that_have_no_place(self, tmp_path, other, name):
        self.refused(bundle_of(tmp_path / "b.tar", {name: b"x"}), ArchiveError, other)

    @pytest.mark.parametrize(
        "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
    )
    def test_what_is_no_plain_file(self, tmp_path, other, kind):
        with tarfile.open(tmp_path / "b.tar", "w") as tar:
            add(tar, object_of(MODEL), b"", type=kind, linkname="/etc/passwd")
        self.refused(tmp_path / "b.tar", ArchiveError, other)

    def test_a_sparse_file_that_would_unpack_to_more(self, tmp_path, other):
        with tarfile.open(tmp_path / "b.tar", "w", format=tarfile.PAX_FORMAT) as tar:
            headers = {
                "GNU.sparse.major": "0",
                "GNU.sparse.minor": "1",
                "GNU.sparse.map": "0,1",
                "GNU.sparse.size": str(2**40),
            }
            add(tar, object_of(b"x"), b"x", pax_headers=headers)
        self.refused(tmp_path / "b.tar", ArchiveError, other)

    def test_a_compressed_tar(self, tmp_path, other):
        with tarfile.open(tmp_path / "b.tar", "w:gz") as tar:
            add(tar, object_of(MODEL), MODEL)
        self.refused(tmp_path / "b.tar", ArchiveError, other)

    def test_a_folder_of_something_else(self, tmp_path, other):
        (tmp_path / "folder" / "sha256").mkdir(parents=True)
        self.refused(tmp_path / "folder", InputError, other)

    @pytest.mark.parametrize("content", [b"", b"noise" * 1000, b"\0" * 512])
    def test_what_is_no_bundle(self, tmp_path, other, content):
        (tmp_path / "b.tar").write_bytes(content)
        self.refused(tmp_path / "b.tar", (ArchiveError, InputError), other)

    def test_a_newer_format(self, tmp_path, other):
        index = json.dumps({"format": BUNDLE_FORMAT + 1, "assets": []}).encode()
        members = {"mlmodelscope-assets.json": index, object_of(MODEL): MODEL}
        assert "reads up to" in self.refused(bundle_of(tmp_path / "b.tar", members), InputError, other)

    @pytest.mark.parametrize("index", [b"", b"[]", b'{"format": "x"}', b'{"format": 1}', b"[" * 100_000])
    def test_an_index_that_cannot_be_read(self, tmp_path, other, index):
        self.refused(bundle_of(tmp_path / "b.tar", {"mlmodelscope-assets.json": index}), InputError, other)

    def test_a_name_in_the_index_that_leads_out(self, tmp_path, other):
        asset = {"sha256": sha256(MODEL), "size_bytes": 1, "is_tree": False, "name": "../../x", "location": ""}
        index = json.dumps({"format": 1, "assets": [asset]}).encode()
        (taken,) = import_bundle(
            bundle_of(tmp_path / "b.tar", {"mlmodelscope-assets.json": index, object_of(MODEL): MODEL}), other.cache
        )
        assert taken.name == "asset"

    def test_a_listing_that_leads_out(self, tmp_path, other):
        listing = f"{sha256(MODEL)}  ../../x\n".encode()
        members = {object_of(MODEL): MODEL, object_of(listing, "trees"): listing}
        self.refused(bundle_of(tmp_path / "b.tar", members), ArchiveError, other)

    def test_a_tree_without_its_files(self, tmp_path, other):
        listing = f"{sha256(MODEL)}  model.bin\n".encode()
        members = {object_of(listing, "trees"): listing}
        assert "lacks" in self.refused(bundle_of(tmp_path / "b.tar", members), InputError, other)

    def test_nothing_there(self, tmp_path, other):
        self.refused(tmp_path / "nothing.tar", InputError, other)


class TestMirrors:
    def test_a_folder_serves_files_and_trees(self, tmp_path, contents):
        write_bundle(contents, tmp_path / "mirror")
        other = Assets(tmp_path / "other", mirrors=[str(tmp_path / "empty"), str(tmp_path / "mirror")])
        file, folder = contents
        fetched = other.fetch(gone(file, "nowhere.bin"), base=tmp_path)
        assert fetched.path.read_bytes() == MODEL
        assert str(tmp_path / "mirror") in fetched.location
        assert (
            other.fetch(gone(folder, "nowhere/"), base=tmp_path).path / "deep" / "labels.txt"
        ).read_bytes() == LABELS

    def test_one_that_lies_is_passed_over(self, tmp_path, contents):
        file, folder = contents
        for name in ("liar", "honest"):
            write_bundle(contents, tmp_path / name)
        (tmp_path / "liar" / object_of(MODEL)).write_bytes(b"other")
        other = Assets(tmp_path / "other", mirrors=[str(tmp_path / "liar"), str(tmp_path / "honest")])
        for content in (file, folder):
            assert "honest" in other.fetch(gone(content, "nowhere/x"), base=tmp_path).location

    def test_where_no_mirror_helps_the_digest_and_the_way_out_are_named(self, tmp_path, contents):
        other = Assets(tmp_path / "other", mirrors=[str(tmp_path / "empty")])
        with pytest.raises(DownloadError) as failed:
            other.fetch(gone(contents[0], "nowhere.bin"), base=tmp_path)
        assert failed.value.fields["sha256"] == contents[0].sha256
        assert "assets import" in failed.value.hint

    def test_paths_that_a_stranger_wrote_are_not_looked_at(self, tmp_path, contents, other):
        asset = gone(contents[0], str(tmp_path / "own" / "model.bin"))
        with pytest.raises(DownloadError, match=contents[0].sha256):
            other.fetch(asset, reads_paths=False)
        assert other.fetch(asset).path.read_bytes() == MODEL

    def test_they_are_remembered(self, tmp_path):
        (tmp_path / "mirror").mkdir()
        assert add_place(tmp_path, "https://mirror.example/assets/") == "https://mirror.example/assets"
        add_place(tmp_path, str(tmp_path / "mirror"))
        add_place(tmp_path, str(tmp_path / "mirror"))
        assert configured_places(tmp_path) == ["https://mirror.example/assets", str(tmp_path / "mirror")]
        remove_place(tmp_path, "https://mirror.example/assets/")
        assert configured_places(tmp_path) == [str(tmp_path / "mirror")]
        with pytest.raises(UnknownNameError):
            remove_place(tmp_path, "https://mirror.example/assets/")

    @pytest.mark.parametrize("place", ["ftp://mirror.example", "https://", "no/such/folder"])
    def test_what_cannot_be_one(self, tmp_path, place):
        with pytest.raises(UsageError):
            add_place(tmp_path, place)


class TestStorage:
    def age(self, path: Path) -> None:
        moment = time.time() - 2 * LEAST_AGE_SECONDS
        os.utime(path, (moment, moment))

    def test_old_entries_go_with_their_notes_and_used_ones_stay(self, tmp_path, contents, other):
        write_bundle(contents, tmp_path / "bundle.tar")
        import_bundle(tmp_path / "bundle.tar", other.cache)
        file, folder = contents
        other.cache.remember("npm:a@1.0.0!model.bin", file.sha256, "npm:a@1.0.0!model.bin")
        for stamp in other.cache.root.glob("sha256/*/*.json"):
            self.age(stamp)
        assert other.cache.lookup(folder.sha256) is not None
        removed = discard(other.cache, storage_items(other.cache))
        assert [item.key for item in removed] == [file.sha256]
        assert other.cache.lookup(file.sha256) is None
        assert list(other.cache.notes()) == []
        assert other.cache.lookup(folder.sha256) is not None

    def test_an_archive_is_what_only_gave_members(self, tmp_path):
        cache = Cache(tmp_path)
        kinds = {}
        for location in (
            "npm:a@1.0.0",
            "npm:a@1.0.0!x",
            "pypi:b==1 (b.whl)",
            "https://h/c.zip",
            "https://h/c.zip!x",
            "https://h/d.zip",
        ):
            with cache.scratch() as folder:
                (folder / "file").write_text(location)
                entry = cache.add(folder, location, is_tree=False, digests=hash_file(folder / "file"))
            cache.remember(location, entry.digests.sha256, location)
            kinds[entry.digests.sha256] = location
        found = {kinds[item.key]: item.kind for item in storage_items(cache)}
        assert {location for location, kind in found.items() if kind == "archives"} == {
            "npm:a@1.0.0",
            "pypi:b==1 (b.whl)",
            "https://h/c.zip",
        }
