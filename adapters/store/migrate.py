"""Bringing a database's schema up to date, by one process at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from ...model.errors import StoreUnavailable
from .database import unavailable

MIGRATIONS = Path(__file__).parent / "migrations"
MIGRATORS = 0x5048_4C59
"""The key of the advisory lock that is held on Postgres while a schema is changed."""


def upgrade(engine: Engine) -> None:
    """Applies the missing migrations. Raises StoreUnavailable."""
    try:
        with _alone(engine), engine.connect().execution_options(phalanx_writes=True) as connection, connection.begin():
            if engine.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATORS})
            _upgrade(engine, connection)
    except SQLAlchemyError as error:
        raise unavailable(engine.url, error) from error
    except OSError as error:
        raise StoreUnavailable(f"{error.filename or engine.url.database} cannot be used: {error.strerror}") from error


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration; migrations run on the connection given."""
    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS))
    made.set_main_option("path_separator", "os")
    made.attributes["connection"] = connection
    return made


def _upgrade(engine: Engine, connection: Connection) -> None:
    alembic = config(connection)
    scripts = ScriptDirectory.from_config(alembic)
    known = {script.revision for script in scripts.walk_revisions()}
    found = MigrationContext.configure(connection).get_current_revision()
    if found is not None and found not in known:
        raise StoreUnavailable(
            f"the database {engine.url.render_as_string()} has schema {found!r}, which this program does not know; it "
            f"was opened by a newer Phalanx: install that version, or name another database (newest schema known here: "
            f"{scripts.get_current_head()!r})"
        )
    if found != scripts.get_current_head():
        command.upgrade(alembic, "head")


@contextmanager
def _alone(engine: Engine) -> Iterator[None]:
    if engine.dialect.name != "sqlite":
        yield
        return
    with Path(f"{engine.url.database}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
