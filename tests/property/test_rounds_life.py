"""Hundreds of rounds of random events over one site: the invariants of every round, and live state = reloaded state.

Arrivals, ends, failures, evictions, silent and lost hosts, cordons, windows, edits of priorities, teams and quotas,
in any order; the production round decides, the adapter carries out, time passes. `PHALANX_TEST_LIVES` asks for more.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from grains import as_large
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from phalanx.adapters.fakes.clock import VirtualClock
from phalanx.adapters.fakes.executor import FakeExecutor, Script
from phalanx.adapters.fakes.memory_store import MemoryStore
from phalanx.adapters.ports import RoundRecord
from phalanx.adapters.ray.process import run_adapter
from phalanx.api.round import run_round
from phalanx.model.codec import dumps, loads
from phalanx.model.decision import Decision
from phalanx.model.errors import PhalanxError
from phalanx.model.event import HostChanged
from phalanx.model.host import MILLI, Gpu, Host, HostState, Window
from phalanx.model.ids import HostId, JobId, SiteId, TeamId
from phalanx.model.job import AntiAffinity, CheckpointPolicy, DatasetRef, Elastic, Job, Preemptible, Role, WorkerRequest
from phalanx.model.job_state import JobState
from phalanx.model.policy import (
    EvictionPolicy,
    ObjectivePolicy,
    Policy,
    ReservedPool,
    SolvePolicy,
    StandardGang,
    TimePolicy,
)
from phalanx.model.snapshot import Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.model.topology import Layer, Site, TopologyPath
from phalanx.solver.solve import solve

SITE = SiteId("s")
LIVES = int(os.environ.get("PHALANX_TEST_LIVES", "4"))
ROUNDS = 60
POLICY = Policy(
    # Room for gangs that fit these hosts is worth much, so that jobs are moved.
    objective=ObjectivePolicy(room_s=300, standard_gangs=(StandardGang(workers=1, gpus=2, layer=Layer.HOST),)),
    eviction=EvictionPolicy(min_run_s=20, moves_per_hour=30),
    time=TimePolicy(starve_after_s=60, replace_grace_s=60, grow_after_s=90),
    solve=SolvePolicy(budget_ms=300),
    reserved=(ReservedPool(site=SITE, gpu_type="H100", gpu_milli=2 * MILLI),),
)


class Life:
    """A small site and the dice that shake it."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = VirtualClock(1_000_000)
        self.store = MemoryStore()
        self.number = 0
        self.scripts: dict[str, Script] = {}
        self.hosts = tuple(self._host(number) for number in range(self.dice.randint(3, 6)))
        self.store.put_sites([Site(id=SITE)])
        self._teams()
        for host in self.hosts:
            self.store.put_host(host, now_s=self.clock.now_s())
        self.executor = FakeExecutor(self.clock, self.hosts, lambda intent: self.scripts[intent.job.id])
        lease = self.store.acquire("scheduler", "loop", ttl_s=10**8, now_s=self.clock.now_s())
        assert lease is not None
        self.term = lease.term
        self.evicted: dict[str, int] = defaultdict(int)
        self.decided: Counter[str] = Counter()

    def _host(self, number: int) -> Host:
        gpus = tuple(Gpu(index=i, gpu_type=self.dice.choice(("A100", "H100")), memory_mib=80_000) for i in range(1))
        cards = tuple(replace(gpus[0], index=index) for index in range(self.dice.choice((2, 4, 4))))
        path = TopologyPath(site=SITE, rack=f"r{number % 2}")
        spare = self.dice.random() < 0.15
        return Host(
            id=HostId(f"h{number}"),
            path=path,
            gpus=cards,
            cpu_milli=16_000,
            memory_mib=64_000,
            spare=spare,
            disk_free_mib=1_500,
        )

    def _teams(self) -> None:
        def quota(most: int) -> tuple[GpuQuota, ...]:
            return tuple(GpuQuota(gpu_type=t, gpu_milli=MILLI * self.dice.randint(0, most)) for t in ("A100", "H100"))

        limit = quota(8) if self.dice.random() < 0.3 else None
        budget = self.dice.choice((None, None, 20_000))
        self.store.put_teams(
            [
                Team(id=TeamId("a"), guarantee=quota(4)),
                Team(id=TeamId("b"), limit=limit, budget_gpu_s=budget),
                Team(id=TeamId("b1"), parent=TeamId("b"), guarantee=quota(2)),
            ]
        )

    def submit(self) -> None:
        dice, self.number = self.dice, self.number + 1
        name = f"j{self.number}"
        run_s = dice.choice((5, 30, 120, 600, 600, None))
        refused = "no such image" if dice.random() < 0.05 else ""
        codes = (1,) if dice.random() < 0.1 else ()
        self.scripts[name] = Script(run_s=run_s, codes=codes, refused=refused, stop_s=dice.choice((1, 20)))
        request = WorkerRequest(
            gpu_milli=dice.choice((0, 300, 500, 1_000, 1_000, 1_000, 2_000, 4_000)), cpu_milli=1_000
        )
        labels = (AntiAffinity(label="l"),) if dice.random() < 0.1 else ()
        count = dice.choice((1, 1, 2, 3))
        saves = CheckpointPolicy(interval_s=60, write_s=5, restart_s=10, grace_s=dice.choice((5, 30)))
        job = Job(
            id=JobId(name),
            team=TeamId(dice.choice(("a", "b", "b1"))),
            roles=(Role(count=count, request=request),),
            elastic=Elastic(role="worker", sizes=(1, 2, 3)) if dice.random() < 0.5 else None,
            movable=dice.random() < 0.9,
            tier=dice.choice((1, 2, 3, 3, 4)),
            priority=dice.randint(0, 3),
            preemptible=dice.choice((Preemptible.BY_HIGHER,) * 3 + (Preemptible.ANYTIME, Preemptible.NEVER)),
            walltime_limit_s=dice.choice((None, 60, 200, 600)),
            checkpoint=saves if dice.random() < 0.8 else None,
            anti_affinity=labels,
            dataset=DatasetRef(name=dice.choice("de"), size_mib=1_000) if dice.random() < 0.5 else None,
            queue_deadline_s=900 if dice.random() < 0.05 else None,
        )
        self.store.submit(job, now_s=self.clock.now_s())

    def edit(self) -> None:
        name = JobId(f"j{self.dice.randint(1, max(1, self.number))}")
        now_s = self.clock.now_s()
        acts: list[Callable[[], object]] = [
            lambda: self.store.cancel(name, now_s=now_s),
            lambda: self.store.hold(name, now_s=now_s),
            lambda: self.store.resume(name, now_s=now_s),
            lambda: self.store.set_priority(name, self.dice.randint(0, 9), now_s=now_s),
        ]
        try:
            self.dice.choice(acts)()
        except PhalanxError:
            return

    def shake_host(self) -> None:
        host = self.dice.choice(self.hosts).id
        act = self.dice.choice(("lose", "return", "silence", "return", "cordon", "ready", "window"))
        if act == "lose":
            self.executor.lose_host(host)
        elif act == "silence":
            self.executor.silence(host)
        elif act == "return":
            self.executor.return_host(host)
        elif act == "window":
            self._announce(host)
        else:
            state = HostState.CORDONED if act == "cordon" else HostState.READY
            now_s = self.clock.now_s()
            event = HostChanged(id=f"{host}/{act}/{now_s}", at_s=now_s, host=host, state=state)
            self.store.append([event], now_s=now_s)

    def _announce(self, name: HostId) -> None:
        """A maintenance window, near or some minutes ahead."""
        now_s = self.clock.now_s()
        start_s = now_s + self.dice.choice((30, 300, 900))
        window = Window(start_s=start_s, end_s=start_s + self.dice.choice((60, 300)))
        self.store.put_host(replace(self.store.host(name), windows=(window,)), now_s=now_s)

    def pass_time(self) -> None:
        until = self.clock.now_s() + self.dice.choice((2, 5, 10, 30, 60))
        run_adapter(
            site=SITE,
            store=self.store,
            executor=self.executor,
            clock=self.clock,
            holder="adapter",
            log_dir=Path("/nonexistent"),
            stop=lambda: self.clock.now_s() >= until,
        )

    def turn(self) -> None:
        """Some events, one round, its invariants, and time for the site."""
        for _ in range(self.dice.choice((0, 1, 1, 2, 3))):
            act = self.dice.choices((self.submit, self.edit, self.shake_host, self._teams), (6, 2, 1, 0.3))[0]
            act()
        before = self.store.snapshot(self.clock.now_s())
        record = self.round()
        assert record.snapshot is not None
        held_within_capacity(record.snapshot)
        if self.dice.random() < 0.15:
            read_afresh = loads(dumps(record.snapshot), Snapshot)
            assert read_afresh == record.snapshot
            assert solve(read_afresh, POLICY) == record.decision
            self.decided["reloaded"] += 1
        every_victim_serves(record.decision)
        every_waiting_job_has_one_reason(record.snapshot, record.decision)
        held_within_capacity(self.store.snapshot(self.clock.now_s()))
        after = {left.id for left in self.store.snapshot(self.clock.now_s()).jobs}
        assert after <= {there.id for there in before.jobs}, "a job that ended does not come back by itself"
        if self.dice.random() < 0.3 and all(goal.gap == 0 for goal in record.decision.goals):
            # Invariant 5: nothing has changed, so nobody is evicted anew.
            assert self.round().decision.preemptions == ()
        self.pass_time()

    def round(self) -> RoundRecord:
        """One production round."""
        record = run_round(self.store, POLICY, self.clock, self.term)
        assert record.violations == ()
        for act in record.decision.preemptions if record.outcome == "committed" else ():
            self.evicted[act.job] += 1
        decision = record.decision
        self.decided.update(rounds=1, starts=len(decision.starts), preemptions=len(decision.preemptions))
        self.decided.update(resizes=len(decision.resizes), reservations=len(decision.reservations))
        self.decided.update(prefetches=len(decision.prefetches))
        self.decided.update(inside=sum(start.inside_guarantee for start in decision.starts))
        return record


