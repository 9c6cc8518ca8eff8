"""A stranger's record and artifacts -> the same, or the reason why they are not taken in.

The store, the tables and the analysis trust what they read: it was written by us. What comes from elsewhere is brought
up to that here, once: digests that are digests, numbers a database can hold, texts that do nothing to a terminal,
arrays that are arrays, and compressed data that does not explode.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import time
import zipfile
import zlib
from collections.abc import Iterator
from datetime import datetime
from typing import IO, Any

from pydantic import ValidationError

from mlmodelscope.core.answer import Prediction
from mlmodelscope.core.errors import ArchiveError, DigestError, InputError
from mlmodelscope.core.ids import id_time, is_id
from mlmodelscope.core.manifest import DatasetManifest, ModelManifest
from mlmodelscope.core.record import Record
from mlmodelscope.core.request import PinnedManifest
from mlmodelscope.manifest import load_manifest

__all__ = ["check_artifact", "check_record"]

_LARGEST_UNPACKED_BYTES = 1 << 30
_MOST_ARRAYS = 10_000
_LARGEST_INTEGER = 2**63 - 1
_DAY_SECONDS = 86_400
_DIGEST = re.compile(r"[0-9a-f]{64}")
# everything that moves a cursor or rings a bell; line ends and tabs are text
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_LATENCIES, _PREDICTIONS = "latencies.npz", "predictions.jsonl.gz"


def check_record(record: Record) -> Record:
    """The record, whose failure has lost the control characters of its log. InputError, DigestError, ManifestError."""
    if not is_id(record.id) or id_time(record.id).timestamp() > time.time() + _DAY_SECONDS:
        raise _refused(record, "its id is not one of the past", "check the clock of this machine")
    for text in (record.created_at, record.finished_at):
        _check_moment(record, text)
    cleaned = record
    if record.failure is not None:
        values = _without_control(record.failure.model_dump(mode="json"))
        cleaned = record.model_copy(update={"failure": type(record.failure).model_validate(values)})
    for path, value in _leaves(cleaned.model_dump(mode="json"), ""):
        _check_leaf(record, path, value)
    _check_digests(record)
    _check_manifest(record, record.model.manifest, ModelManifest)
    if record.dataset is not None and record.dataset.manifest is not None:
        _check_manifest(record, record.dataset.manifest, DatasetManifest)
    return cleaned


def check_artifact(name: str, media_type: str, content: bytes) -> None:
    """ArchiveError if reading it later could run something or fill the memory; InputError if it is damaged."""
    if name == _PREDICTIONS:
        _check_predictions(content)
    elif media_type == "application/gzip" or name.endswith(".gz"):
        for _ in _unpacked(name, content):
            pass
    if media_type == "application/x-npz" or name.endswith(".npz"):
        _check_arrays(name, content)


def _check_moment(record: Record, text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise _refused(record, f"{text[:40]!r} is not a time") from None


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"{path} (name)", key
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, path)
    else:
        yield path, value


def _check_leaf(record: Record, path: str, value: Any) -> None:
    if isinstance(value, str) and _CONTROL.search(value):
        raise _refused(record, f"the text of {path[:100]} holds control characters")
    if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
        raise _refused(record, f"the number of {path[:100]} is too large")


def _without_control(value: Any) -> Any:
    if isinstance(value, str):
        return _CONTROL.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_control(item) for item in value]
    if isinstance(value, dict):
        return {_without_control(key): _without_control(item) for key, item in value.items()}
    return value


def _check_digests(record: Record) -> None:
    assets = [*record.model.assets, *(record.dataset.assets if record.dataset else ())]
    named = [asset.sha256 for asset in assets] + [item.sha256 for item in record.artifacts]
    named += [asset.converted_sha256 for asset in assets if asset.converted_sha256 is not None]
    if odd := [text for text in named if not _DIGEST.fullmatch(text)]:
        raise _refused(record, f"{odd[0][:80]!r} is not a SHA-256")


def _check_manifest(record: Record, pinned: PinnedManifest, kind: type[ModelManifest | DatasetManifest]) -> None:
    manifest = load_manifest(pinned.text, origin=f"record:{record.id}")
    if not isinstance(manifest, kind):
        raise _refused(record, f"one of its manifests is a {manifest.kind} manifest")
    # the store removes credentials from a manifest, which keeps the digest of the original
    is_redacted = any(text.startswith("credentials were removed from the") for text in record.warnings)
    if manifest.digest != pinned.digest and not is_redacted:
        raise DigestError(
            f"the manifest of {manifest.name} in the record is not the one that was run",
            expected=pinned.digest,
            actual=manifest.digest,
            location=f"record {record.id}",
        )


def _check_predictions(content: bytes) -> None:
    text = b"".join(_unpacked(_PREDICTIONS, content))
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            prediction = Prediction.model_validate(json.loads(line))
        except (ValueError, RecursionError) as error:
            problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise InputError(f"line {number} of {_PREDICTIONS} is no prediction: {problem[:200]}") from None
        for path, value in _leaves(prediction.model_dump(mode="json"), "prediction"):
            if isinstance(value, str) and _CONTROL.search(value):
                raise InputError(f"line {number} of {_PREDICTIONS} holds control characters in {path[:100]}")


def _unpacked(name: str, content: bytes) -> Iterator[bytes]:
    total = 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            while chunk := file.read(1 << 20):
                total += len(chunk)
                if total > _LARGEST_UNPACKED_BYTES:
                    raise _exploding(name)
                yield chunk
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{name} in the record file is damaged: {error}", name=name) from None


def _check_arrays(name: str, content: bytes) -> None:
    """Plain arrays only: no objects, whose reading could run what they hold, and no header that promises more."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            infos = archive.infolist()
            if len(infos) > _MOST_ARRAYS or sum(info.file_size for info in infos) > _LARGEST_UNPACKED_BYTES:
                raise _exploding(name)
            # the library unpacks what other methods packed as a whole, whatever size the table of contents gives
            if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in infos):
                raise _exploding(name)
            for info in infos:
                with archive.open(info) as file:
                    _check_array(name, file, info.file_size)
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError, ValueError, zlib.error) as error:
        raise InputError(f"{name} in the record file is damaged: {error}", name=name) from None


def _check_array(name: str, file: IO[bytes], size_bytes: int) -> None:
    from numpy.lib import format as npy

    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError("an array of an unknown form")
    shape, _, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
    if dtype.hasobject:
        raise ArchiveError(f"{name} in the record file is refused: it holds objects, not numbers", name=name)
    rest = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or file.tell() + rest != size_bytes:
        raise ValueError("an array is not as long as its header says")
    if name == _LATENCIES and (len(shape) != 2 or shape[1] < 2 or dtype.kind != "i"):
        raise ValueError("its arrays are no tables of time stamps")
    # the last byte is followed by the check sum
    while chunk := file.read(1 << 20):
        rest -= len(chunk)
    if rest:
        raise ValueError("an array is not as long as its header says")


def _exploding(name: str) -> ArchiveError:
    return ArchiveError(
        f"{name} in the record file is refused: it unpacks to more than {_LARGEST_UNPACKED_BYTES} bytes", name=name
    )


def _refused(record: Record, reason: str, hint: str | None = None) -> InputError:
    return InputError(
        f"the record {record.id[:40]!r} is refused: {reason}", hint=hint, id=record.id[:40], reason=reason
    )
