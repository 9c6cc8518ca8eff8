"""A history query -> the SQL that answers it, in what SQLite and PostgreSQL have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from mlmodelscope.core.errors import ConstraintError
from mlmodelscope.core.ids import id_floor
from mlmodelscope.core.store import HistoryQuery, HistoryRow
from mlmodelscope.core.versions import VersionConstraint
from mlmodelscope.store.schema import records, setups

__all__ = [
    "MOST_SETUPS",
    "all_rows",
    "matching_setups",
    "neighbours",
    "rows_of_setups",
    "to_history_row",
    "versions_of",
    "versions_within",
    "with_prefix",
]

# Up to so many setups, the newest records of each are looked up and merged, which costs setups x limit steps. Beyond,
# all records are walked from the newest on and those of other setups passed over: with that many setups, at least one
# record in (all records / MOST_SETUPS) is met. Measured in docs/decisions/0004-store.md.
MOST_SETUPS = 400

# Above every digit of an id, in the order of text.
_AFTER_DIGITS = "~"

_COLUMNS = {
    field: records.c[field] if field in records.c else setups.c[field] for field in HistoryRow.__dataclass_fields__
}


def versions_of(name: str, value: str) -> sa.Select[Any]:
    """The distinct versions there are of the model or framework (`name`) called `value`."""
    column = setups.c[f"{name}_version"]
    return sa.select(column).where(_same(setups.c[name], value), column.is_not(None)).distinct()


def versions_within(versions: Iterable[str], constraint: VersionConstraint) -> list[str]:
    """Those that lie in the range; a text that is not a version lies in none."""
    return [version for version in versions if _matches(constraint, version)]


def matching_setups(query: HistoryQuery, versions: dict[str, list[str]]) -> sa.Select[Any] | None:
    """The ids of the setups that match, `versions` standing for the version constraints; None if all match."""
    conditions: list[sa.ColumnElement[bool]] = []
    for name in ("model", "framework", "dataset", "architecture", "scenario", "status"):
        value = getattr(query, name)
        if value is not None:
            conditions.append(_same(setups.c[name], value))
    conditions += [setups.c[f"{name}_version"].in_(sorted(found)) for name, found in versions.items()]
    if query.cpu is not None:
        conditions.append(_has(setups.c.cpu_model, query.cpu))
    if query.text is not None:
        named = ("model", "model_version", "framework", "framework_version", "dataset", "cpu_model", "failure_code")
        conditions.append(sa.or_(*(_has(setups.c[name], query.text) for name in named)))
    return sa.select(setups.c.id).where(*conditions) if conditions else None


def rows_of_setups(found: Sequence[int], query: HistoryQuery, limit: int, after: str | None) -> sa.Select[Any]:
    """The newest rows of a few setups: the newest of each, then the newest of these."""
    theirs = records.alias("theirs")
    newest = (
        sa.select(theirs.c.id)
        .where(theirs.c.setup == setups.c.id, *_window(theirs, query, after))
        .order_by(theirs.c.id.desc())
        .limit(limit)
        .correlate(setups)
    )
    return (
        sa.select(*_columns())
        .select_from(setups.join(records, records.c.id.in_(newest)))
        .where(setups.c.id.in_(found))
        .order_by(records.c.id.desc())
        .limit(limit)
    )


def all_rows(setup_ids: sa.Select[Any] | None, query: HistoryQuery, limit: int, after: str | None) -> sa.Select[Any]:
    """The newest rows of all setups, or of those that `setup_ids` selects."""
    conditions = _window(records, query, after)
    if setup_ids is not None:
        conditions.append(records.c.setup.in_(setup_ids))
    return (
        sa.select(*_columns())
        .select_from(records.join(setups, setups.c.id == records.c.setup))
        .where(*conditions)
        .order_by(records.c.id.desc())
        .limit(limit)
    )


def with_prefix(prefix: str, limit: int) -> sa.Select[Any]:
    """Ids that begin with `prefix`, newest first."""
    return (
        sa.select(records.c.id)
        .where(records.c.id >= prefix, records.c.id < prefix + _AFTER_DIGITS)
        .order_by(records.c.id.desc())
        .limit(limit)
    )


def neighbours(text: str, count: int = 5) -> sa.CompoundSelect[Any]:
    """The ids that would stand next to `text`: those a person may have meant."""
    below = sa.select(records.c.id).where(records.c.id < text).order_by(records.c.id.desc()).limit(count).subquery()
    above = sa.select(records.c.id).where(records.c.id >= text).order_by(records.c.id).limit(count).subquery()
    return sa.union_all(sa.select(below.c.id), sa.select(above.c.id))


def to_history_row(row: sa.Row[Any]) -> HistoryRow:
    return HistoryRow(**row._mapping)


def _columns() -> list[sa.Column[Any]]:
    return list(_COLUMNS.values())


def _window(table: sa.FromClause, query: HistoryQuery, after: str | None) -> list[sa.ColumnElement[bool]]:
    """What a single record must meet: its time, the place in the pages, and the memory of its machine."""
    conditions: list[sa.ColumnElement[bool]] = []
    if query.since is not None:
        conditions.append(table.c.id >= id_floor(query.since))
    ends = [end for end in (after, id_floor(query.until) if query.until else None) if end is not None]
    if ends:
        conditions.append(table.c.id < min(ends))
    if query.memory_bytes is not None:
        conditions.append(table.c.system_memory_bytes >= query.memory_bytes)
    return conditions


def _same(column: sa.ColumnElement[Any], value: str) -> sa.ColumnElement[bool]:
    return sa.func.lower(column) == value.lower()


def _has(column: sa.ColumnElement[Any], part: str) -> sa.ColumnElement[bool]:
    return sa.func.lower(column).contains(part.lower(), autoescape=True)


def _matches(constraint: VersionConstraint, version: str) -> bool:
    try:
        return constraint.matches(version)
    except ConstraintError:
        return False