def held_within_capacity(snapshot: Snapshot) -> None:
    """Invariant 1: per host and card, what is held is there; and 2: a gang is whole, of one attempt."""
    hosts = {host.id: host for host in snapshot.hosts}
    cards: dict[tuple[str, int], list[int]] = defaultdict(list)
    cpu: Counter[str] = Counter()
    for record in snapshot.jobs:
        if record.placement is None:
            continue
        sizes = record.job.elastic.sizes if record.job.elastic else (record.job.workers,)
        assert len(record.placement.workers) in sizes
        requests = {role.name: role.request for role in record.job.roles}
        for worker in record.placement.workers:
            request = requests[worker.role]
            # A victim that leaves and its beneficiary overlap in the books until it has left.
            if record.state in (JobState.PLANNED, JobState.STOPPING):
                continue
            cpu[worker.host] += request.cpu_milli
            for index in worker.gpus:
                cards[worker.host, index].append(request.gpu_milli if request.fractional else MILLI)
    assert all(sum(parts) <= MILLI for parts in cards.values())
    assert all(amount <= hosts[HostId(name)].cpu_milli for name, amount in cpu.items())


def every_victim_serves(decision: Decision) -> None:
    """Invariant 3: no victim without a placed beneficiary in the same decision."""
    starting = {start.job for start in decision.starts}
    for act in decision.preemptions:
        assert act.beneficiaries
        assert set(act.beneficiaries) <= starting
        assert all(act.job in start.after for start in decision.starts if start.job in act.beneficiaries)


