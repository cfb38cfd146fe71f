"""One site on a virtual clock: the store in memory, the executor's fake, and the real adapter process between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.adapters.fakes.clock import VirtualClock
from phalanx.adapters.fakes.executor import FakeExecutor, Script
from phalanx.adapters.fakes.memory_store import MemoryStore
from phalanx.adapters.ray.process import run_adapter
from phalanx.model.decision import Certificate, Decision, Grain, Stage, Start
from phalanx.model.host import Gpu, Host
from phalanx.model.ids import HostId, JobId, SiteId, TeamId
from phalanx.model.job import CheckpointPolicy, Job, Role, WorkerRequest
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.snapshot import JobRecord
from phalanx.model.team import Team
from phalanx.model.topology import Site, TopologyPath

SITE = SiteId("s")


class World:
    """Hosts h0 to h3 with two cards each; jobs are of one worker a spot, with one card each."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1_000)
        self.store = MemoryStore()
        self.scripts: dict[str, Script] = {}
        self.hosts = tuple(
            Host(
                id=HostId(f"h{number}"),
                path=TopologyPath(site=SITE),
                gpus=tuple(Gpu(index=index, gpu_type="H100", memory_mib=80_000) for index in range(2)),
                cpu_milli=64_000,
                memory_mib=64_000,
            )
            for number in range(4)
        )
        self.store.put_sites([Site(id=SITE)])
        self.store.put_teams([Team(id=TeamId("t"))])
        for host in self.hosts:
            self.store.put_host(host, now_s=self.clock.now_s())
        self.executor = FakeExecutor(
            self.clock, self.hosts, lambda intent: self.scripts.get(intent.job.id, Script(run_s=10))
        )
        lease = self.store.acquire("scheduler", "loop", ttl_s=10**6, now_s=self.clock.now_s())
        assert lease is not None
        self.term = lease.term

    def submit(self, name: str, workers: int = 1, script: Script | None = None, grace_s: int = 5) -> None:
        if script is not None:
            self.scripts[name] = script
        job = Job(
            id=JobId(name),
            team=TeamId("t"),
            roles=(Role(count=workers, request=WorkerRequest(gpu_milli=1000, cpu_milli=1000)),),
            checkpoint=CheckpointPolicy(interval_s=60, grace_s=grace_s),
        )
        self.store.submit(job, now_s=self.clock.now_s())

    @staticmethod
    def gang(name: str) -> Job:
        """A gang that needs two whole hosts."""
        role = Role(count=2, request=WorkerRequest(gpu_milli=2000, cpu_milli=1000))
        return Job(id=JobId(name), team=TeamId("t"), roles=(role,))

    def plan(self, name: str, *spots: tuple[str, int]) -> None:
        """Commits a start with each worker on a (host, card)."""
        snapshot = self.store.snapshot(self.clock.now_s())
        workers = tuple(
            WorkerPlacement(role="worker", index=index, host=HostId(host), gpus=(card,))
            for index, (host, card) in enumerate(spots)
        )
        start = Start(job=JobId(name), attempt=self.job(name).attempt + 1, placement=Placement(workers=workers))
        decision = Decision(
            snapshot_version=snapshot.version,
            now_s=snapshot.now_s,
            starts=(start,),
            certificate=Certificate(stage=Stage.GREEDY, grain=Grain.SINGLETONS, budget_ms=0, spent_ms=0, seed=1),
        )
        outcome = self.store.commit(decision, snapshot, term=self.term, now_s=self.clock.now_s())
        assert outcome.committed, outcome

    def start(self, name: str, *spots: tuple[str, int], script: Script | None = None, grace_s: int = 5) -> None:
        self.submit(name, len(spots), script, grace_s)
        self.plan(name, *spots)

    def run(self, seconds: int, *, executor: object = None, store: object = None, holder: str = "a") -> None:
        """The adapter runs for so long."""
        until = self.clock.now_s() + seconds
        run_adapter(
            site=SITE,
            store=store or self.store,
            executor=executor or self.executor,
            clock=self.clock,
            holder=holder,
            log_dir=Path("/nonexistent"),
            stop=lambda: self.clock.now_s() >= until,
        )

    def job(self, name: str) -> JobRecord:
        return self.store.job(JobId(name))

    def state(self, name: str) -> JobState:
        return self.job(name).state

    def host(self, name: str) -> Host:
        return self.store.host(HostId(name))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def new_world() -> Callable[[], World]:
    return World
