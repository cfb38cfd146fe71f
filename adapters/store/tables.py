"""The tables. Migrations build the same schema (tests compare the two).

Documents are the domain's JSON (`model.codec`); columns beside them are what queries and commits ask for, and hold
what the documents leave out, so that nothing stands twice.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite counts rows up by itself only in a column of exactly the type INTEGER.
Number = BigInteger().with_variant(Integer, "sqlite")
Name = String(127)

jobs = Table(
    "jobs",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=True),
    Column("id", Name, nullable=False, unique=True),
    Column("team", Name, nullable=False),
    Column("state", String(16), nullable=False),
    Column("submitted_s", BigInteger, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    Column("standing", Text, nullable=False),
    Index("ix_jobs_state", "state"),
    Index("ix_jobs_team", "team", "number"),
)

client_keys = Table(
    "client_keys",
    metadata,
    Column("key", String(200), primary_key=True),
    Column("job", Name, ForeignKey("jobs.id"), nullable=False),
    Column("document", Text, nullable=False),
)

intents = Table(
    "intents",
    metadata,
    Column("job", Name, ForeignKey("jobs.id"), primary_key=True),
    Column("attempt", BigInteger, nullable=False),
    Column("site", Name, nullable=False),
    Column("created_s", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("start_by_s", BigInteger, nullable=False),
)

reservations = Table(
    "reservations",
    metadata,
    Column("id", Name, primary_key=True),
    Column("job", Name, ForeignKey("jobs.id"), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
)

sites = Table(
    "sites",
    metadata,
    Column("id", Name, primary_key=True),
    Column("document", Text, nullable=False),
)

links = Table(
    "links",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False),
)

hosts = Table(
    "hosts",
    metadata,
    Column("id", Name, primary_key=True),
    Column("site", Name, ForeignKey("sites.id"), nullable=False),
    Column("state", String(16), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    Column("ordered", String(16), nullable=False),
    Column("ordered_cause", Text, nullable=False),
    Column("reported_s", BigInteger, nullable=False),
)

teams = Table(
    "teams",
    metadata,
    Column("id", Name, primary_key=True),
    Column("document", Text, nullable=False),
    Column("usage_at_s", BigInteger),
)

events = Table(
    "events",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=True),
    Column("at_s", BigInteger, nullable=False),
    Column("kind", String(40), nullable=False),
    Column("subject", String(140), nullable=False),
    Column("document", Text, nullable=False),
    Column("event_id", Text, unique=True),
    Index("ix_events_subject", "subject", "number"),
    # A number must never be given twice, even when the log's tail has been dropped.
    sqlite_autoincrement=True,
)

leases = Table(
    "leases",
    metadata,
    Column("name", Name, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("expires_s", BigInteger, nullable=False),
)

rounds = Table(
    "rounds",
    metadata,
    Column("number", Number, primary_key=True, autoincrement=False),
    Column("at_s", BigInteger, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("decision", Text, nullable=False),
    Column("times", Text, nullable=False),
    Column("violations", Text, nullable=False),
    Column("snapshot", LargeBinary),
)
"""`snapshot` is zlib-compressed JSON."""
