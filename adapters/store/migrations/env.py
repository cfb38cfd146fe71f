"""Runs migrations on the connection that `adapters.store.migrate` gives."""

from __future__ import annotations

from alembic import context

from phalanx.adapters.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
