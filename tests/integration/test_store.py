"""The SQLite store as a real file: creation, upgrade, damage, several processes, and death at any moment."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from mlmodelscope.core.errors import StoreError, UnknownNameError, UsageError
from mlmodelscope.core.store import HistoryQuery
from mlmodelscope.store import open_store, upgrade
from mlmodelscope.store.schema import SCHEMA, metadata
from mlmodelscope.store.sqlite import DATABASE_NAME, SqliteStore, backup_path
from mlmodelscope.testing.records import example_record

SCHEMA_0001 = Path(__file__).parent / "store_schema_0001.sql"
FIRST_RECORD = "01kn2wvs000123456789abcdef"


def schema_of(path):
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE tbl_name NOT LIKE 'alembic%'")
        return {name: " ".join((sql or "").split()) for name, sql in found}


def number_of(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT version_num FROM alembic_version").fetchone()[0]


def run(program, *arguments, **options):
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


@pytest.fixture
def database_0001(tmp_path):
    """A database as schema 0001 left it, with one record."""
    path = tmp_path / DATABASE_NAME
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA_0001.read_text(encoding="utf-8"))
    return path


@pytest.fixture
def newer_version(tmp_path, monkeypatch):
    """As if this were a version of ours that knows a further migration; returns a function of its code."""

    def pretend(code):
        folder = tmp_path / "migrations"
        shutil.copytree(upgrade.MIGRATIONS, folder)
        number = f"{int(SCHEMA) + 1:04}"
        header = f"import sqlalchemy as sa\nfrom alembic import op\nrevision = '{number}'\ndown_revision = '{SCHEMA}'\n"
        (folder / "versions" / f"m{number}_more.py").write_text(f"{header}def upgrade():\n    {code}\n")
        monkeypatch.setattr(upgrade, "MIGRATIONS", folder)
        monkeypatch.setattr(upgrade, "SCHEMA", number)
        return number

    return pretend


def test_a_new_database_has_the_schema_of_the_tables(tmp_path):
    SqliteStore(tmp_path / "deep" / "home").close()
    expected = sa.create_engine(f"sqlite:///{tmp_path / 'expected.db'}")
    metadata.create_all(expected)
    expected.dispose()
    made = tmp_path / "deep" / "home" / DATABASE_NAME
    assert schema_of(made) == schema_of(tmp_path / "expected.db")
    assert number_of(made) == SCHEMA


def test_the_schema_number_is_that_of_the_newest_migration():
    from alembic.script import ScriptDirectory

    assert ScriptDirectory(str(upgrade.MIGRATIONS)).get_current_head() == SCHEMA


def test_a_database_of_schema_0001_is_brought_up_to_date(database_0001, tmp_path):
    with closing(SqliteStore(tmp_path)) as store:
        assert store.get(FIRST_RECORD).model.name == "TinyNet"
        assert [row.id for row in store.history(HistoryQuery(model="TinyNet")).rows] == [FIRST_RECORD]
    SqliteStore(tmp_path / "new").close()
    assert schema_of(database_0001) == schema_of(tmp_path / "new" / DATABASE_NAME)


def test_an_upgrade_keeps_the_records_and_a_copy_of_the_old_database(tmp_path, newer_version):
    with closing(SqliteStore(tmp_path)) as store:
        record = store.add(example_record())
    number = newer_version("op.add_column('records', sa.Column('note', sa.Text))")
    path = tmp_path / DATABASE_NAME
    with closing(SqliteStore(tmp_path)) as store:
        assert store.get(record.id) == record
    assert (number_of(path), number_of(backup_path(path, SCHEMA))) == (number, SCHEMA)
    assert "note" in schema_of(path)["records"]
    assert "note" not in schema_of(backup_path(path, SCHEMA))["records"]


def test_an_upgrade_that_fails_changes_nothing(tmp_path, newer_version, monkeypatch):
    with closing(SqliteStore(tmp_path)) as store:
        record = store.add(example_record())
    path = tmp_path / DATABASE_NAME
    before = schema_of(path)
    newer_version("op.add_column('records', sa.Column('note', sa.Text)); op.execute('SELECT nonsense FROM nowhere')")
    with pytest.raises(StoreError, match="nowhere"):
        SqliteStore(tmp_path)
    monkeypatch.undo()
    assert (schema_of(path), number_of(path)) == (before, SCHEMA)
    with closing(SqliteStore(tmp_path)) as store:
        assert store.get(record.id) == record


def test_a_newer_database_is_refused_with_both_numbers(tmp_path):
    SqliteStore(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreError, match=f"schema 9999.* up to {SCHEMA}") as caught:
        SqliteStore(tmp_path)
    assert "upgrade mlmodelscope" in caught.value.hint


def test_a_current_database_is_opened_with_one_question_and_without_alembic(tmp_path):
    SqliteStore(tmp_path).close()
    program = """
        import sys
        from pathlib import Path
        import sqlalchemy as sa
        from mlmodelscope.store.sqlite import SqliteStore
        asked = []
        sa.event.listen(sa.Engine, "before_cursor_execute", lambda *given: asked.append(given[2].split()[0]))
        SqliteStore(Path(sys.argv[1])).close()
        print(asked.count("SELECT"), "alembic" in sys.modules)
    """
    with run(program, tmp_path) as child:
        assert child.stdout.read().split() == ["1", "False"]


def test_no_database_library_is_loaded_before_a_store_is_opened():
    program = "import sys, mlmodelscope.store\nprint('sqlalchemy' in sys.modules, 'sqlite3' in sys.modules)"
    with run(program) as child:
        assert child.stdout.read().split() == ["False", "False"]


@pytest.mark.parametrize(
    "content, match",
    [(b"this is a text and not a database\n" * 100, "not a database"), (b"\0" * 5000, "not a database")],
)
def test_another_file_in_the_way_is_a_store_error_with_a_hint(tmp_path, content, match):
    path = tmp_path / DATABASE_NAME
    path.write_bytes(content)
    with pytest.raises(StoreError, match=match) as caught:
        SqliteStore(tmp_path)
    assert caught.value.hint
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_left_alone(tmp_path):
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as connection:
        connection.execute("CREATE TABLE photos (id INTEGER)")
    with pytest.raises(StoreError, match="another program: photos"):
        SqliteStore(tmp_path)
    assert set(schema_of(tmp_path / DATABASE_NAME)) == {"photos"}


def test_a_damaged_database_is_a_store_error_with_a_hint(tmp_path):
    with closing(SqliteStore(tmp_path)) as store:
        for _ in range(50):
            store.add(example_record())
    path = tmp_path / DATABASE_NAME
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError) as caught, closing(SqliteStore(tmp_path)) as store:
        store.history(HistoryQuery())
    assert caught.value.hint


def test_a_home_that_is_a_file_is_a_store_error(tmp_path):
    (tmp_path / "home").write_text("")
    with pytest.raises(StoreError) as caught:
        SqliteStore(tmp_path / "home")
    assert "MLMODELSCOPE_HOME" in caught.value.hint


@pytest.fixture
def open_folder():
    """A folder whose parents everybody may pass, unlike those of tmp_path."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


