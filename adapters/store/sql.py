"""The store on SQLite or Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine

from ...model.policy import Policy
from ...model.snapshot import Snapshot
from .books import Books
from .core import BookStore, Retention
from .database import open_engine, reading, writing
from .migrate import upgrade
from .packing import pack
from .sql_fleet import SqlFleetBooks
from .sql_jobs import SqlJobBooks
from .sql_log import SqlLogBooks


class SqlStore(BookStore):
    """The durable store; several processes may use one database at once."""

    def __init__(self, engine: Engine, policy: Policy | None = None, retention: Retention | None = None) -> None:
        super().__init__(_SqlLibrary(engine), policy or Policy(), retention)
        self.engine = engine


def open_store(url: str, policy: Policy | None = None, retention: Retention | None = None) -> SqlStore:
    """Opens the database of that address and brings its schema up to date.

    `url`: "sqlite:////var/lib/phalanx/phalanx.db" or "postgresql://user:password@host/name". Raises InvalidInput for
    another address, StoreUnavailable where the database does not answer or is newer than this program.
    """
    engine = open_engine(url)
    try:
        upgrade(engine)
    except BaseException:
        engine.dispose()
        raise
    return SqlStore(engine, policy, retention)


class _SqlBooks(SqlJobBooks, SqlFleetBooks, SqlLogBooks):
    """All rows, over one connection."""


class _SqlLibrary:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextmanager
    def read(self) -> Iterator[Books]:
        with reading(self._engine) as connection:
            yield _SqlBooks(connection)

    @contextmanager
    def write(self) -> Iterator[Books]:
        with writing(self._engine) as connection:
            yield _SqlBooks(connection)

    def pack(self, snapshot: Snapshot) -> bytes:
        return pack(snapshot)

    def close(self) -> None:
        self._engine.dispose()
