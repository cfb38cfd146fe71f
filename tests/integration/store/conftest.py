"""The tests of the store share a small world and the backends; the scenarios under tests/scenarios/store use them too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from store_backends import backend, database, empty_postgres, postgres_database, postgres_server, sqlite_template
from store_world import World

__all__ = ["backend", "database", "empty_postgres", "postgres_database", "postgres_server", "sqlite_template"]


@pytest.fixture
def store(backend):
    return backend.open()


@pytest.fixture
def world(store):
    return World(store)
