"""A database of an older schema number, or an empty one -> the same database at the number this version writes."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from mlmodelscope.core.errors import StoreError
from mlmodelscope.store.schema import SCHEMA

__all__ = ["MIGRATIONS", "is_current", "schema_number", "upgrade"]

MIGRATIONS = Path(__file__).parent / "migrations"

_number = sa.table("alembic_version", sa.column("version_num"))


def schema_number(connection: sa.Connection) -> str | None:
    """The number in the database; None if it is empty. StoreError if it holds tables of somebody else."""
    try:
        found = connection.execute(sa.select(_number.c.version_num)).scalar()
    except sa.exc.OperationalError:
        tables = sorted(sa.inspect(connection).get_table_names())
        if tables:
            raise StoreError(
                f"the database holds tables of another program: {', '.join(tables[:5])}",
                hint="move the file elsewhere, or name another database",
                tables=tables,
            ) from None
        return None
    return None if found is None else str(found)


def is_current(number: str | None, place: str) -> bool:
    """Whether the database can be used as it is; StoreError if a newer version of ours made it."""
    if number is None:
        return False
    if not number.isdecimal() or int(number) > int(SCHEMA):
        raise StoreError(
            f"the evaluation database {place} has schema {number}; this version of mlmodelscope knows up to {SCHEMA}",
            hint="upgrade mlmodelscope, or set MLMODELSCOPE_HOME to another folder",
            place=place,
            found=number,
            known=SCHEMA,
        )
    return int(number) == int(SCHEMA)


def upgrade(connection: sa.Connection) -> None:
    """Carries out the migrations that are missing, in order, within the transaction of `connection`."""
    # 0.2 s that only the first start and the first after an upgrade pay
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory(str(MIGRATIONS))
    context = MigrationContext.configure(connection)
    current = context.get_current_revision()
    missing = list(scripts.iterate_revisions("head", current or "base"))
    with Operations.context(context):
        for script in reversed(missing):
            script.module.upgrade()
            context.stamp(scripts, script.revision)