@pytest.mark.parametrize("is_there_already", [True, False])
def test_a_folder_that_cannot_be_written_is_a_store_error(open_folder, is_there_already):
    if is_there_already:
        SqliteStore(open_folder).close()
        (open_folder / DATABASE_NAME).chmod(0o444)
    open_folder.chmod(0o555)
    program = """
        import os, sys
        from pathlib import Path
        from mlmodelscope.core.errors import StoreError
        from mlmodelscope.store.sqlite import SqliteStore
        from mlmodelscope.testing.records import example_record
        if os.getuid() == 0:  # nothing is forbidden to root
            os.setgid(65534)
            os.setuid(65534)
        try:
            SqliteStore(Path(sys.argv[1])).add(example_record())
        except StoreError as error:
            print(error.hint)
    """
    with run(program, open_folder) as child:
        assert "MLMODELSCOPE_HOME" in child.stdout.read()


def test_a_url_names_another_file(tmp_path):
    with closing(open_store(tmp_path / "home", f"sqlite:///{tmp_path / 'other.db'}")) as store:
        record = store.add(example_record())
    with closing(open_store(tmp_path / "home", f"sqlite:///{tmp_path / 'other.db'}")) as store:
        assert store.get(record.id) == record
    assert not (tmp_path / "home" / DATABASE_NAME).exists()


