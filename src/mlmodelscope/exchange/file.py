"""A record with its artifacts <-> one file: a zip with fixed names, equal bytes for equal content, nothing to run.

    mlmodelscope-record.json   the index: format numbers, the record's id, size and SHA-256 of every other member
    record.json                the record, without what only the machine that stored it knows (origin, trust)
    manifests/model.yml        the manifest as it was read; the same text is in the record
    manifests/dataset.yml      likewise, where a data set was named
    artifacts/NAME             predictions, latencies, trace: whatever the record lists

Nothing is compressed (the artifacts are already), so the file cannot unpack to more than its size. A reader takes the
file for hostile: it reads the directory at the end before anything else, and checks every size and digest.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import Field, ValidationError

from mlmodelscope.core.errors import ArchiveError, DigestError, InputError
from mlmodelscope.core.record import RECORD_FORMAT, Record
from mlmodelscope.core.value import Frozen, canonical_json

__all__ = ["FILE_FORMAT", "LARGEST_FILE_BYTES", "RecordFile", "format_record_file", "parse_record_file"]

FILE_FORMAT = 1
LARGEST_FILE_BYTES = 1 << 30

_INDEX, _RECORD = "mlmodelscope-record.json", "record.json"
_MANIFESTS = {"model": "manifests/model.yml", "dataset": "manifests/dataset.yml"}
_ARTIFACT = re.compile(r"artifacts/[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MOST_MEMBERS = 64
_LARGEST_DIRECTORY_BYTES = 64 << 10
_LARGEST_TEXT_BYTES = 64 << 20
_END = struct.Struct("<4s4H2LH")
_EPOCH = (1980, 1, 1, 0, 0, 0)
# what the machine that stored the record decided for itself
_OWN = {"origin", "is_trusted"}


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A record and the content of its artifacts, by name."""

    record: Record
    artifacts: Mapping[str, bytes]


class _Member(Frozen):
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)


class _Index(Frozen):
    format: int
    record_format: int
    id: str
    members: dict[str, _Member]


