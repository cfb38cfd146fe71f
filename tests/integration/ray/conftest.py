"""One local Ray cluster of three hosts for all tests here, and helpers that drive gangs on it."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from phalanx.adapters.clock import SystemClock
from phalanx.adapters.ray.executor import RayExecutor, connect
from phalanx.adapters.ray.local_cluster import LocalCluster
from phalanx.adapters.ray.waits import Waits
from phalanx.adapters.reconcile import events_of, reconcile
from phalanx.model.event import Event, GangExited, GangReleased, GangStartFailed
from phalanx.model.host import Gpu, Host
from phalanx.model.ids import HostId, JobId, SiteId, TeamId
from phalanx.model.intent import GangPhase, Intent, ObservedGang, Want
from phalanx.model.job import Command, Job, KeyValue, Role, WorkerRequest
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.topology import TopologyPath

SITE = SiteId("lab")
WAITS = Waits(reserve_s=2, answer_s=3, launch_s=30, silent_s=15, settle_s=2, overdue_s=5)
_numbers = itertools.count(1)


def fleet(count: int = 3) -> tuple[Host, ...]:
    return tuple(
        Host(
            id=HostId(f"h{number}"),
            path=TopologyPath(site=SITE),
            gpus=tuple(Gpu(index=index, gpu_type="H100", memory_mib=81_920) for index in range(4)),
            cpu_milli=16_000,
            memory_mib=65_536,
        )
        for number in range(count)
    )


@pytest.fixture(scope="session")
def hosts() -> tuple[Host, ...]:
    return fleet()


@pytest.fixture(scope="session")
def cluster(hosts: tuple[Host, ...]) -> Iterator[LocalCluster]:
    # Ray notices a dead host after 15 s by default.
    settings = {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "4"}
    cluster = LocalCluster(hosts, settings=settings)
    yield cluster
    cluster.stop()


@pytest.fixture
def make_intent() -> Callable[..., Intent]:
    """An attempt of a fresh job: `spots` are (host number, cards) by rank, `script` is what each rank runs."""

    def make(
        spots: list[tuple[int, tuple[int, ...]]],
        script: str,
        *,
        gpu_milli: int | None = None,
        grace_s: int = 5,
        env: tuple[KeyValue, ...] = (),
        job: str | None = None,
        attempt: int = 1,
    ) -> Intent:
        cards = len(spots[0][1])
        request = WorkerRequest(
            gpu_milli=1000 * cards if gpu_milli is None else gpu_milli, cpu_milli=500, memory_mib=64
        )
        command = Command(argv=(sys.executable, "-S", "-c", script), env=env)
        return Intent(
            job=Job(
                id=JobId(job or f"job{next(_numbers)}"),
                team=TeamId("t"),
                roles=(Role(name="worker", count=len(spots), request=request),),
                command=command,
            ),
            attempt=attempt,
            site=SITE,
            term=1,
            want=Want.RUN,
            grace_s=grace_s,
            placement=Placement(
                workers=tuple(
                    WorkerPlacement(role="worker", index=index, host=HostId(f"h{host}"), gpus=gpus)
                    for index, (host, gpus) in enumerate(spots)
                )
            ),
        )

    return make


@dataclass
class Driver:
    """An adapter's loop without a store: the intents are a list, the events are kept."""

    executor: RayExecutor
    intents: list[Intent] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    mirror: Path | None = None

    def step(self) -> None:
        observation = self.executor.observe()
        if self.mirror is not None:
            self.executor.mirror_logs(self.mirror)
        self._take(events_of(self.intents, observation, 0))
        for instruction in reconcile(self.intents, observation):
            self._take(self.executor.apply(instruction))

    def until(self, done: Callable[[], object], limit_s: float = 40) -> None:
        deadline = time.monotonic() + limit_s
        while not done():
            assert time.monotonic() < deadline, f"not reached: {self.events}, {self.executor.observe()}"
            self.step()
            time.sleep(0.03)

    def run(self, intent: Intent) -> None:
        self.intents.append(intent)
        self.until(lambda: self.phase(intent) in {GangPhase.RUNNING, GangPhase.EXITED})

    def finish(self, intent: Intent) -> None:
        """Runs the attempt to its release."""
        if intent not in self.intents:
            self.intents.append(intent)
        self.until(lambda: self.told(intent, GangReleased))

    def stop(self, intent: Intent, grace_s: int | None = None) -> None:
        at = self.intents.index(intent)
        self.intents[at] = replace(intent, want=Want.STOP, grace_s=intent.grace_s if grace_s is None else grace_s)

    def gang(self, intent: Intent) -> ObservedGang | None:
        key = (intent.job.id, intent.attempt)
        return next((g for g in self.executor.observe().gangs if (g.job, g.attempt) == key), None)

    def phase(self, intent: Intent) -> GangPhase | None:
        gang = self.gang(intent)
        return gang.phase if gang else None

    def told(self, intent: Intent, kind: type) -> object:
        key = (intent.job.id, intent.attempt)
        return next((e for e in self.events if isinstance(e, kind) and (e.job, e.attempt) == key), None)

    def _take(self, events: tuple[Event, ...]) -> None:
        known = {event.id for event in self.events}
        for event in events:
            if event.id not in known:
                self.events.append(event)
            if isinstance(event, GangExited | GangStartFailed):
                self._want_stop(event)
            if isinstance(event, GangReleased):
                self.intents = [i for i in self.intents if (i.job.id, i.attempt) != (event.job, event.attempt)]

    def _want_stop(self, event: GangExited | GangStartFailed) -> None:
        self.intents = [
            replace(i, want=Want.STOP) if (i.job.id, i.attempt) == (event.job, event.attempt) else i
            for i in self.intents
        ]


@pytest.fixture
def executor(cluster: LocalCluster, tmp_path: Path) -> Iterator[RayExecutor]:
    executor = connect(cluster.address, SITE, "test", data=tmp_path, clock=SystemClock(), waits=WAITS)
    executor.lead(1)
    yield executor
    executor.close()


@pytest.fixture
def driver(executor: RayExecutor) -> Iterator[Driver]:
    driver = Driver(executor)
    yield driver
    # Whatever the test left is swept as an orphan, so that the next one finds the hosts free.
    driver.intents.clear()
    driver.until(lambda: not executor.observe().gangs)
