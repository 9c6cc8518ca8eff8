"""A folder -> the store in it: one SQLite file, created and brought up to date where that is needed."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

from mlmodelscope.core.errors import UsageError
from mlmodelscope.core.storage import StorageItem
from mlmodelscope.store.failures import translating
from mlmodelscope.store.identity import private_names
from mlmodelscope.store.sql import WRITES, SqlStore
from mlmodelscope.store.upgrade import is_current, schema_number, upgrade

__all__ = ["DATABASE_NAME", "SqliteStore", "backup_path"]

DATABASE_NAME = "mlmodelscope.db"
# How long one writer waits for the others; each holds the database for milliseconds.
_PATIENCE_SECONDS = 30
# The file in which users of one database meet cannot be made.
_NO_ROOM_TO_SHARE = (sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_IOERR_SHMOPEN)


class SqliteStore(SqlStore):
    """The store in `home`: mlmodelscope.db and the folder artifacts. `url` names another file, as sqlite:///path.

    Opening a current database asks for its schema number and no more. A new one is created; an older one is copied to
    `backup_path` first and then upgraded, all or nothing.
    """

    def __init__(self, home: Path, url: str | None = None) -> None:
        path = home / DATABASE_NAME if url is None else _path_of(url)
        place = str(path)
        with translating(place):
            engine = _opened(path)
        super().__init__(engine, place, home / "artifacts", private_names())
        self._path = path

    def _database_items(self) -> list[StorageItem]:
        found = []
        for path in sorted(self._path.parent.glob(f"{self._path.name}*")):
            with suppress(FileNotFoundError):
                facts = path.stat()
                found.append(StorageItem("database", str(path), path.name, facts.st_size, facts.st_mtime, True))
        return found


def backup_path(path: Path, number: str) -> Path:
    """Where the copy of a database is kept that was made before it was upgraded from that schema number."""
    return path.with_name(f"{path.name}.schema-{number}.backup")


def _path_of(url: str) -> Path:
    database = sa.make_url(url).database
    if not database or database == ":memory:":
        raise UsageError(f"{url!r} names no file", hint="write it like sqlite:////data/evaluations.db", url=url)
    return Path(database).absolute()


def _opened(path: Path) -> sa.Engine:
    """An engine whose database has the current schema."""
    try:
        return _prepared(_engine(path), path)
    except sa.exc.OperationalError as error:
        if getattr(error.orig, "sqlite_errorcode", None) not in _NO_ROOM_TO_SHARE:
            raise
        # what is stored can be read, and what nobody needs can be pruned, while no byte more fits on the disk
        return _prepared(_engine(path, is_shared=False), path)


def _prepared(engine: sa.Engine, path: Path) -> sa.Engine:
    try:
        _prepare(engine, path)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _is_frozen(path: Path) -> bool:
    """Whether nothing can change the file, on a file system that is read-only; what lies in a log beside it would have
    to be written into it first."""
    log = path.with_name(f"{path.name}-wal")
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY) and not (log.exists() and log.stat().st_size)
    except OSError:
        return False


def _url(path: Path) -> sa.URL:
    if _is_frozen(path):
        # SQLite could not make the files beside the database by which its users share it
        return sa.URL.create("sqlite", database=path.as_uri(), query={"immutable": "1", "uri": "true"})
    return sa.URL.create("sqlite", database=str(path))


def _engine(path: Path, *, is_shared: bool = True) -> sa.Engine:
    """`is_shared`: other processes may use the database too, for which SQLite needs a small file beside it."""
    engine = sa.create_engine(_url(path), connect_args={"timeout": _PATIENCE_SECONDS})

    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _record: object) -> None:
        # transactions begin where we say so, and tables are made inside them
        connection.isolation_level = None
        if not is_shared:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        # FULL: a commit is on the disk before it is reported; in WAL mode the lesser settings lose the last ones
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        # a writer takes its turn at once: one that reads first and then writes could be refused without waiting
        is_writing = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")

    return engine


def _prepare(engine: sa.Engine, path: Path) -> None:
    if path.exists():
        with engine.begin() as connection:
            number = schema_number(connection)
        if is_current(number, str(path)):
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path), _in_wal_mode(engine).execution_options(**{WRITES: True}).begin() as connection:
        number = schema_number(connection)
        if is_current(number, str(path)):
            return
        if number is not None:
            _back_up(path, backup_path(path, number))
        upgrade(connection)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Waits until no other process creates or upgrades the database. SQLite does not wait when the mode changes."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _in_wal_mode(engine: sa.Engine) -> sa.Engine:
    """Readers and the writer do not wait for each other in this mode; the file remembers it."""
    with closing(engine.raw_connection()) as connection:
        connection.cursor().execute("PRAGMA journal_mode=WAL")
    return engine


def _back_up(path: Path, copy: Path) -> None:
    unfinished = copy.with_name(f"{copy.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(unfinished)) as target:
        source.backup(target)
    unfinished.replace(copy)
