"""Records and assets from one home to another: through the command line, with every package registry out of reach."""

import hashlib
import json
import os
import shutil
import threading
import time
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mlmodelscope.core.errors import DigestError, StoreError
from mlmodelscope.core.storage import LEAST_AGE_SECONDS
from mlmodelscope.repetition import plan_again

# nothing listens there: whatever is not here, in a bundle or on a mirror cannot be had
NO_NETWORK = {
    "PIP_INDEX_URL": "http://127.0.0.1:9",
    "PIP_EXTRA_INDEX_URL": "",
    "PIP_FIND_LINKS": "",
    "PIP_CONFIG_FILE": os.devnull,
    "npm_config_registry": "http://127.0.0.1:9",
}
QUICK = ("--launches", "1", "--queries", "4", "--duration", "0")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args) -> None:
        pass


@pytest.fixture
def other(lab, tmp_path) -> Iterator:
    """Another machine: a home and a folder of its own, with nothing in it."""
    found = type(lab)(tmp_path / "other-machine", lab.colours_onnx)
    found.root.mkdir()
    yield found
    found.wait_until_all_gone()


@pytest.fixture
def server(tmp_path) -> Iterator[tuple[Path, str]]:
    """A plain file server: its folder and its address."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def lose_files(lab) -> None:
    """The machine that made the record is far away."""
    for path in (lab.root / "colours.onnx", lab.root / "labels.txt"):
        path.unlink()
    shutil.rmtree(lab.root / "photos")


def packaged(lab, sha256: dict[str, str]) -> str:
    """The same model as a package that has vanished: digests are all that is left of it."""
    source = {
        "graph_path": "npm:vanished-model@1.0.0!package/colours.onnx",
        "checksum": {"sha256": sha256["colours.onnx"]},
    }
    outputs = [
        {
            "type": "probability",
            "layer_name": "scores",
            "element_type": "float32",
            "features_url": "pypi:vanished-labels==1.0.0!labels.txt",
            "features_checksum": sha256["labels.txt"],
            "steps": [{"softmax": {}}, {"topk": {"k": 2}}],
        }
    ]
    return lab.model("vanished", source=source, outputs=outputs)


def digests(lab) -> dict[str, str]:
    return {name: hashlib.sha256((lab.root / name).read_bytes()).hexdigest() for name in ("colours.onnx", "labels.txt")}


class TestRecords:
    def test_a_stranger_repeats_a_record_from_its_file_and_a_bundle(self, lab, other):
        record = lab.evaluate(lab.model(), dataset=lab.photos())
        assert lab.run("record", "export", record.id, "-o", "r.mlrecord").code == 0
        assert lab.run("assets", "export", record.id, "-o", "bundle.tar").code == 0
        lose_files(lab)
        done = other.run("record", "import", str(lab.root / "r.mlrecord"), "--json")
        assert (done.json["is_new"], done.json["record"]["origin"], done.json["record"]["is_trusted"]) == (
            True, "imported", False,
        )  # fmt: skip
        assert other.run("record", "import", str(lab.root / "r.mlrecord"), "--trust").code == 0

        failed = other.run("reproduce", record.id, "--json", **NO_NETWORK)
        failure = failed.json["record"]["failure"]
        assert (failed.code, failure["code"]) == (1, "download_failed")
        assert failure["fields"]["sha256"] == record.model.assets[0].sha256
        assert "mlmodelscope assets import" in failure["hint"]

        assert other.run("assets", "import", str(lab.root / "bundle.tar")).code == 0
        repeated = other.run("reproduce", record.id, "--json", **NO_NETWORK)
        assert repeated.code == 0, repeated.err
        assert repeated.json["record"]["accuracy"]["top1"]["value"] == record.accuracy.top1.value
        assert repeated.json["record"]["model"]["weights_digest"] == record.model.weights_digest

    def test_inputs_are_repeated_by_digest_too(self, lab, other):
        photo = Path(lab.photos()).parent / "photos" / "2-blue" / "dark.png"
        record = lab.evaluate(lab.model(), inputs=(str(photo),))
        with lab.workspace() as here:
            here.export_record(record.id, lab.root / "r.mlrecord")
            here.export_assets([record.id], lab.root / "bundle.tar")
        lose_files(lab)
        with other.workspace() as there:
            there.import_record(lab.root / "r.mlrecord", is_trusted=True)
            there.import_assets(lab.root / "bundle.tar")
            repeated, verdict = there.reproduce(record.id)
        assert repeated.failure is None
        assert verdict is not None

    def test_an_untrusted_record_stays_untrusted_when_it_is_planned_again(self, lab, other):
        record = lab.evaluate(lab.model(), dataset=lab.noise())
        with lab.workspace() as here:
            here.export_record(record.id, lab.root / "r.mlrecord")
        with other.workspace() as there:
            stored, _ = there.import_record(lab.root / "r.mlrecord")
            plan = plan_again(stored, there.catalogue, there.home)
            assert not plan.is_trusted
            assert plan.model_digests == tuple(asset.sha256 for asset in record.model.assets)
            trusted, is_new = there.import_record(lab.root / "r.mlrecord", is_trusted=True)
            assert (trusted.is_trusted, is_new) == (True, False)
            assert there.get(record.id) == trusted
            assert plan_again(trusted, there.catalogue, there.home).is_trusted

    def test_importing_twice_is_harmless_and_the_file_comes_out_again(self, lab, other):
        record = lab.evaluate(lab.model(), dataset=lab.photos())
        with lab.workspace() as here:
            here.export_record(record.id, lab.root / "r.mlrecord")
            own, is_new = here.import_record(lab.root / "r.mlrecord")
            assert (own, is_new) == (record, False)
        with other.workspace() as there:
            first, _ = there.import_record(lab.root / "r.mlrecord")
            assert there.import_record(lab.root / "r.mlrecord") == (first, False)
            there.export_record(record.id, other.root / "r.mlrecord")
            assert there.compare([record.id, record.id])
        assert (other.root / "r.mlrecord").read_bytes() == (lab.root / "r.mlrecord").read_bytes()

    def test_a_record_that_is_here_with_other_content_is_refused(self, lab, other):
        record = lab.evaluate(lab.model(), dataset=lab.noise())
        with lab.workspace() as here:
            here.export_record(record.id, lab.root / "r.mlrecord")
        with other.workspace() as there:
            other_record = record.model_copy(update={"seed": 1, "artifacts": ()})
            there.store.add(other_record)
            with pytest.raises(StoreError, match="another record"):
                there.import_record(lab.root / "r.mlrecord")
            assert there.get(record.id) == other_record
        assert list(other.home.glob("artifacts/sha256/*/*")) == []

    def test_a_damaged_file_leaves_nothing(self, lab, other):
        record = lab.evaluate(lab.model(), dataset=lab.noise())
        with lab.workspace() as here:
            here.export_record(record.id, lab.root / "r.mlrecord")
        with zipfile.ZipFile(lab.root / "r.mlrecord") as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(lab.root / "bad.mlrecord", "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data.replace(b"succeeded", b"Succeeded"))
        with other.workspace() as there, pytest.raises(DigestError):
            there.import_record(lab.root / "bad.mlrecord")
        with other.workspace() as there:
            assert there.history().rows == ()
        assert list(other.home.glob("artifacts/sha256/*/*")) == []
        done = other.run("record", "import", str(lab.root / "bad.mlrecord"))
        assert (done.code, "digest_mismatch" in done.err) == (3, True)

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"noise" * 10_000])
    def test_what_is_no_record_file_is_a_message(self, lab, content):
        done = lab.run("record", "import", str(lab.write("x.mlrecord", content)), "--json")
        assert (done.code, done.json["error"]["code"]) == (3, "archive_unsafe")
        assert lab.run("record", "import", "nothing.mlrecord").code == 2

    def test_a_failed_evaluation_is_exchanged_too(self, lab, other):
        record = lab.evaluate(lab.function("broken", "raise ValueError('\\x1b[31mno')"), dataset=lab.noise())
        assert record.status == "failed"
        with lab.workspace() as here:
            here.export_record(record.id, lab.root / "r.mlrecord")
        with other.workspace() as there:
            stored, _ = there.import_record(lab.root / "r.mlrecord")
        assert stored.failure.code == record.failure.code
        assert "\x1b" not in stored.model_dump_json().replace("\\u001b", "\x1b")


class TestAssets:
    @pytest.mark.parametrize("way", ["bundle", "folder", "mirror folder", "mirror server", "configured mirror"])
    def test_a_vanished_package_hurts_nobody(self, lab, other, server, way):
        folder, address = server
        model, photos = lab.model(), lab.photos()
        target = lab.root / "bundle.tar" if way == "bundle" else folder
        assert lab.run("assets", "export", model, photos, "-o", str(target)).code == 0
        model, photos = packaged(other, digests(lab)), other.photos()
        (other.root / "colours.onnx").unlink()
        (other.root / "labels.txt").unlink()
        command = ("evaluate", model, "--dataset", photos, *QUICK, "--json")
        assert other.run(*command, **NO_NETWORK).code == 1

        variables = dict(NO_NETWORK)
        if way in ("bundle", "folder"):
            assert other.run("assets", "import", str(target)).code == 0
        elif way == "configured mirror":
            assert other.run("assets", "mirror", address).code == 0
        else:
            # one that is away and one that is empty do not matter
            places = ["http://127.0.0.1:9", str(other.root), str(folder) if way == "mirror folder" else address]
            variables["MLMODELSCOPE_MIRRORS"] = ", ".join(places)
        done = other.run(*command, **variables)
        assert done.code == 0, done.err
        (record,) = [record for record in other.records() if record.status == "succeeded"]
        assert record.accuracy.top1.value == pytest.approx(5 / 6)
        expected = "sha256:" if way in ("bundle", "folder") else str(folder) if way == "mirror folder" else address
        assert record.model.assets[0].location.startswith(expected)

    def test_what_is_in_the_cache_is_listed(self, lab, other):
        lab.run("assets", "export", lab.model(), "-o", "bundle.tar")
        other.run("assets", "import", str(lab.root / "bundle.tar"))
        listed = other.run("assets", "list", "--json").json
        assert {item["key"] for item in listed} == set(digests(lab).values())
        assert digests(lab)["colours.onnx"][:12] in other.run("assets", "list").out

    def test_mirrors_are_listed_without_passwords(self, lab):
        lab.run("assets", "mirror", "https://me:secret@mirror.example/a")
        done = lab.run("assets", "mirror", MLMODELSCOPE_MIRRORS="/mnt/mirror")
        assert done.out.splitlines() == ["/mnt/mirror  (MLMODELSCOPE_MIRRORS)", "https://mirror.example/a"]
        assert lab.run("assets", "mirror", "https://me:secret@mirror.example/a", "--remove").out == ""

    def test_a_name_that_nothing_has(self, lab):
        done = lab.run("assets", "export", "ResNet5O", "-o", "b.tar")
        assert (done.code, "ResNet50" in done.err) == (2, True)


class TestStorage:
    def age(self, lab) -> None:
        """Everything was last used before the hour in which nothing is pruned."""
        moment = time.time() - 2 * LEAST_AGE_SECONDS
        for path in lab.home.rglob("*"):
            if "mlmodelscope.db" not in path.name:
                os.utime(path, (moment, moment))

    def test_only_what_no_record_needs_is_pruned(self, lab, other):
        lab.run("assets", "export", lab.model(), lab.photos(), "-o", "bundle.tar")
        model, photos = packaged(other, digests(lab)), other.photos()
        other.run("assets", "import", str(lab.root / "bundle.tar"))
        record = other.evaluate(model, dataset=photos)
        with other.workspace() as workspace:
            orphan = workspace.store.put_artifact(b"nobody names this", "x", "text/plain")
        other.write("home/assets/parts/broken.part", b"half")
        other.write("home/runs/01abandoned/file", b"left")
        self.age(other)
        removable = {"orphans": len(b"nobody names this"), "unfinished": 4, "runs": 4}

        shown = {item["kind"]: item["size_bytes"] for item in other.run("storage", "show", "--json").json["kinds"]}
        assert {kind: shown[kind] for kind in removable} == removable
        dry = other.run("storage", "prune", "--older-than", "1h", "--dry-run", "--json").json
        assert {item["kind"]: item["size_bytes"] for item in dry["removed"]} == removable
        assert (other.home / "assets" / "parts" / "broken.part").exists()

        done = other.run("storage", "prune", "--older-than", "1h", "--json").json
        assert {item["key"] for item in done["removed"]} == {item["key"] for item in dry["removed"]}
        assert other.run("storage", "prune", "--older-than", "0", "--json").json["removed"] == []
        with other.workspace() as workspace:
            with pytest.raises(StoreError):
                workspace.store.read_artifact(orphan)
            assert workspace.compare([record.id, record.id])
            assert workspace.reproduce(record.id)[0].failure is None

    def test_assets_go_when_no_record_names_them_or_when_asked(self, lab, other):
        lab.run("assets", "export", lab.model(), lab.photos(), "-o", "bundle.tar")
        model, noise = packaged(other, digests(lab)), other.noise()
        other.run("assets", "import", str(lab.root / "bundle.tar"))
        other.evaluate(model, dataset=noise)
        self.age(other)
        prune = ("storage", "prune", "--kind", "assets", "--older-than", "1h", "--json")
        removed = other.run(*prune).json["removed"]
        assert {item["key"] for item in removed}.isdisjoint(digests(lab).values())
        assert len(removed) == 1
        removed = other.run(*prune, "--needed", "--max-size", "1B").json["removed"]
        assert {item["key"] for item in removed} == set(digests(lab).values())

    def test_what_was_just_used_stays(self, lab):
        with lab.workspace() as workspace:
            workspace.store.put_artifact(b"its record comes in a moment", "x", "text/plain")
            assert workspace.prune(older_than_seconds=0) == []
        self.age(lab)
        with lab.workspace() as workspace:
            workspace.store.put_artifact(b"its record comes in a moment", "x", "text/plain")
            assert workspace.prune(older_than_seconds=0) == []
        self.age(lab)
        with lab.workspace() as workspace:
            assert [item.kind for item in workspace.prune(older_than_seconds=0)] == ["orphans"]

    def test_the_history_cannot_be_pruned(self, lab):
        assert lab.run("storage", "prune", "--kind", "artifacts").code == 2
        assert lab.run("storage", "prune", "--older-than", "soon").code == 2
        assert json.loads(lab.run("storage", "prune", "--json").out) == {"is_dry": False, "removed": []}
