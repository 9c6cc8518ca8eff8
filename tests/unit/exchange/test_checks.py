"""What a stranger's record may hold."""

import gzip
import io
import zipfile

import numpy as np
import pytest

from mlmodelscope.core.errors import ArchiveError, DigestError, InputError, ManifestError
from mlmodelscope.core.ids import id_floor
from mlmodelscope.core.store import parse_moment
from mlmodelscope.exchange import checks
from mlmodelscope.exchange.checks import check_artifact, check_record
from mlmodelscope.manifest import load_manifest
from mlmodelscope.testing.records import (
    example_dataset,
    example_manifest,
    example_model,
    example_record,
    example_system,
    failed_record,
)

DATASET = """\
kind: dataset
name: TinySet
version: 1.0.0
layout: {type: synthetic, count: 4, size: [8, 8]}
"""


def honest(text: str):
    return example_manifest(text=text, digest=load_manifest(text).digest)


def honest_record(make=example_record, **changes):
    """An example whose manifests have the digests that they should have."""
    values = {
        "model": example_model(manifest=honest(example_manifest().text)),
        "dataset": example_dataset(manifest=honest(DATASET)),
    }
    return make(**(values | changes))


@pytest.mark.parametrize("make", [example_record, failed_record])
def test_an_honest_record_is_taken_as_it_is(make):
    record = honest_record(make)
    assert check_record(record) == record


def test_a_manifest_that_is_not_the_one_that_was_run():
    with pytest.raises(DigestError):
        check_record(honest_record(model=example_model()))
    with pytest.raises(DigestError):
        check_record(honest_record(dataset=example_dataset(manifest=example_manifest(text=DATASET))))


def test_a_manifest_that_lost_its_credentials_keeps_the_digest_of_the_original():
    warning = "credentials were removed from the model's manifest; its digest is of the original"
    record = honest_record(model=example_model(), warnings=(warning,))
    assert check_record(record) == record


def test_manifests_that_cannot_be_read_or_are_of_another_kind():
    with pytest.raises(ManifestError):
        check_record(honest_record(model=example_model(manifest=example_manifest(text="name: ["))))
    with pytest.raises(InputError, match="dataset manifest"):
        check_record(honest_record(model=example_model(manifest=honest(DATASET))))


def test_an_id_from_the_future():
    with pytest.raises(InputError, match="past"):
        check_record(honest_record(id=id_floor(parse_moment("2300-01-01"))))


@pytest.mark.parametrize("text", ["\x1b]0;owned\x07", "\x9b2J", "a\x00b", "\u202egpj.exe"])
def test_texts_that_do_something_to_a_terminal(text):
    with pytest.raises(InputError, match="control characters"):
        check_record(honest_record(system=example_system(cpu_model=text)))
    with pytest.raises(InputError, match="control characters"):
        check_record(honest_record().model_copy(update={"warnings": (text,)}))


def test_the_log_of_a_failure_loses_its_colours():
    record = honest_record(failed_record)
    coloured = record.failure.model_copy(update={"log_tail": "\x1b[31mred\x1b[0m\n\tline"})
    found = check_record(record.model_copy(update={"failure": coloured}))
    assert found.failure.log_tail == "\ufffd[31mred\ufffd[0m\n\tline"


def test_a_number_that_no_database_can_hold():
    with pytest.raises(InputError, match="too large"):
        check_record(honest_record(system=example_system(memory_bytes=2**64)))


@pytest.mark.parametrize("digest", ["../../etc/passwd", "", "A" * 64])
def test_a_digest_that_is_a_path(digest):
    model = example_model(manifest=honest(example_manifest().text))
    asset = model.assets[0].model_copy(update={"sha256": digest})
    with pytest.raises(InputError, match="SHA-256"):
        check_record(honest_record(model=model.model_copy(update={"assets": (asset,)})))


def test_a_time_that_is_none():
    with pytest.raises(InputError, match="not a time"):
        check_record(honest_record(created_at="yesterday"))


class TestArtifacts:
    def npz(self, **arrays) -> bytes:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        return buffer.getvalue()

    def check(self, name: str, content: bytes) -> None:
        check_artifact(name, "application/x-npz" if name.endswith("npz") else "application/gzip", content)

    def test_what_we_write_ourselves(self):
        self.check("latencies.npz", self.npz(launch_0=np.zeros((5, 3), dtype=np.int64)))
        self.check("trace.npz", self.npz(header=np.frombuffer(b"{}", dtype=np.uint8), names=np.array(["a", "b"])))
        line = b'{"sample":"a","label":1,"answer":{"type":"classes","classes":[{"index":1,"label":"x","score":0.5}]}}\n'
        self.check("predictions.jsonl.gz", gzip.compress(line * 3))

    def test_objects_are_refused_without_being_made(self):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive, archive.open("launch_0.npy", "w") as file:
            np.lib.format.write_array(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
        with pytest.raises(ArchiveError, match="objects"):
            self.check("latencies.npz", buffer.getvalue())

    def test_a_header_that_promises_more_than_there_is(self):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive, archive.open("launch_0.npy", "w") as file:
            header = {"descr": "<i8", "fortran_order": False, "shape": (10**12, 2)}
            np.lib.format.write_array_header_1_0(file, header)
        with pytest.raises(InputError, match="header"):
            self.check("latencies.npz", buffer.getvalue())

    @pytest.mark.parametrize("array", [np.zeros(5, np.int64), np.zeros((5, 1), np.int64), np.zeros((5, 2))])
    def test_latencies_that_are_no_table_of_time_stamps(self, array):
        with pytest.raises(InputError, match="time stamps"):
            self.check("latencies.npz", self.npz(launch_0=array))

    def test_bombs(self, monkeypatch):
        monkeypatch.setattr(checks, "_LARGEST_UNPACKED_BYTES", 10_000_000)
        with pytest.raises(ArchiveError, match="unpacks"):
            self.check("predictions.jsonl.gz", gzip.compress(bytes(11_000_000)))
        with pytest.raises(ArchiveError, match="unpacks"):
            self.check("trace.npz", self.npz(column=np.zeros((11_000_000,), np.uint8)))

    def test_a_packing_that_says_nothing_of_its_size(self):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_BZIP2) as archive:
            archive.writestr("launch_0.npy", bytes(100))
        with pytest.raises(ArchiveError, match="unpacks"):
            self.check("latencies.npz", packed.getvalue())

    @pytest.mark.parametrize(
        "content", [b"noise", gzip.compress(b"{}", mtime=0)[:-4], gzip.compress(b'{"sample":"a"}', mtime=0)]
    )
    def test_damaged_predictions(self, content):
        with pytest.raises(InputError):
            self.check("predictions.jsonl.gz", content)

    @pytest.mark.parametrize("content", [b"", b"noise", b"PK\x03\x04"])
    def test_damaged_arrays(self, content):
        with pytest.raises(InputError):
            self.check("latencies.npz", content)

    def test_an_answer_that_does_something_to_a_terminal(self):
        line = (
            b'{"sample":"a","label":1,"answer":{"type":"classes",'
            b'"classes":[{"index":1,"label":"\\u001b[2J","score":0.5}]}}'
        )
        with pytest.raises(InputError, match="control"):
            self.check("predictions.jsonl.gz", gzip.compress(line))
