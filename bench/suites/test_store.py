"""How long the stores take: a snapshot, and a round's worth of submissions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.adapters.fakes.memory_store import MemoryStore
from phalanx.adapters.store.sql import open_store
from phalanx.bench.suites.worlds import NOW_S, world
from phalanx.model.job_state import JobState

HOSTS, WAITING = 256, 200


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Each store with a fleet in it."""
    made = MemoryStore() if request.param == "memory" else open_store(f"sqlite:///{tmp_path / 'store.db'}")
    snapshot = world(HOSTS, WAITING)
    made.put_sites(snapshot.sites)
    made.put_teams(snapshot.teams)
    for host in snapshot.hosts:
        made.put_host(host, now_s=0)
    yield made
    made.close()


def _queued() -> list[Any]:
    return [record.job for record in world(HOSTS, WAITING).jobs if record.state is JobState.QUEUED]


@pytest.mark.benchmark(group="store: snapshot, 256 hosts, 200 jobs")
def test_snapshot(benchmark: Any, store: Any) -> None:
    """What every round begins with."""
    for job in _queued():
        store.submit(job, now_s=NOW_S)
    assert len(benchmark(store.snapshot, NOW_S).jobs) == WAITING


@pytest.mark.benchmark(group="store: 200 submissions")
def test_submit(benchmark: Any, store: Any) -> None:
    """Submissions one by one, each a transaction."""
    jobs = _queued()

    def submit() -> int:
        return sum(store.submit(job, now_s=NOW_S).created for job in jobs)

    assert benchmark.pedantic(submit, rounds=1) == WAITING
