"""Opening databases: migrations build what tables.py says, by one process at a time; clear words for what cannot be."""

from __future__ import annotations

import sqlite3
import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text
from store_world import World

from phalanx.adapters.store import tables
from phalanx.adapters.store.database import open_engine, writing
from phalanx.adapters.store.migrate import config
from phalanx.adapters.store.sql import open_store
from phalanx.model.errors import InvalidInput, StoreUnavailable
from phalanx.model.job import KeyValue


def test_migrations_build_the_schema_of_the_tables(database) -> None:
    store = database.open()
    with store.engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True, "render_as_batch": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), tables.metadata) == []
        found = inspect(connection)
        for table in tables.metadata.sorted_tables:
            keys = {frozenset(key["constrained_columns"]) for key in found.get_foreign_keys(table.name)}
            assert keys == {frozenset(key.column_keys) for key in table.foreign_key_constraints}
            assert found.get_pk_constraint(table.name)["constrained_columns"] == list(table.primary_key.columns.keys())


def test_the_first_migration_can_be_taken_back_and_applied_again(tmp_path) -> None:
    from alembic import command

    store = open_store(f"sqlite:///{tmp_path}/p.db")
    with store.engine.connect().execution_options(phalanx_writes=True) as connection, connection.begin():
        command.downgrade(config(connection), "base")
        assert inspect(connection).get_table_names() == ["alembic_version"]
    store.close()
    store = open_store(f"sqlite:///{tmp_path}/p.db")
    assert World(store).submit("j1").version == 1
    store.close()


def test_a_database_of_a_newer_version_is_refused(database) -> None:
    store = database.open()
    with store.engine.connect().execution_options(phalanx_writes=True) as connection, connection.begin():
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    try:
        with pytest.raises(
            StoreUnavailable, match=r"schema '9999', which this program does not know.*newest schema known"
        ):
            database.open()
    finally:
        with store.engine.connect().execution_options(phalanx_writes=True) as connection, connection.begin():
            connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))


def _open_at_once(url: str, number: int = 4) -> list[BaseException]:
    faults: list[BaseException] = []
    gate = threading.Barrier(number)

    def start() -> None:
        gate.wait()
        try:
            open_store(url).close()
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=start) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return faults


def test_several_may_open_an_empty_sqlite_file_at_once(tmp_path) -> None:
    assert _open_at_once(f"sqlite:///{tmp_path}/new/folder/p.db") == []


@pytest.mark.postgres
def test_several_may_open_an_empty_postgres_at_once(empty_postgres) -> None:
    assert _open_at_once(empty_postgres) == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nonsense", "store: the address of the database cannot be read; expected sqlite:"),
        ("mysql://u:secret@h/d", "store: 'mysql' is not a database that Phalanx can use"),
        ("sqlite://", "store: a SQLite store needs a file"),
    ],
)
def test_an_address_that_cannot_be_used_says_what_can(url: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        open_store(url)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_postgres_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(StoreUnavailable) as caught:
        open_store("postgresql://phalanx:secret@127.0.0.1:1/phalanx")
    assert "postgresql+psycopg://phalanx:***@127.0.0.1:1/phalanx cannot be used" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database_is_named(tmp_path) -> None:
    (tmp_path / "p.db").write_text("a letter to my grandmother, long enough to be read as a page" * 100)
    with pytest.raises(StoreUnavailable, match=r"p\.db cannot be used: file is not a database"):
        open_store(f"sqlite:///{tmp_path}/p.db")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match=r"the database .*file/p\.db cannot be made"):
        open_store(f"sqlite:///{tmp_path}/file/p.db")


def test_sqlite_runs_as_a_service_needs_it(tmp_path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/p.db")
    with engine.connect() as connection:
        asked = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "foreign_keys")
        }
    engine.dispose()
    assert asked == {"journal_mode": "wal", "foreign_keys": 1}


def test_a_full_disk_loses_nothing_that_was_told(tmp_path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/p.db")
    world = World(store)
    with store.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 3}")
    told = []

    def fill() -> None:
        for number in range(1000):
            world.submit(f"j{number}", labels=(KeyValue(key="note", value="x" * 500),))
            told.append(f"j{number}")

    with pytest.raises(StoreUnavailable, match="full"):
        fill()
    assert told
    assert [record.id for record in reversed(store.jobs(limit=1000).jobs)] == told
    with store.engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 1000}")
    world.submit(f"j{len(told)}")
    store.close()


def test_a_database_that_stays_locked_is_an_error_in_words(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("phalanx.adapters.store.database.BUSY_TIMEOUT_S", 0)
    store = open_store(f"sqlite:///{tmp_path}/p.db")
    world = World(store)
    other = sqlite3.connect(tmp_path / "p.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="database is locked"):
        world.submit("j1")
    assert store.jobs().jobs == ()
    other.execute("ROLLBACK")
    other.close()
    world.submit("j1")
    store.close()


@pytest.mark.postgres
def test_lost_connections_to_postgres_are_replaced(empty_postgres) -> None:
    store, admin = open_store(empty_postgres), open_engine(empty_postgres)
    world = World(store)
    with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        connection.execute(text(f"{others} AND pid <> pg_backend_pid()"))
    assert world.submit("j1").version == 1
    store.close()
    admin.dispose()


@pytest.mark.postgres
def test_a_writer_that_hangs_does_not_stop_the_others_for_ever(empty_postgres, monkeypatch) -> None:
    monkeypatch.setattr("phalanx.adapters.store.database.BUSY_TIMEOUT_S", 1)
    store = open_store(empty_postgres)
    world = World(store)
    with writing(store.engine), pytest.raises(StoreUnavailable, match="lock timeout"):
        world.submit("j1")
    assert world.submit("j1").version == 1
    store.close()


def test_a_sqlite_store_is_read_by_its_owner_only(tmp_path) -> None:
    """Jobs carry environment variables, and people put secrets there."""
    store = open_store(f"sqlite:///{tmp_path}/p.db")
    World(store)
    assert {path.name: path.stat().st_mode & 0o077 for path in tmp_path.glob("p.db*") if path.suffix != ".lock"} == {
        "p.db": 0,
        "p.db-wal": 0,
        "p.db-shm": 0,
    }
    store.close()