@pytest.mark.parametrize(
    "url, error", [("other.db", UsageError), ("sqlite://", UsageError), ("oracle://host/x", UnknownNameError)]
)
def test_a_url_that_names_no_store_is_the_users_mistake(tmp_path, url, error):
    with pytest.raises(error):
        open_store(tmp_path, url)


def test_a_commit_is_on_the_disk_before_it_is_reported(tmp_path):
    with closing(SqliteStore(tmp_path)) as store, store._engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"


WRITER = """
    import json, sys
    from pathlib import Path
    from mlmodelscope.store.sqlite import SqliteStore
    from mlmodelscope.testing.records import example_record
    store = SqliteStore(Path(sys.argv[1]))
    for index in range(int(sys.argv[2])):
        artifact = store.put_artifact(f"{sys.argv[3]} {index}".encode() * 1000, "numbers", "text/plain")
        print(store.add(example_record(artifacts=(artifact,))).id, flush=True)
"""


def test_processes_write_and_read_at_the_same_time(tmp_path):
    # none of them finds a database, so that creating it is contended too
    writers = [run(WRITER, tmp_path, 25, name) for name in ("one", "two", "three")]
    first = writers[0].stdout.readline().strip()
    with closing(SqliteStore(tmp_path)) as store:
        while any(writer.poll() is None for writer in writers):
            assert first in {row.id for row in store.history(HistoryQuery(), limit=1000).rows}
        reported = {first} | {line.strip() for writer in writers for line in writer.stdout}
        assert [writer.wait() for writer in writers] == [0, 0, 0]
        assert {row.id for row in store.history(HistoryQuery(), limit=1000).rows} == reported
        assert len(reported) == 75
    for writer in writers:
        writer.stdout.close()


@pytest.mark.parametrize("reports", [0, 1, 2, 5, 9])
def test_a_killed_process_loses_nothing_it_reported_and_leaves_nothing_half_done(tmp_path, reports):
    with run(WRITER, tmp_path, 10_000, "victim") as writer:
        reported = [writer.stdout.readline().strip() for _ in range(reports)]
        if reports == 0:
            while not (tmp_path / DATABASE_NAME).exists():
                assert writer.poll() is None
        writer.kill()
        reported += [line.strip() for line in writer.stdout if line.endswith("\n")]
    with closing(SqliteStore(tmp_path)) as store:
        stored = {row.id for row in store.history(HistoryQuery(), limit=1000).rows}
        assert set(reported) <= stored
        for record_id in stored:
            (artifact,) = store.get(record_id).artifacts
            assert store.read_artifact(artifact)
        store.add(example_record())
    with closing(sqlite3.connect(tmp_path / DATABASE_NAME)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        tables = ("records", "documents")
        assert len({connection.execute(f"SELECT count(*) FROM {name}").fetchone() for name in tables}) == 1


def test_the_names_of_this_user_and_machine_are_not_stored(tmp_path):
    program = """
        import sys
        from pathlib import Path
        from mlmodelscope.store.sqlite import SqliteStore
        from mlmodelscope.testing.records import example_manifest, example_model, example_record
        manifest = example_manifest(origin=str(Path.home() / "models" / "a.yml"), base=str(Path.home()))
        stored = SqliteStore(Path(sys.argv[1])).add(example_record(model=example_model(manifest=manifest)))
        print(stored.model.manifest.model_dump_json())
    """
    with run(program, tmp_path, env={**os.environ, "HOME": "/export/people/alice"}) as child:
        manifest = json.loads(child.stdout.read())
    assert (manifest["origin"], manifest["base"]) == ("~/models/a.yml", "~")
