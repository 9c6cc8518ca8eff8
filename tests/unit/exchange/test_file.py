"""Record files: what is written comes back, equal bytes for equal content, and nothing else is taken in."""

import hashlib
import io
import json
import zipfile

import pytest
from hypothesis import given, settings, strategies as st

from mlmodelscope.core.errors import ArchiveError, DigestError, InputError, MLModelScopeError
from mlmodelscope.core.record import Record
from mlmodelscope.exchange.file import FILE_FORMAT, RecordFile, format_record_file, parse_record_file
from mlmodelscope.testing.records import example_artifact, example_record, failed_record

LATENCIES = b"latencies"


def example_file(**changes) -> RecordFile:
    artifact = example_artifact(LATENCIES)
    return RecordFile(example_record(artifacts=(artifact,), **changes), {artifact.name: LATENCIES})


def members_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def with_members(content: bytes, changes: dict[str, bytes], *, is_indexed: bool = True) -> bytes:
    """The file with other members, and an index that agrees with them unless told otherwise."""
    members = members_of(content) | changes
    if is_indexed:
        index = json.loads(members["mlmodelscope-record.json"])
        index["members"] = {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "size_bytes": len(data)}
            for name, data in members.items()
            if name != "mlmodelscope-record.json"
        }
        members["mlmodelscope-record.json"] = json.dumps(index).encode()
    return packed(members)


def with_record(content: bytes, **changes) -> bytes:
    values = json.loads(members_of(content)["record.json"]) | changes
    return with_members(content, {"record.json": json.dumps(values).encode()})


def with_index(content: bytes, **changes) -> bytes:
    values = json.loads(members_of(content)["mlmodelscope-record.json"]) | changes
    return with_members(content, {"mlmodelscope-record.json": json.dumps(values).encode()}, is_indexed=False)


@pytest.mark.parametrize("value", [example_file(), RecordFile(failed_record(), {})])
def test_comes_back_equal(value):
    assert parse_record_file(format_record_file(value)) == value


def test_a_record_over_inputs_has_no_data_set_manifest():
    record = example_record()
    record = record.model_copy(update={"dataset": record.dataset.model_copy(update={"manifest": None})})
    content = format_record_file(RecordFile(record, {}))
    assert "manifests/dataset.yml" not in members_of(content)
    assert parse_record_file(content).record == record


def test_what_one_machine_decided_for_itself_is_not_in_the_file():
    value = example_file()
    stranger = value.record.model_copy(update={"origin": "imported", "is_trusted": False})
    assert format_record_file(RecordFile(stranger, value.artifacts)) == format_record_file(value)


def test_equal_records_make_equal_files():
    value = example_file()
    again = RecordFile(Record.model_validate_json(value.record.model_dump_json()), dict(value.artifacts))
    assert format_record_file(value) == format_record_file(again)


def test_people_find_what_they_look_for_under_fixed_names():
    assert list(members_of(format_record_file(example_file()))) == [
        "mlmodelscope-record.json",
        "record.json",
        "manifests/model.yml",
        "manifests/dataset.yml",
        "artifacts/latencies.bin",
    ]


def test_an_artifact_whose_name_is_a_path_is_not_exported():
    artifact = example_artifact(b"x", name="../x")
    with pytest.raises(InputError):
        format_record_file(RecordFile(example_record(artifacts=(artifact,)), {"../x": b"x"}))


