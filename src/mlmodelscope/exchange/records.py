"""A stored record -> a file for a stranger; a stranger's file -> a stored record, untrusted until the user says so."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from mlmodelscope.core.errors import InputError, StorageError, StoreError, UnknownNameError
from mlmodelscope.core.record import Record
from mlmodelscope.core.store import Store, Upkeep
from mlmodelscope.exchange.checks import check_artifact, check_record
from mlmodelscope.exchange.file import LARGEST_FILE_BYTES, RecordFile, format_record_file, parse_record_file

__all__ = ["export_record", "import_record"]


def export_record(store: Store, record_id: str, target: Path) -> Record:
    """Writes the record and its artifacts to `target`, whole or not at all; equal records make equal files."""
    record = store.get(record_id)
    content = format_record_file(
        RecordFile(record, {item.name: store.read_artifact(item) for item in record.artifacts})
    )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            waiting = Path(file.name)
            try:
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
                waiting.replace(target)
            finally:
                waiting.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot write {target}: {(error.strerror or str(error)).lower()}", path=str(target)
        ) from error
    return record


def import_record(store: Store, source: Path, *, is_trusted: bool = False) -> tuple[Record, bool]:
    """The record as it is stored, and whether it is new here. Everything is verified before anything is written.

    A record that is here already is left as it is, but for the trust that `is_trusted` adds; another one under its id
    is a StoreError.
    """
    file = parse_record_file(_read(source))
    record = check_record(file.record)
    for artifact in record.artifacts:
        check_artifact(artifact.name, artifact.media_type, file.artifacts[artifact.name])
    earlier = _find(store, record.id)
    if earlier is not None:
        return _confirmed(store, earlier, record, is_trusted=is_trusted), False
    for artifact in record.artifacts:
        store.put_artifact(file.artifacts[artifact.name], artifact.name, artifact.media_type)
    return store.add(record.model_copy(update={"origin": "imported", "is_trusted": is_trusted})), True


def _read(source: Path) -> bytes:
    try:
        if source.stat().st_size > LARGEST_FILE_BYTES:
            raise InputError(f"{source} is too large for a record file", input=str(source))
        return source.read_bytes()
    except OSError as error:
        raise InputError(
            f"{source} cannot be read: {(error.strerror or str(error)).lower()}", input=str(source)
        ) from None


def _find(store: Store, record_id: str) -> Record | None:
    try:
        return store.get(record_id)
    except UnknownNameError:
        return None


def _confirmed(store: Store, earlier: Record, record: Record, *, is_trusted: bool) -> Record:
    # the store compares as it stores: without what is private, and says itself if the two differ
    same = {"origin": earlier.origin, "is_trusted": earlier.is_trusted}
    store.add(record.model_copy(update=same))
    if not is_trusted or earlier.is_trusted:
        return earlier
    if not isinstance(store, Upkeep):
        raise StoreError("this store cannot change whether a record is trusted")
    return store.trust(earlier.id)