def every_waiting_job_has_one_reason(snapshot: Snapshot, decision: Decision) -> None:
    """Invariant 7, its first half: each pending job has exactly one main reason."""
    starting = {start.job for start in decision.starts} | {refused.job for refused in decision.rejections}
    waiting = {record.id for record in snapshot.jobs if record.state is JobState.QUEUED} - starting
    told = Counter(reason.job for reason in decision.waiting)
    assert {job: told[job] for job in waiting} == dict.fromkeys(waiting, 1)


def live(seed: int) -> Counter[str]:
    """One life, and what its rounds decided."""
    life = Life(seed)
    for _ in range(ROUNDS):
        life.turn()
    # Quiet at the end: all hosts back, nothing new; what can end does.
    for host in life.hosts:
        life.executor.return_host(host.id)
    for _ in range(20):
        life.round()
        life.pass_time()
    left = life.store.snapshot(life.clock.now_s())
    gangs = {(gang.job, gang.attempt) for gang in life.executor.observe().gangs}
    holding = {(record.id, record.attempt) for record in left.jobs if record.state.holds_capacity}
    assert gangs <= holding, "the site runs nothing that the books do not know"
    assert life.number > ROUNDS // 2
    assert {r.id: len(r.evictions) for r in left.jobs} == {r.id: life.evicted[r.id] for r in left.jobs}
    return life.decided


@pytest.mark.parametrize(
    ("grain", "number"), [(nullcontext, LIVES), (as_large, -(-LIVES // 2))], ids=["single", "merged"]
)
def test_every_round_of_a_life_keeps_the_invariants(
    grain: Callable[[], AbstractContextManager[None]], number: int
) -> None:
    decided: Counter[str] = Counter()

    @settings(deadline=None, max_examples=number, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**32))
    def lives(seed: int) -> None:
        decided.update(live(seed))

    with grain():
        lives()
    assert decided["rounds"] >= number * ROUNDS
    for kind in ("starts", "inside", "preemptions", "resizes", "reservations", "prefetches", "reloaded"):
        assert decided[kind], f"some rounds must have {kind}"