class TestHostile:
    @pytest.fixture
    def content(self):
        return format_record_file(example_file())

    @pytest.mark.parametrize("number", [FILE_FORMAT + 1, 10**30])
    @pytest.mark.parametrize("field", ["format", "record_format"])
    def test_a_newer_format_says_so(self, content, field, number):
        with pytest.raises(InputError, match="reads up to") as refused:
            parse_record_file(with_index(content, **{field: number}))
        assert refused.value.fields["format"] == number

    @pytest.mark.parametrize("size", [0, 1, 21, 22, 100, -1, -23])
    def test_cut_off(self, content, size):
        with pytest.raises(ArchiveError):
            parse_record_file(content[:size])

    def test_a_wrong_digest(self, content):
        with pytest.raises(DigestError, match=r"artifacts/latencies\.bin"):
            parse_record_file(with_members(content, {"artifacts/latencies.bin": b"LATENCIES"}, is_indexed=False))

    def test_an_artifact_that_the_record_does_not_name(self, content):
        with pytest.raises(ArchiveError, match="artifacts"):
            parse_record_file(with_members(content, {"artifacts/latencies.bin": b"LATENCIES"}))
        with pytest.raises(ArchiveError, match="artifacts"):
            parse_record_file(with_members(content, {"artifacts/more.bin": b"more"}))

    def test_a_member_that_the_index_does_not_name(self, content):
        with pytest.raises(ArchiveError, match="disagree"):
            parse_record_file(with_members(content, {"artifacts/more.bin": b"more"}, is_indexed=False))

    @pytest.mark.parametrize(
        "name", ["../escape", "/etc/passwd", "artifacts/../../x", "artifacts/a/b", "run.py", "artifacts/.hidden"]
    )
    def test_a_name_that_has_no_place(self, content, name):
        with pytest.raises(ArchiveError, match="no place"):
            parse_record_file(with_members(content, {name: b"x"}))

    def test_a_name_that_occurs_twice(self, content):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, data in members_of(content).items():
                archive.writestr(name, data)
            with pytest.warns(UserWarning, match="Duplicate"):
                archive.writestr("record.json", b"{}")
        with pytest.raises(ArchiveError, match="no place"):
            parse_record_file(buffer.getvalue())

    def test_a_bomb_is_refused_before_it_is_unpacked(self, content):
        bomb = packed(members_of(content) | {"artifacts/bomb": bytes(50_000_000)}, zipfile.ZIP_DEFLATED)
        assert len(bomb) < 100_000
        with pytest.raises(ArchiveError, match="overlap"):
            parse_record_file(bomb)

    def test_a_small_compressed_member_is_refused_too(self, content):
        with pytest.raises(ArchiveError):
            parse_record_file(packed(members_of(content), zipfile.ZIP_DEFLATED))

    def test_more_members_than_a_record_has(self, content):
        many = {f"artifacts/{number}": b"" for number in range(100)}
        with pytest.raises(ArchiveError, match="more than 64"):
            parse_record_file(with_members(content, many))

    def test_a_comment_behind_the_end(self, content):
        changed = io.BytesIO(content)
        with zipfile.ZipFile(changed, "a") as archive:
            archive.comment = b"PK\x05\x06 hidden"
        with pytest.raises(ArchiveError, match="end"):
            parse_record_file(changed.getvalue())

    def test_something_before_the_start(self, content):
        with pytest.raises(ArchiveError):
            parse_record_file(b"#!/bin/sh\n" + content)

    def test_manifests_that_are_not_those_of_the_record(self, content):
        with pytest.raises(ArchiveError, match="manifests"):
            parse_record_file(with_members(content, {"manifests/model.yml": b"name: Other\n"}))

    def test_a_record_that_calls_itself_trusted(self, content):
        with pytest.raises(ArchiveError):
            parse_record_file(with_record(content, is_trusted=True))

    def test_a_record_of_another_id(self, content):
        with pytest.raises(ArchiveError, match="another record"):
            parse_record_file(with_record(content, id="0" * 26))

    @pytest.mark.parametrize("text", [b"", b"[]", b"{", b"[" * 100_000, b'{"format": 1}', b'"\xff"'])
    def test_texts_that_are_no_record(self, content, text):
        with pytest.raises((ArchiveError, InputError)):
            parse_record_file(with_members(content, {"record.json": text}))
        with pytest.raises((ArchiveError, InputError)):
            parse_record_file(with_members(content, {"mlmodelscope-record.json": text}, is_indexed=False))

    def test_an_unknown_field_points_to_a_newer_version(self, content):
        with pytest.raises(InputError) as refused:
            parse_record_file(with_record(content, colour="red"))
        assert "newer" in refused.value.hint

    @settings(max_examples=300)
    @given(st.data())
    def test_a_changed_byte_is_seen_or_harmless(self, data):
        value = RecordFile(example_record(id="0" * 26), {})
        content = bytearray(format_record_file(value))
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
        try:
            found = parse_record_file(bytes(content))
        except MLModelScopeError:
            return
        # what the zip says about times and versions decides nothing
        assert found == value

    @settings(max_examples=200)
    @given(st.binary(max_size=300), st.integers(0, 300))
    def test_any_bytes_give_one_of_our_errors(self, noise, cut):
        content = format_record_file(RecordFile(example_record(id="0" * 26), {}))
        with pytest.raises(MLModelScopeError):
            parse_record_file(content[:cut] + noise)
