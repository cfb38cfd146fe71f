"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Brings the schema up."""
    op.create_table(
        "events",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at_s", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("subject", sa.String(length=140), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_events"),
        sa.UniqueConstraint("event_id", name="uq_events_event_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_subject", "events", ["subject", "number"])
    op.create_table(
        "jobs",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("id", sa.String(length=127), nullable=False),
        sa.Column("team", sa.String(length=127), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("submitted_s", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("standing", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_jobs"),
        sa.UniqueConstraint("id", name="uq_jobs_id"),
    )
    op.create_index("ix_jobs_state", "jobs", ["state"])
    op.create_index("ix_jobs_team", "jobs", ["team", "number"])
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=127), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("expires_s", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )
    op.create_table(
        "links",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_links"),
    )
    op.create_table(
        "rounds",
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("at_s", sa.BigInteger(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("times", sa.Text(), nullable=False),
        sa.Column("violations", sa.Text(), nullable=False),
        sa.Column("snapshot", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_rounds"),
    )
    op.create_table(
        "sites",
        sa.Column("id", sa.String(length=127), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sites"),
    )
    op.create_table(
        "teams",
        sa.Column("id", sa.String(length=127), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("usage_at_s", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_teams"),
    )
    op.create_table(
        "client_keys",
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("job", sa.String(length=127), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_client_keys_job"),
        sa.PrimaryKeyConstraint("key", name="pk_client_keys"),
    )
    op.create_table(
        "hosts",
        sa.Column("id", sa.String(length=127), nullable=False),
        sa.Column("site", sa.String(length=127), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("ordered", sa.String(length=16), nullable=False),
        sa.Column("ordered_cause", sa.Text(), nullable=False),
        sa.Column("reported_s", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["site"], ["sites.id"], name="fk_hosts_site"),
        sa.PrimaryKeyConstraint("id", name="pk_hosts"),
    )
    op.create_table(
        "intents",
        sa.Column("job", sa.String(length=127), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("site", sa.String(length=127), nullable=False),
        sa.Column("created_s", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("start_by_s", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_intents_job"),
        sa.PrimaryKeyConstraint("job", name="pk_intents"),
    )
    op.create_table(
        "reservations",
        sa.Column("id", sa.String(length=127), nullable=False),
        sa.Column("job", sa.String(length=127), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job"], ["jobs.id"], name="fk_reservations_job"),
        sa.PrimaryKeyConstraint("id", name="pk_reservations"),
    )


def downgrade() -> None:
    """Takes the schema back."""
    op.drop_table("reservations")
    op.drop_table("intents")
    op.drop_table("hosts")
    op.drop_table("client_keys")
    op.drop_table("teams")
    op.drop_table("sites")
    op.drop_table("rounds")
    op.drop_table("links")
    op.drop_table("leases")
    op.drop_table("jobs")
    op.drop_table("events")