def format_record_file(value: RecordFile) -> bytes:
    record = value.record
    members = {_RECORD: canonical_json(record.model_dump(mode="json", exclude=_OWN)).encode()}
    members |= {_MANIFESTS[part]: text.encode() for part, text in _manifest_texts(record).items()}
    for artifact in record.artifacts:
        name = f"artifacts/{artifact.name}"
        if not _ARTIFACT.fullmatch(name):
            raise InputError(f"the artifact {artifact.name!r} cannot be exported under this name", name=artifact.name)
        members[name] = value.artifacts[artifact.name]
    index = _Index(
        format=FILE_FORMAT,
        record_format=record.format,
        id=record.id,
        members={name: _Member(sha256=_sha256(data), size_bytes=len(data)) for name, data in members.items()},
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
        for name, data in {_INDEX: canonical_json(index).encode(), **members}.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system, info.external_attr = 3, 0o644 << 16
            archive.writestr(info, data)
    return buffer.getvalue()


def parse_record_file(content: bytes) -> RecordFile:
    """What the file holds, all of it verified against its index.

    ArchiveError: no zip of ours, or a hostile one. InputError: a newer format, or a record that cannot be understood.
    DigestError: a member that is not what the index says. Whether the record tells the truth, no reader can know.
    """
    members = _read_members(content)
    index = _parse_index(members.pop(_INDEX, None))
    if set(members) != set(index.members):
        odd = sorted(set(members) ^ set(index.members))
        raise _refused(f"its index and its members disagree about {odd[0]!r}")
    for name, data in members.items():
        expected, found = index.members[name], _sha256(data)
        if (found, len(data)) != (expected.sha256, expected.size_bytes):
            raise DigestError(
                f"{name} in the record file is damaged: its SHA-256 is {found}, expected {expected.sha256}",
                hint="get the file again",
                location=name,
                expected=expected.sha256,
                actual=found,
            )
    record = _parse_record(members.pop(_RECORD, b""), index)
    _check_manifests(record, {name: members.pop(name) for name in _MANIFESTS.values() if name in members})
    return RecordFile(record, _matched_artifacts(record, members))


def _read_members(content: bytes) -> dict[str, bytes]:
    _check_end(content)
    members: dict[str, bytes] = {}
    with _reading(), zipfile.ZipFile(io.BytesIO(content)) as archive:
        infos = archive.infolist()
        if sum(info.file_size for info in infos) > len(content):
            raise _refused("its members overlap")
        for info in infos:
            name = info.filename
            is_known = name in (_INDEX, _RECORD, *_MANIFESTS.values()) or _ARTIFACT.fullmatch(name)
            if not is_known or name in members:
                raise _refused(f"{name[:100]!r} has no place in it")
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
                raise _refused(f"{name} is compressed or encrypted")
            if not name.startswith("artifacts/") and info.file_size > _LARGEST_TEXT_BYTES:
                raise _refused(f"{name} is larger than {_LARGEST_TEXT_BYTES} bytes")
            members[name] = archive.read(info)
    return members


def _check_end(content: bytes) -> None:
    """The last 22 bytes of a zip without a comment say how large its directory is: a bomb shows before it is read."""
    if len(content) > LARGEST_FILE_BYTES:
        raise _refused(f"it is larger than {LARGEST_FILE_BYTES} bytes")
    if len(content) < _END.size or not content.startswith(b"PK\x03\x04"):
        raise _refused("it is no zip file, or was cut off")
    mark, disk, first_disk, here, total, size, offset, comment = _END.unpack(content[-_END.size :])
    if mark != b"PK\x05\x06" or comment or disk or first_disk or here != total:
        raise _refused("it does not end as a record file does: it was cut off or changed")
    if total > _MOST_MEMBERS or size > _LARGEST_DIRECTORY_BYTES:
        raise _refused(f"it has more than {_MOST_MEMBERS} members")
    if offset + size + _END.size != len(content):
        raise _refused("its directory is not where it should be")


def _parse_index(text: bytes | None) -> _Index:
    if text is None:
        raise _refused(f"it has no {_INDEX}")
    numbers = _loads(text, _INDEX)
    for field, readable in (("format", FILE_FORMAT), ("record_format", RECORD_FORMAT)):
        number = numbers.get(field) if isinstance(numbers, dict) else None
        if isinstance(number, int) and number > readable:
            raise InputError(
                f"the file has {field.replace('_', ' ')} {number}; this version of mlmodelscope reads up to {readable}",
                hint="upgrade mlmodelscope",
                format=number,
                readable=readable,
            )
    try:
        return _Index.model_validate(numbers)
    except ValidationError as error:
        raise _refused(f"{_INDEX} cannot be read: {_first_problem(error)}") from None


def _parse_record(text: bytes, index: _Index) -> Record:
    values = _loads(text, _RECORD)
    if not isinstance(values, dict) or _OWN & set(values):
        raise _refused(f"{_RECORD} is no record as it is exported")
    try:
        record = Record.model_validate_json(text)
    except ValidationError as error:
        raise InputError(
            f"the record in the file cannot be understood: {_first_problem(error)}",
            hint="it may come from a newer mlmodelscope: upgrade, then import it again",
        ) from None
    if (record.id, record.format) != (index.id, index.record_format):
        raise _refused("its index speaks of another record")
    return record


def _check_manifests(record: Record, found: Mapping[str, bytes]) -> None:
    expected = {_MANIFESTS[part]: text.encode() for part, text in _manifest_texts(record).items()}
    if found != expected:
        raise _refused("its manifests are not those of the record")


def _matched_artifacts(record: Record, members: Mapping[str, bytes]) -> dict[str, bytes]:
    found = {name.removeprefix("artifacts/"): data for name, data in members.items()}
    listed = {(item.name, item.sha256, item.size_bytes) for item in record.artifacts}
    if len(listed) != len(record.artifacts) or listed != {(n, _sha256(d), len(d)) for n, d in found.items()}:
        raise _refused("its artifacts are not those that the record lists")
    return found


def _manifest_texts(record: Record) -> dict[str, str]:
    texts = {"model": record.model.manifest.text}
    if record.dataset is not None and record.dataset.manifest is not None:
        texts["dataset"] = record.dataset.manifest.text
    return texts


def _loads(text: bytes, name: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise _refused(f"{name} is not JSON") from None


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (
        zipfile.BadZipFile,
        struct.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        OSError,
        ValueError,
    ) as error:
        raise _refused(f"it cannot be read ({error or type(error).__name__})") from error


def _refused(reason: str) -> ArchiveError:
    return ArchiveError(
        f"the record file is refused: {reason}",
        hint="give a file that `mlmodelscope record export` wrote",
        reason=reason,
    )


def _first_problem(error: ValidationError) -> str:
    item = error.errors()[0]
    return f"{'.'.join(map(str, item['loc']))}: {item['msg']}"[:300]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
