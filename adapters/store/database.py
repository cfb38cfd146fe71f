"""Connections to SQLite and Postgres, and their two kinds of transaction.

A writer is alone in the database: commits are short, so that little is lost, and two things hold by construction: what
a transaction has read stays true until it commits, and entries of the log become visible in the order of their numbers
(else a reader that polls from the last number seen would miss some).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from ...model.errors import InvalidInput, StoreUnavailable

BUSY_TIMEOUT_S = 30
WRITERS = 0x5048_4C58
"""The key of the advisory lock that every writer on Postgres takes."""

EXPECTED = "sqlite:////path/to/phalanx.db or postgresql://user:password@host:port/name"


def open_engine(url: str) -> Engine:
    """An engine for the address; the folder of a SQLite file is made. Raises InvalidInput, StoreUnavailable."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise InvalidInput("store", "the address of the database cannot be read", EXPECTED) from None
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _open_sqlite(parsed)
    if backend == "postgresql":
        return _open_postgres(parsed)
    raise InvalidInput("store", f"{backend!r} is not a database that Phalanx can use", EXPECTED)


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees one state of everything. Raises StoreUnavailable."""
    level = {"isolation_level": "REPEATABLE READ"} if engine.dialect.name == "postgresql" else {}
    with _guarded(engine), engine.connect().execution_options(**level) as connection, connection.begin():
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction alone among writers; undone when the block raises. Raises StoreUnavailable."""
    with _guarded(engine), engine.connect().execution_options(phalanx_writes=True) as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": WRITERS})
        yield connection


@contextmanager
def _guarded(engine: Engine) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise unavailable(engine.url, error) from error


def unavailable(url: URL, error: Exception) -> StoreUnavailable:
    """The fault in a sentence, with the address but not its password."""
    cause = str(getattr(error, "orig", None) or error).strip().splitlines()
    return StoreUnavailable(
        f"the database {url.render_as_string()} cannot be used: {cause[0] if cause else type(error).__name__}"
    )


def _open_sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise InvalidInput("store", "a SQLite store needs a file", EXPECTED)
    path = Path(url.database)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # For its owner only: jobs carry environment variables, and people put secrets there.
        path.touch(mode=0o600, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"the database {path} cannot be made: {error.strerror}") from None
    engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, record: object) -> None:
    # The driver's own BEGIN comes too late (before the first write), so transactions are begun by hand.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_TIMEOUT_S * 1000}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("phalanx_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _open_postgres(url: URL) -> Engine:
    try:
        engine = create_engine(url.set(drivername="postgresql+psycopg"), pool_pre_ping=True, pool_size=10)
    except ModuleNotFoundError:
        raise InvalidInput(
            "store", "the Postgres driver is not installed", "pip install 'phalanx[postgres]', or a SQLite address"
        ) from None
    event.listen(engine, "connect", _prepare_postgres)
    return engine


def _prepare_postgres(connection: Any, record: object) -> None:
    # A writer that hangs in the middle must not keep all others waiting for ever.
    connection.execute(f"SET lock_timeout = '{BUSY_TIMEOUT_S}s'")
    connection.execute(f"SET idle_in_transaction_session_timeout = '{2 * BUSY_TIMEOUT_S}s'")
    connection.commit()
