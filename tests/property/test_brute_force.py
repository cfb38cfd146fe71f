"""On random small fleets the decision equals brute force, goal by goal, and proves every goal.

`PHALANX_TEST_SEEDS=4000 pytest tests/property/test_brute_force.py` compares thousands; the default keeps a test run short.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from itertools import combinations

import pytest
from brute_force import TooLarge
from brute_search import best_values
from grains import all_proven, as_large, goals_of_levels, solve_as_large
from hypothesis import HealthCheck, given, settings
from strategies import policies, snapshots

from phalanx.model.decision import GoalStatus
from phalanx.model.host import Gpu, Host, Window
from phalanx.model.ids import HostId, JobId, SiteId, TeamId
from phalanx.model.job import (
    AntiAffinity,
    CheckpointPolicy,
    GpuTypeChoice,
    Job,
    Parallelism,
    Preemptible,
    Role,
    Strictness,
    TopologyConstraint,
    WorkerRequest,
)
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import EvictionPolicy, ObjectivePolicy, Policy, ReservedPool, SolvePolicy, StandardGang
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.model.topology import Layer, Site, TopologyPath
from phalanx.solver.books import Books
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify

NOW = 1_000_000


def crowded(seed: int) -> Snapshot:
    """A fleet of two or three hosts on which the waiting gangs all could start alone, and hardly ever all together."""
    rng = random.Random(seed)
    hosts = tuple(_host(rng, number) for number in range(rng.choice((2, 2, 3))))
    jobs = tuple(
        JobRecord(job=_job(rng, number), submitted_s=NOW - rng.choice((0, 50, 90_000, 500_000)))
        for number in range(rng.choice((2, 3, 3, 4)))
    )
    teams = (
        Team(id=TeamId("lab"), limit=_limit(rng), guarantee=_guarantee(rng)),
        Team(id=TeamId("a"), parent=TeamId("lab"), limit=_limit(rng), guarantee=_guarantee(rng)),
        Team(id=TeamId("b"), weight=300, limit=_limit(rng), guarantee=_guarantee(rng)),
    )
    empty = Snapshot(now_s=NOW, sites=(Site(id=SiteId("s")),), hosts=hosts, teams=teams)
    return _with_spare(seed, replace(empty, jobs=(*_running(rng, empty), *jobs)))


def _with_spare(seed: int, snapshot: Snapshot) -> Snapshot:
    """Sometimes the last host is a spare, and a waiting gang lost the first one lately."""
    rng = random.Random(f"spare {seed}")
    if rng.random() < 0.85:
        return snapshot
    hosts = (*snapshot.hosts[:-1], replace(snapshot.hosts[-1], spare=True))
    *others, last = snapshot.jobs
    lost = replace(last, replacing=(snapshot.hosts[0].id,), replacing_until_s=NOW + rng.choice((0, 200)), attempt=1)
    return replace(snapshot, hosts=hosts, jobs=(*others, lost))


def _running(rng: random.Random, empty: Snapshot) -> tuple[JobRecord, ...]:
    """Up to three gangs of one or two workers that run already, most of them at low levels and long enough to leave."""
    books, records = Books(empty), []
    for number in range(rng.choice((0, 2, 3, 3))):
        milli = rng.choice((300, 500, 1_000, 1_000, 2_000, 0))
        role = Role(count=rng.choice((1, 1, 2)), request=WorkerRequest(gpu_milli=milli, cpu_milli=2_000))
        job = Job(
            id=JobId(f"r{number}"),
            team=TeamId(rng.choice("ab")),
            roles=(role,),
            tier=rng.choice((1, 2, 3, 4, 4)),
            preemptible=rng.choice(
                (Preemptible.NEVER, Preemptible.BY_HIGHER, Preemptible.ANYTIME, Preemptible.ANYTIME)
            ),
            anti_affinity=_labels(rng),
            checkpoint=rng.choice((None, CheckpointPolicy(interval_s=600, write_s=rng.choice((5, 60)), restart_s=20))),
        )
        workers = _seats(rng, books, job, role)
        if len(workers) == role.count:
            records.append(
                JobRecord(
                    job=job,
                    state=JobState.RUNNING,
                    submitted_s=NOW - 9_000,
                    attempt=1,
                    placement=Placement(workers=tuple(workers)),
                    started_s=NOW - rng.choice((60, 3_000, 8_000)),
                    evictions=(NOW - 100,) * rng.choice((0, 0, 0, 3)),
                    inside_guarantee=rng.random() < 0.3,
                )
            )
        else:
            for worker in workers:
                books.give(job, worker)
    return tuple(records)


def _seats(rng: random.Random, books: Books, job: Job, role: Role) -> list[WorkerPlacement]:
    """Random places for the workers, each where it fits on top of all before."""
    workers: list[WorkerPlacement] = []
    for index in range(role.count):
        options = []
        for host, book in books.hosts.items():
            cards = sorted(book.cards)
            sets = [()] if not role.request.gpu_milli else combinations(cards, max(1, role.request.whole_gpus))
            seats = (WorkerPlacement(role=role.name, index=index, host=host, gpus=tuple(cards)) for cards in sets)
            options.extend(seat for seat in seats if books.fits(job, seat))
        if options:
            workers.append(rng.choice(options))
            books.take(job, workers[-1])
    return workers


def _limit(rng: random.Random) -> tuple[GpuQuota, ...] | None:
    if rng.random() < 0.7:
        return None
    types = rng.choice((("H100",), ("A100",), ("H100", "A100")))
    return tuple(GpuQuota(gpu_type=name, gpu_milli=1_000 * rng.choice((1, 2, 4))) for name in types)


def _guarantee(rng: random.Random) -> tuple[GpuQuota, ...]:
    if rng.random() < 0.6:
        return ()
    types = rng.choice((("H100",), ("H100",), ("A100",), ("H100", "A100")))
    return tuple(GpuQuota(gpu_type=name, gpu_milli=1_000 * rng.choice((0, 1, 2, 3, 6))) for name in types)


def _labels(rng: random.Random) -> tuple[AntiAffinity, ...]:
    if rng.random() < 0.7:
        return ()
    return (AntiAffinity(label="x", layer=rng.choice((Layer.HOST, Layer.HOST, Layer.RACK))),)


def _host(rng: random.Random, number: int) -> Host:
    kind = rng.choice(("H100", "H100", "A100"))
    path = TopologyPath(
        site=SiteId("s"), rack=rng.choice(("r0", "r1")), nvlink=rng.choice((None, "n0")) if rng.random() < 0.5 else None
    )
    return Host(
        id=HostId(f"h{number}"),
        path=path,
        gpus=tuple(Gpu(index=i, gpu_type=kind, memory_mib=80_000) for i in range(rng.choice((2, 3, 4)))),
        cpu_milli=rng.choice((6_000, 100_000)),
        memory_mib=100_000,
        windows=(Window(start_s=NOW + rng.choice((-10, 7_200)), end_s=NOW + 9_000),) if rng.random() < 0.15 else (),
    )


def _job(rng: random.Random, number: int) -> Job:
    milli = rng.choice((300, 500, 1_000, 1_000, 2_000, 2_000, 3_000, 0))
    count = rng.choice((1, 1, 1, 2, 2, 3, 4))
    if milli in (300, 500):
        count = min(count, 2)
    parallelism = None
    if count in (2, 4) and rng.random() < 0.4:
        shapes = {2: ((2, 1, 1), (1, 2, 1)), 4: ((2, 2, 1), (2, 1, 2), (1, 2, 2), (1, 4, 1))}[count]
        tensor, pipeline, data = rng.choice(shapes)
        parallelism = Parallelism(tensor=tensor, pipeline=pipeline, data=data)
    types = ()
    if milli and rng.random() < 0.5:
        types = (GpuTypeChoice(gpu_type="H100"), GpuTypeChoice(gpu_type="A100", throughput_milli=600))
        types = types[: rng.choice((1, 2))]
    request = WorkerRequest(gpu_milli=milli, cpu_milli=rng.choice((1_000, 2_000)))
    topology = ()
    if rng.random() < 0.4:
        strictness = rng.choice(tuple(Strictness))
        topology = (
            TopologyConstraint(layer=rng.choice((Layer.RACK, Layer.NVLINK, Layer.SITE)), strictness=strictness),
        )
    return Job(
        id=JobId(f"j{number}"),
        team=TeamId(rng.choice("ab")),
        roles=(Role(count=count, request=request, gpu_types=types, parallelism=parallelism),),
        tier=rng.choice((1, 2, 2, 3, 3, 4)),
        priority=rng.choice((0, 0, 5)),
        preemptible=rng.choice((*(Preemptible.BY_HIGHER,) * 5, *(Preemptible.ANYTIME,) * 2, Preemptible.NEVER)),
        topology=topology,
        anti_affinity=_labels(rng),
        walltime_limit_s=rng.choice((None, 3_600, 50_000)),
    )


def policy(seed: int) -> Policy:
    gangs = (
        StandardGang(workers=1, gpus=2, layer=Layer.HOST),
        StandardGang(workers=2, gpus=1 + seed % 2, layer=Layer.RACK),
    )
    reserved = (
        (ReservedPool(site=SiteId("s"), gpu_type="H100", gpu_milli=1_000 * (1 + seed % 3)),) if seed % 4 == 3 else ()
    )
    objective = ObjectivePolicy(standard_gangs=gangs)
    most_s = 3_000 if seed % 7 == 2 else None
    eviction = EvictionPolicy(moves_per_hour=(0, 0, 2)[seed % 3], max_loss_s=most_s)
    return Policy(objective=objective, eviction=eviction, solve=SolvePolicy(budget_ms=60_000), reserved=reserved)


def equals_brute_force(snapshot: Snapshot, numbers: Policy, limit: int) -> bool:
    """Compares both grains, the merged one by the goals of levels; False where brute force would take too long."""
    try:
        best = best_values(snapshot, numbers, limit)
    except TooLarge:
        return False
    decision = solve(snapshot, numbers)
    assert verify(snapshot, numbers, decision) == ()
    assert tuple(goal.value for goal in decision.goals) == best
    assert all(goal.status is GoalStatus.PROVEN and goal.bound == goal.value for goal in decision.goals)
    with as_large():
        merged = solve(snapshot, numbers)
        assert all_proven(merged)
    assert verify(snapshot, numbers, merged) == ()
    attained = {goal.name: goal.value for goal in decision.goals}
    assert all(goal.value == attained[goal.name] for goal in goals_of_levels(merged))
    return True


BLOCKS = 8
SEEDS = int(os.environ.get("PHALANX_TEST_SEEDS", "400"))


@pytest.mark.parametrize("block", range(BLOCKS))
def test_crowded_fleets_equal_brute_force(block: int) -> None:
    seeds = range(block, SEEDS, BLOCKS)
    compared = sum(equals_brute_force(crowded(seed), policy(seed), 20_000) for seed in seeds)
    assert compared >= len(seeds) * 9 // 10, "most instances must be small enough to compare"


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(snapshots(max_hosts=3, max_cards=3, max_jobs=3, max_workers=3), policies())
def test_odd_fleets_equal_brute_force(snapshot: Snapshot, numbers: Policy) -> None:
    equals_brute_force(snapshot, numbers, 3_000)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(snapshots(max_hosts=8, max_cards=8, max_jobs=8, max_workers=6, max_running=8), policies())
def test_larger_fleets_never_violate_and_repeat_exactly(snapshot: Snapshot, numbers: Policy) -> None:
    for decide in (solve, solve_as_large):
        decision = decide(snapshot, numbers)
        assert verify(snapshot, numbers, decision) == ()
        assert decide(snapshot, numbers) == decision
