"""A history query -> the SQL that answers it, in what SQLite and PostgreSQL have in common.

The order of the work is chosen here and not left to the database, which knows nothing of how often a value occurs:

1. Find the rows of each facet that the query names. The tables are small; version ranges are understood in Python.
2. Of the facets found, see which is rare: count its records, but stop at `RARE`.
3. A rare facet: take all its records that meet the rest, and sort. Otherwise walk from the newest record on, along the
   values of the facet that has the fewest, or along all records, and stop when the page is full.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Literal

import sqlalchemy as sa

from mlmodelscope.core.errors import ConstraintError
from mlmodelscope.core.ids import id_floor
from mlmodelscope.core.store import HistoryQuery
from mlmodelscope.core.versions import VersionConstraint
from mlmodelscope.store.schema import FACETS, records

__all__ = [
    "MOST_WALKS",
    "RARE",
    "Found",
    "Way",
    "choose",
    "count_up_to",
    "facet_rows",
    "neighbours",
    "newest",
    "rest_of",
    "rows",
    "text_rows",
    "with_prefix",
    "within",
]

Found = Mapping[str, Sequence[int]]
# read: all records of a facet that has few; merge: the newest of each value of a facet; walk: all records, newest first
Way = Literal["read", "merge", "walk"]

# A facet with fewer records than this is read whole: a few milliseconds.
RARE = 5_000
# A facet with more values than this is not walked value by value.
MOST_WALKS = 64

# Above every digit of an id, in the order of text.
_AFTER_DIGITS = "~"


def facet_rows(query: HistoryQuery) -> dict[str, sa.Select[Any]]:
    """Per facet that the query speaks of: the ids and versions of the rows that match, version ranges aside."""
    conditions = {
        "model": [_same("model", "name", query.model)],
        "framework": [_same("framework", "name", query.framework)],
        "dataset": [_same("dataset", "name", query.dataset)],
        "system": [
            _same("system", "architecture", query.architecture),
            None if query.cpu is None else _contains(FACETS["system"].c.cpu_model, query.cpu),
            None if query.memory_bytes is None else FACETS["system"].c.memory_bytes >= query.memory_bytes,
        ],
        "outcome": [_same("outcome", "status", query.status)],
        "scenario": [_same("scenario", "type", query.scenario)],
    }
    return {
        facet: _select(facet).where(*(one for one in given if one is not None))
        for facet, given in conditions.items()
        if any(one is not None for one in given)
    }


def text_rows(text: str) -> dict[str, sa.Select[Any]]:
    """Per facet: the rows in which `text` occurs."""
    searched = {
        "model": ("name", "version"),
        "framework": ("name", "version"),
        "dataset": ("name", "version"),
        "system": ("cpu_model", "architecture"),
        "outcome": ("failure_code",),
    }
    return {
        facet: _select(facet).where(sa.or_(*(_contains(FACETS[facet].c[name], text) for name in names)))
        for facet, names in searched.items()
    }


def within(constraint: VersionConstraint | None, found: Iterable[sa.Row[Any]]) -> list[int]:
    """The ids of the (id, version) rows whose version lies in the range; a text that is no version lies in none."""
    return [row.id for row in found if constraint is None or _matches(constraint, row.version)]


def rest_of(query: HistoryQuery, after: str | None, facets: Found, texts: Found | None) -> list[sa.ColumnElement[bool]]:
    """What a record must meet: its time, its place in the pages, its facets, and one of `texts`."""
    conditions: list[sa.ColumnElement[bool]] = []
    if query.since is not None:
        conditions.append(records.c.id >= id_floor(query.since))
    ends = [end for end in (after, id_floor(query.until) if query.until else None) if end is not None]
    if ends:
        conditions.append(records.c.id < min(ends))
    conditions += [_unindexed(facet).in_(ids) for facet, ids in facets.items()]
    if texts is not None:
        conditions.append(sa.or_(*(_unindexed(facet).in_(ids) for facet, ids in texts.items() if ids)))
    return conditions


def count_up_to(limit: int, facet: str, ids: Sequence[int]) -> sa.Select[Any]:
    some = sa.select(sa.literal(1)).select_from(records).where(records.c[facet].in_(ids)).limit(limit).subquery()
    return sa.select(sa.func.count()).select_from(some)


def choose(facets: Found, sizes: Mapping[str, int]) -> tuple[Way, str]:
    """How to find the newest records, and along which facet. `sizes` are the counts of the indexed facets."""
    rarest = min(sizes, key=sizes.__getitem__, default="")
    if rarest and sizes[rarest] < RARE:
        return "read", rarest
    walkable = [facet for facet in sizes if len(facets[facet]) <= MOST_WALKS]
    if walkable:
        return "merge", min(walkable, key=lambda facet: len(facets[facet]))
    return "walk", ""


def newest(
    way: Way, facet: str, ids: Sequence[int], rest: Sequence[sa.ColumnElement[bool]], limit: int
) -> sa.Select[Any]:
    """The ids of the newest records that have one of the facet's `ids` and meet `rest`, newest first."""
    if way == "walk":
        return _newest(limit).where(*rest)
    if way == "read":
        return _newest(limit).where(records.c[facet].in_(ids), *rest)
    values, page = FACETS[facet], records.alias("page")
    newest_of_each = _newest(limit).where(records.c[facet] == values.c.id, *rest).correlate(values)
    return (
        sa.select(page.c.id)
        .select_from(values.join(page, page.c.id.in_(newest_of_each)))
        .where(values.c.id.in_(ids))
        .order_by(page.c.id.desc())
        .limit(limit)
    )


