"""Records <-> rows of a database that SQLAlchemy reaches; what differs between databases is in the file of each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from mlmodelscope.core.errors import StoreError, UnknownNameError, UsageError
from mlmodelscope.core.ids import is_id
from mlmodelscope.core.record import Artifact, Record
from mlmodelscope.core.storage import LEAST_AGE_SECONDS, StorageItem
from mlmodelscope.core.store import HistoryPage, HistoryQuery, HistoryRow
from mlmodelscope.core.versions import VersionConstraint, parse_constraint
from mlmodelscope.store import query as sql
from mlmodelscope.store.artifacts import ArtifactFolder
from mlmodelscope.store.failures import translating
from mlmodelscope.store.redact import Private, redact
from mlmodelscope.store.rows import artifact_rows, digests_in, facet_values, number_columns, pack, unpack
from mlmodelscope.store.schema import FACETS, INDEXED_FACETS, artifacts, documents, records

__all__ = ["WRITES", "SqlStore"]

# The execution option that tells an engine which transactions will write.
WRITES = "mlmodelscope_writes"
_LARGEST_PAGE = 1000


class SqlStore:
    """A `Store` (core/store.py) over an engine whose database has the current schema. `place` names it in messages."""

    def __init__(self, engine: sa.Engine, place: str, folder: Path, private: Private) -> None:
        self._engine = engine
        self._writer = engine.execution_options(**{WRITES: True})
        self._place = place
        self._artifacts = ArtifactFolder(folder)
        self._private = private

    def put_artifact(self, content: bytes | Path, name: str, media_type: str) -> Artifact:
        return self._artifacts.put(content, name, media_type)

    def read_artifact(self, artifact: Artifact) -> bytes:
        return self._artifacts.read(artifact)

    def add(self, record: Record) -> Record:
        if not is_id(record.id):
            raise StoreError(f"{record.id!r} is not a record id", hint="make ids with new_id()", id=record.id)
        names = [artifact.name for artifact in record.artifacts]
        if len(set(names)) < len(names):
            raise StoreError(f"two artifacts of record {record.id} have one name", id=record.id, names=names)
        stored = redact(record, self._private)
        body = pack(stored)
        with translating(self._place), self._writer.begin() as connection:
            earlier = connection.execute(_document(record.id)).first()
            if earlier is None:
                # whoever frees space does it as a writer too, so what is there now stays
                for artifact in record.artifacts:
                    self._artifacts.require(artifact)
                _insert(connection, stored, body)
            elif unpack(*earlier) != stored:
                raise StoreError(
                    f"another record is already stored as {record.id}",
                    hint="a stored record never changes; give the new one an id of its own",
                    id=record.id,
                )
        return stored

    def get(self, record_id: str) -> Record:
        prefix = record_id.strip().lower()
        with translating(self._place), self._engine.begin() as connection:
            row = connection.execute(_document(prefix)).first()
            if row is None:
                row = connection.execute(_document(_only_match(connection, prefix, record_id))).one()
        return unpack(*row)

    def history(self, query: HistoryQuery, *, limit: int = 50, after: str | None = None) -> HistoryPage:
        if not 1 <= limit <= _LARGEST_PAGE:
            raise UsageError(f"a page has 1 to {_LARGEST_PAGE} records, not {limit}", limit=limit)
        if after is not None and not is_id(after):
            raise UsageError(f"{after!r} is not the place of a page", hint="give the id of the last record seen")
        constraints = {
            name: parse_constraint(text)
            for name in ("model", "framework")
            if (text := getattr(query, f"{name}_version")) is not None
        }
        with translating(self._place), self._engine.begin() as connection:
            # one more than asked for tells whether there is another page
            ids = _search(connection, query, constraints, limit + 1, after)
            found = connection.execute(sql.rows(), {"ids": ids[:limit]}).mappings().all() if ids else []
        page = tuple(HistoryRow(**row) for row in found)
        return HistoryPage(page, after=page[-1].id if len(ids) > limit else None)

    def trust(self, record_id: str) -> Record:
        with translating(self._place), self._writer.begin() as connection:
            row = connection.execute(_document(record_id)).first()
            if row is None:
                raise UnknownNameError("record", record_id, connection.scalars(sql.neighbours(record_id)).all())
            record = unpack(*row).model_copy(update={"is_trusted": True})
            connection.execute(sa.update(documents).where(documents.c.id == record_id).values(body=pack(record)))
        return record

    def storage(self) -> list[StorageItem]:
        with translating(self._place), self._engine.begin() as connection:
            named = _named_artifacts(connection)
        items = [
            StorageItem("artifacts" if sha256 in named else "orphans", sha256, sha256, size, used_at, sha256 in named)
            for sha256, size, used_at in self._artifacts.files()
        ]
        items += [StorageItem("unfinished", f"artifact:{n}", n, s, at) for n, s, at in self._artifacts.unfinished()]
        return [*self._database_items(), *items]

    def named_digests(self) -> set[str]:
        found: set[str] = set()
        with translating(self._place), self._engine.connect() as connection:
            bodies = connection.execution_options(yield_per=1000).scalars(sa.select(documents.c.body))
            for body in bodies:
                found.update(digests_in(body))
        return found

    def discard(self, items: Iterable[StorageItem]) -> list[StorageItem]:
        oldest = time.time() - LEAST_AGE_SECONDS
        with translating(self._place), self._writer.begin() as connection:
            named = _named_artifacts(connection)
            return [
                item
                for item in items
                if (item.kind == "orphans" and item.key not in named and self._artifacts.discard(item.key, oldest))
                or (item.kind == "unfinished" and self._artifacts.discard(item.key.removeprefix("artifact:"), oldest))
            ]

    def close(self) -> None:
        self._engine.dispose()

    def _database_items(self) -> list[StorageItem]:
        """The files of the database, where it is one of this machine."""
        return []


def _search(
    connection: sa.Connection,
    query: HistoryQuery,
    constraints: dict[str, VersionConstraint],
    limit: int,
    after: str | None,
) -> Sequence[str]:
    """The ids of the newest records that match, in the steps that query.py describes."""
    facets = {
        facet: sql.within(constraints.get(facet), connection.execute(rows))
        for facet, rows in sql.facet_rows(query).items()
    }
    texts = None
    if query.text is not None:
        texts = {facet: sql.within(None, connection.execute(rows)) for facet, rows in sql.text_rows(query.text).items()}
    if not all(facets.values()) or (texts is not None and not any(texts.values())):
        return []
    sizes = {
        facet: connection.scalar(sql.count_up_to(sql.RARE, facet, ids)) or 0
        for facet, ids in facets.items()
        if facet in INDEXED_FACETS
    }
    way, along = sql.choose(facets, sizes)
    rest = sql.rest_of(query, after, {facet: ids for facet, ids in facets.items() if facet != along}, texts)
    return connection.scalars(sql.newest(way, along, facets.get(along, ()), rest, limit)).all()


def _named_artifacts(connection: sa.Connection) -> set[str]:
    return set(connection.scalars(sa.select(artifacts.c.sha256).distinct()))


def _document(record_id: str) -> sa.Select[Any]:
    return sa.select(documents.c.id, documents.c.format, documents.c.body).where(documents.c.id == record_id)


def _insert(connection: sa.Connection, record: Record, body: bytes) -> None:
    facets = {
        facet: None if values is None else _facet_id(connection, FACETS[facet], values)
        for facet, values in facet_values(record).items()
    }
    connection.execute(sa.insert(records).values(facets | number_columns(record)))
    connection.execute(sa.insert(documents).values(id=record.id, format=record.format, body=body))
    if record.artifacts:
        connection.execute(sa.insert(artifacts), artifact_rows(record))


def _facet_id(connection: sa.Connection, table: sa.Table, values: dict[str, Any]) -> int:
    same = (table.c[name].is_not_distinct_from(value) for name, value in values.items())
    found = connection.scalar(sa.select(table.c.id).where(*same))
    if found is None:
        found = connection.execute(sa.insert(table).values(values).returning(table.c.id)).scalar_one()
    return int(found)


def _only_match(connection: sa.Connection, prefix: str, asked: str) -> str:
    """The only id that begins with `prefix`."""
    found = connection.scalars(sql.with_prefix(prefix, 6)).all() if prefix else []
    if len(found) == 1:
        return str(found[0])
    if not found:
        raise UnknownNameError("record", asked, connection.scalars(sql.neighbours(prefix)).all())
    shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
    raise UsageError(
        f"more than one record begins with {asked!r}", hint=f"write more of the id: {shown}", ids=list(found[:5])
    )
