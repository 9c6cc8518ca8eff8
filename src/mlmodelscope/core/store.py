"""The port of the store: records go in, and come back by id or as the history that a query describes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from pydantic import AwareDatetime, NonNegativeInt, model_validator

from mlmodelscope.core.errors import ConstraintError
from mlmodelscope.core.record import Artifact, Record
from mlmodelscope.core.storage import StorageItem
from mlmodelscope.core.value import Frozen

__all__ = ["HistoryPage", "HistoryQuery", "HistoryRow", "OpenStore", "Store", "Upkeep", "parse_moment"]

Status = Literal["succeeded", "failed"]


class HistoryQuery(Frozen):
    """Which records; what is None does not matter, all that is given must hold.

    Names match whatever their case. `model_version` and `framework_version` are version constraints and go with their
    name. `cpu` is a part of the processor's name; `text` a part of any name, of the processor or of the failure's code.
    `memory_bytes` is the least memory of the machine. `since` is included, `until` is not; both speak of the time
    in the record's id.
    """

    model: str | None = None
    model_version: str | None = None
    framework: str | None = None
    framework_version: str | None = None
    dataset: str | None = None
    architecture: str | None = None
    cpu: str | None = None
    memory_bytes: NonNegativeInt | None = None
    scenario: str | None = None
    status: Status | None = None
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    text: str | None = None

    @model_validator(mode="after")
    def _versions_have_names(self) -> HistoryQuery:
        for name in ("model", "framework"):
            if getattr(self, f"{name}_version") is not None and getattr(self, name) is None:
                raise ValueError(f"{name}_version needs {name}: versions of different {name}s cannot be compared")
        return self


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One record in a list. None is what the record does not know: a failed one has no latency."""

    id: str
    created_at: str
    status: Status
    model: str
    model_version: str
    framework: str | None
    framework_version: str | None
    dataset: str | None
    samples: int | None
    scenario: str
    timed: str
    batch_size: int
    threads: int | None
    architecture: str | None
    cpu_model: str | None
    latency_median_ns: float | None
    throughput: float | None
    top1: float | None
    memory_bytes: int | None
    failure_code: str | None


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Rows, newest first. `after` asks for the next page; None: this was the last one."""

    rows: tuple[HistoryRow, ...]
    after: str | None


class Store(Protocol):
    """Keeps records for good. Several threads and several processes may use one place at the same time.

    Callers put the artifacts first, then add the record that names them. When `add` returns, the record survives the
    loss of power; when the process dies before, there is no record. Everything raises StoreError if the place cannot
    be used or does not hold what it should.
    """

    def put_artifact(self, content: bytes | Path, name: str, media_type: str) -> Artifact:
        """Keeps `content` (or the file's) under its digest; the same content is kept once. It is stored as it is:
        only records are redacted."""
        ...

    def read_artifact(self, artifact: Artifact) -> bytes:
        """The content, which was checked against the digest."""
        ...

    def add(self, record: Record) -> Record:
        """Stores `record` without what is private, and returns it as it was stored.

        Adding an equal record again changes nothing; another record under a stored id is a StoreError.
        """
        ...

    def get(self, record_id: str) -> Record:
        """The record of that id, or of the only id that begins so. UnknownNameError if there is none, UsageError if
        there are several."""
        ...

    def history(self, query: HistoryQuery, *, limit: int = 50, after: str | None = None) -> HistoryPage:
        """The first `limit` records that match, newest first, from those older than the id `after`.

        ConstraintError for a version constraint that cannot be read.
        """
        ...

    def close(self) -> None:
        """Lets go of files and connections. The store is not used afterwards."""
        ...


@runtime_checkable
class Upkeep(Protocol):
    """A store that also knows what it takes up, frees what no record needs, and lets the user trust a stranger."""

    def trust(self, record_id: str) -> Record:
        """Marks an imported record as trusted: the one thing about a stored record that may change."""
        ...

    def storage(self) -> list[StorageItem]:
        """The database, the artifacts that records name, those that none names, and unfinished files."""
        ...

    def named_digests(self) -> set[str]:
        """Every SHA-256 that a stored record speaks of. Reads all records: some 30 s for a million."""
        ...

    def discard(self, items: Iterable[StorageItem]) -> list[StorageItem]:
        """Removes orphans and unfinished files; those that were removed. What a record names by now is left."""
        ...


# What an entry point of the group `mlmodelscope.stores` is: a class or function that opens the store kept under the
# given folder; the URL says where the records are if not there.
OpenStore = Callable[[Path, str | None], Store]


def parse_moment(text: str) -> datetime:
    """A date (its first moment) or a date and time in ISO 8601; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ConstraintError(
            f"{text!r} is not a date", hint="write it like 2026-03-31 or 2026-03-31T14:00:00+02:00", text=text
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
