"""What a database library raises -> StoreError with a hint: the one place that translates."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from mlmodelscope.core.errors import StoreError

__all__ = ["translating"]

# A part of SQLite's message -> what the user can do. The first that occurs counts.
_HINTS = (
    ("not a database", "another file is in the way: move it elsewhere, or set MLMODELSCOPE_HOME to another folder"),
    ("malformed", "the file is damaged: restore it from a backup, or move it elsewhere to start with an empty one"),
    ("locked", "another process has been writing for too long: end it, then try again"),
    ("readonly", "make the file and its folder writable, or set MLMODELSCOPE_HOME to a folder that can be written"),
    ("unable to open", "make the folder writable, or set MLMODELSCOPE_HOME to a folder that can be written"),
    ("full", "free some space on the disk, then try again"),
    ("disk i/o", "check the disk and its free space, then try again"),
)
_OS_HINT = "set MLMODELSCOPE_HOME to a folder that can be written"


@contextmanager
def translating(place: str) -> Iterator[None]:
    """`place` is the file or the URL without credentials, as messages name it. Mistakes in our own SQL propagate."""
    try:
        yield
    except (sa.exc.OperationalError, sa.exc.DatabaseError) as error:
        if isinstance(error, sa.exc.ProgrammingError | sa.exc.IntegrityError | sa.exc.DataError):
            raise
        raise _store_error(place, str(error.orig or error)) from error
    except sqlite3.DatabaseError as error:
        raise _store_error(place, str(error)) from error
    except OSError as error:
        raise StoreError(
            f"the evaluation database {place} cannot be used: {error.strerror or error}", hint=_OS_HINT, place=place
        ) from error


def _store_error(place: str, reason: str) -> StoreError:
    hint = next((hint for part, hint in _HINTS if part in reason.lower()), None)
    return StoreError(
        f"the evaluation database {place} cannot be used: {reason}", hint=hint, place=place, reason=reason
    )