@cache
def rows() -> sa.Select[Any]:
    """The rows of the records `ids`, newest first, with the columns named after the fields of `HistoryRow`.

    Made once: putting the statement together takes longer than the database needs to answer it.
    """
    model, framework, dataset, system, outcome, scenario = FACETS.values()
    own = [column for column in records.c if column.name not in FACETS]
    joined: sa.FromClause = records
    for name, table in FACETS.items():
        joined = joined.outerjoin(table, table.c.id == records.c[name])
    return (
        sa.select(
            *own,
            outcome.c.status,
            outcome.c.failure_code,
            model.c.name.label("model"),
            model.c.version.label("model_version"),
            framework.c.name.label("framework"),
            framework.c.version.label("framework_version"),
            dataset.c.name.label("dataset"),
            system.c.architecture,
            system.c.cpu_model,
            scenario.c.type.label("scenario"),
            scenario.c.timed,
        )
        .select_from(joined)
        .where(records.c.id.in_(sa.bindparam("ids", expanding=True)))
        .order_by(records.c.id.desc())
    )


def with_prefix(prefix: str, limit: int) -> sa.Select[Any]:
    """Ids that begin with `prefix`, newest first."""
    return _newest(limit).where(records.c.id >= prefix, records.c.id < prefix + _AFTER_DIGITS)


def neighbours(text: str, count: int = 5) -> sa.CompoundSelect[Any]:
    """The ids that would stand next to `text`: those a person may have meant."""
    below = _newest(count).where(records.c.id < text).subquery()
    above = sa.select(records.c.id).where(records.c.id >= text).order_by(records.c.id).limit(count).subquery()
    return sa.union_all(sa.select(below.c.id), sa.select(above.c.id))


def _newest(limit: int) -> sa.Select[Any]:
    return sa.select(records.c.id).order_by(records.c.id.desc()).limit(limit)


def _select(facet: str) -> sa.Select[Any]:
    table = FACETS[facet]
    return sa.select(table.c.id, table.c.version if "version" in table.c else sa.null().label("version"))


def _unindexed(facet: str) -> sa.ColumnElement[Any]:
    """The column in a form no index serves, so that the database keeps to the walk that was chosen for it."""
    return records.c[facet] + 0


def _same(facet: str, name: str, value: str | None) -> sa.ColumnElement[bool] | None:
    return None if value is None else sa.func.lower(FACETS[facet].c[name]) == value.lower()


def _contains(column: sa.Column[Any], part: str) -> sa.ColumnElement[bool]:
    return sa.func.lower(column).contains(part.lower(), autoescape=True)


def _matches(constraint: VersionConstraint, version: str | None) -> bool:
    try:
        return version is not None and constraint.matches(version)
    except ConstraintError:
        return False
