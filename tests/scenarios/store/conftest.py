"""The scenarios use the world and the backends of tests/integration/store."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "integration" / "store"))

from store_backends import backend, database, empty_postgres, postgres_database, postgres_server, sqlite_template
from store_world import World

__all__ = ["backend", "database", "empty_postgres", "postgres_database", "postgres_server", "sqlite_template"]


@pytest.fixture
def store(backend):
    return backend.open()


@pytest.fixture
def world(store):
    return World(store)
