"""Whatever the guarantees: nobody evicts whom it was evicted by, and a job that comes back makes nobody else leave."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from grains import solve_as_large

from phalanx.model.host import Gpu, Host
from phalanx.model.ids import HostId, JobId, SiteId, TeamId
from phalanx.model.job import CheckpointPolicy, Job, Preemptible, Role, TopologyConstraint, WorkerRequest
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.model.topology import Layer, Site, TopologyPath
from phalanx.solver.evict import greedy_plan
from phalanx.solver.plan import Plan
from phalanx.solver.rights import may_evict, rights_of
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify_starts

NOW_S = 1_000_000
POLICY = Policy()
SEEDS = range(60)
LATER_S = 3_600


def lent(seed: int, *, one_level: bool = False) -> Snapshot:
    """Two full hosts, teams with guarantees, and gangs that wait to take theirs back, or outrank who runs."""
    rng = random.Random(seed)
    teams = (
        Team(id=TeamId("lab"), guarantee=_guarantee(rng, 3)),
        Team(id=TeamId("a"), parent=TeamId("lab"), guarantee=_guarantee(rng, 2)),
        Team(id=TeamId("b"), guarantee=_guarantee(rng, 3)),
        Team(id=TeamId("c")),
    )
    hosts, jobs = [], []
    for number in range(2):
        name, cards = HostId(f"h{number}"), rng.choice((3, 4, 5))
        gpus = tuple(Gpu(index=i, gpu_type="H100", memory_mib=80_000) for i in range(cards))
        path = TopologyPath(site=SiteId("s"))
        hosts.append(Host(id=name, path=path, gpus=gpus, cpu_milli=rng.choice((9_000, 99_000)), memory_mib=99_000))
        first = 0
        while first < cards:
            size = min(rng.choice((1, 1, 2, 3)), cards - first)
            job = _gang(rng, f"r{number}{first}", 1, size, (3, 3, 3, 4, 2), one_level)
            worker = WorkerPlacement(role="worker", index=0, host=name, gpus=tuple(range(first, first + size)))
            jobs.append(
                JobRecord(
                    job=job,
                    state=JobState.RUNNING,
                    submitted_s=NOW_S - 9_500,
                    attempt=1,
                    placement=Placement(workers=(worker,)),
                    started_s=NOW_S - rng.choice((650, 3_000, 9_000)),
                    inside_guarantee=rng.random() < 0.3,
                )
            )
            first += size
    for number in range(rng.choice((1, 2, 3))):
        job = _gang(rng, f"j{number}", rng.choice((1, 1, 2)), rng.choice((1, 2, 3)), (3, 3, 3, 2, 1), one_level)
        jobs.append(JobRecord(job=job, submitted_s=NOW_S - rng.choice((0, 90, 5_000))))
    return Snapshot(now_s=NOW_S, sites=(Site(id=SiteId("s")),), hosts=tuple(hosts), jobs=tuple(jobs), teams=teams)


def _guarantee(rng: random.Random, chances: int) -> tuple[GpuQuota, ...]:
    if not rng.randrange(chances):
        return ()
    return (GpuQuota(gpu_type="H100", gpu_milli=1_000 * rng.choice((1, 2, 3, 4, 6))),)


def _gang(rng: random.Random, name: str, workers: int, gpus: int, tiers: Sequence[int], one_level: bool) -> Job:
    request = WorkerRequest(gpu_milli=1_000 * gpus, cpu_milli=rng.choice((500, 2_000)))
    kinds = (Preemptible.BY_HIGHER,) * 5 + (Preemptible.ANYTIME, Preemptible.NEVER)
    return Job(
        id=JobId(name),
        team=TeamId(rng.choice("aabbc")),
        roles=(Role(count=workers, request=request),),
        tier=3 if one_level else rng.choice(tiers),
        preemptible=Preemptible.BY_HIGHER if one_level else rng.choice(kinds),
        topology=(TopologyConstraint(layer=Layer.SITE),),
        checkpoint=rng.choice((None, CheckpointPolicy(interval_s=600, write_s=60, grace_s=30))),
    )


def exact(snapshot: Snapshot, policy: Policy) -> Plan:
    decision = solve(snapshot, policy)
    return Plan(decision.starts, decision.preemptions)


def merged(snapshot: Snapshot, policy: Policy) -> Plan:
    decision = solve_as_large(snapshot, policy)
    return Plan(decision.starts, decision.preemptions)


ALL = pytest.mark.parametrize("plan_of", [greedy_plan, exact, merged], ids=["greedy", "exact", "merged"])


@ALL
def test_no_pair_evicts_each_other(plan_of: Callable[[Snapshot, Policy], Plan]) -> None:
    seen = 0
    for seed in SEEDS:
        snapshot = lent(seed)
        first = plan_of(snapshot, POLICY)
        assert verify_starts(snapshot, POLICY, first.starts, first.preemptions) == ()
        later = carried_out(snapshot, first, LATER_S)
        records = {record.id: record for record in later.jobs}
        rights = rights_of(later)
        evicted = {(job, act.job) for act in first.preemptions for job in act.beneficiaries}
        seen += any(records[winner].level == records[loser].level for winner, loser in evicted)
        for winner, loser in evicted:
            ways = [rights.starter(records[loser], inside=inside) for inside in rights.ways(records[loser])]
            assert not any(may_evict(way, rights.runner(records[winner])) for way in ways), seed
        second = plan_of(later, POLICY)
        assert verify_starts(later, POLICY, second.starts, second.preemptions) == ()
        assert not evicted & {(act.job, job) for act in second.preemptions for job in act.beneficiaries}, seed
    assert seen > len(SEEDS) // 10, "owners must take back from their own level"


@ALL
def test_what_owners_took_back_makes_nobody_else_leave(plan_of: Callable[[Snapshot, Policy], Plan]) -> None:
    # All of one level, so that only guarantees give a right to evict.
    seen = 0
    for seed in SEEDS:
        snapshot = lent(seed, one_level=True)
        plan = plan_of(snapshot, POLICY)
        inside = {start.job for start in plan.starts if start.inside_guarantee}
        assert all(inside.issuperset(act.beneficiaries) for act in plan.preemptions)
        assert plan_of(carried_out(snapshot, plan, 0), POLICY).preemptions == (), seed
        seen += bool(plan.preemptions)
    assert seen > len(SEEDS) // 10, "owners must take back from their own level"


def test_inside_starts_are_inside_while_they_run() -> None:
    for seed in SEEDS:
        snapshot = lent(seed)
        plan = greedy_plan(snapshot, POLICY)
        claimed = {start.job for start in plan.starts if start.inside_guarantee}
        assert claimed <= rights_of(carried_out(snapshot, plan, LATER_S)).inside, seed


def carried_out(snapshot: Snapshot, plan: Plan, later_s: int) -> Snapshot:
    """A later round: victims wait again, and starts run."""
    placed = {start.job: start for start in plan.starts}
    gone = {act.job for act in plan.preemptions}
    jobs = []
    for record in snapshot.jobs:
        if record.id in gone:
            times = (*record.evictions, snapshot.now_s)
            jobs.append(replace(record, state=JobState.QUEUED, placement=None, started_s=None, evictions=times))
        elif record.id in placed:
            start = placed[record.id]
            facts = {"placement": start.placement, "inside_guarantee": start.inside_guarantee}
            jobs.append(
                replace(record, state=JobState.RUNNING, started_s=snapshot.now_s, attempt=start.attempt, **facts)
            )
        else:
            jobs.append(record)
    return replace(snapshot, jobs=tuple(jobs), now_s=snapshot.now_s + later_s)
