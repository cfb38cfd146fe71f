"""The scheduler dies before and after every call to the store, through a launch and a stop; nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.adapters.fakes.executor import FakeExecutor, Script
from phalanx.adapters.ray.process import run_adapter
from phalanx.adapters.store.sql import SqlStore, open_store
from phalanx.api.loop import LEASE
from phalanx.api.round import run_round
from phalanx.model.ids import JobId, TeamId
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy
from phalanx.model.team import Team
from phalanx.model.topology import Site

CALLS = {"acquire", "sweep", "snapshot", "commit", "record_round"}
JOB = JobId("gang")


class Killed(BaseException):
    """The process is gone."""


class Mortal:
    """A store as one scheduler process sees it: the process dies at point `n` of its calls (0: it lives)."""

    def __init__(self, inner: SqlStore, left: int) -> None:
        self._inner = inner
        self.left = left

    def __getattr__(self, name: str) -> object:
        method = getattr(self._inner, name)
        if name not in CALLS:
            return method

        def wrapped(*arguments: object, **named: object) -> object:
            self._point()
            result = method(*arguments, **named)
            self._point()
            return result

        return wrapped

    def _point(self) -> None:
        if self.left:
            self.left -= 1
            if self.left == 0:
                raise Killed


class Installation:
    """A database on disk, one site with its adapter, and scheduler processes that come and go."""

    def __init__(self, world: object, path: Path, script: Script) -> None:
        self.clock = world.clock
        self.store = open_store(f"sqlite:///{path}")
        self.store.put_sites([Site(id=world.hosts[0].path.site)])
        self.store.put_teams([Team(id=TeamId("t"))])
        for host in world.hosts:
            self.store.put_host(host, now_s=self.clock.now_s())
        self.executor = FakeExecutor(self.clock, world.hosts, lambda _intent: script)
        self.job = world.gang(JOB)
        self.lives = 0
        self.terms: list[int] = []

    def schedule(self, mortal: Mortal) -> None:
        """One round of the scheduler that is alive; a dead one is followed by a new process with a new name."""
        try:
            lease = mortal.acquire(LEASE, f"scheduler-{self.lives}", ttl_s=3, now_s=self.clock.now_s())
            if lease is not None:
                self.terms.append(lease.term)
                run_round(mortal, Policy(), self.clock, lease.term)
        except Killed:
            self.lives += 1

    def drive(self) -> None:
        """The adapter of the site runs for a second."""
        until = self.clock.now_s() + 1
        run_adapter(
            site=self.store.hosts()[0].path.site,
            store=self.store,
            executor=self.executor,
            clock=self.clock,
            holder="adapter",
            log_dir=Path("/nonexistent"),
            stop=lambda: self.clock.now_s() >= until,
        )


@pytest.fixture
def install(world, tmp_path: Path) -> Iterator[object]:
    made: list[Installation] = []

    def make(number: int, script: Script) -> Installation:
        made.append(Installation(world, tmp_path / f"{number}.db", script))
        return made[-1]

    yield make
    for installation in made:
        installation.store.close()


@pytest.mark.parametrize(
    ("script", "cancel", "end"),
    [(Script(run_s=3), False, JobState.SUCCEEDED), (Script(run_s=None), True, JobState.CANCELLED)],
)
def test_at_every_point(install, script: Script, cancel: bool, end: JobState) -> None:
    point, died = 0, True
    while died:
        point += 1
        installation = install(point, script)
        mortal = Mortal(installation.store, point)
        for second in range(40):
            if second == 1:
                installation.store.submit(installation.job, now_s=installation.clock.now_s(), client_key="k")
            installation.schedule(mortal)
            installation.drive()
            state = installation.store.job(JOB).state if second else JobState.QUEUED
            if cancel and state is JobState.RUNNING:
                installation.store.cancel(JOB, now_s=installation.clock.now_s())
            if state.ended:
                break
        died = installation.lives > 0
        record = installation.store.job(JOB)
        assert record.state is end, f"point {point}: {record}"
        assert record.attempt == 1
        assert installation.executor.launches == {(JOB, 1, rank): 1 for rank in range(2)}
        assert installation.executor.observe().gangs == ()
        assert installation.store.intents(installation.store.hosts()[0].path.site) == ()
        assert installation.terms == sorted(installation.terms)
    assert point > 20, "a launch and a stop take many calls"
