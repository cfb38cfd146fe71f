"""With starving gangs, promises and work that ends at known times, decisions equal brute force, goal by goal.

`PHALANX_TEST_SEEDS=4000 pytest tests/property/test_brute_plans.py` compares thousands.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from test_brute_force import NOW, crowded, equals_brute_force, policy

from phalanx.model.host import Host, Window
from phalanx.model.ids import SiteId
from phalanx.model.job import Preemptible, WorkerRequest
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy, ReservedPool
from phalanx.model.reservation import Reservation
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota
from phalanx.solver.drains import promises
from phalanx.solver.solve import solve

BLOCKS = 4
SEEDS = int(os.environ.get("PHALANX_TEST_SEEDS", "80"))
MOST = 8_000
"""Combinations that brute force tries of one round."""


def drained(seed: int) -> tuple[Snapshot, Policy]:
    """A crowded fleet of which most waiting gangs starve, and a policy that plans for them."""
    rng = random.Random(f"drained {seed}")
    snapshot = crowded(seed)
    jobs = tuple(_runs(rng, record) if record.placement else _waits(rng, record) for record in snapshot.jobs)
    teams = snapshot.teams if rng.random() < 0.2 else tuple(replace(team, limit=None) for team in snapshot.teams)
    hosts = tuple(replace(host, network_mbps=rng.choice((3_000, 9_000))) for host in snapshot.hosts)
    numbers = policy(seed)
    time = replace(
        numbers.time,
        starve_after_s=rng.choice((0, 60, 7_200)),
        drains_per_pool=rng.choice((1, 2, 2, 3)),
        max_candidate_starts=rng.choice((2, 3, 4)),
        limit_shared_s=rng.choice((3_600, 86_400)),
        plan_horizon_s=rng.choice((50_000, 604_800)),
        drain_at_once_gpus=0,
        drain_at_once_milli=None if seed % 2 else 300,
    )
    return replace(snapshot, jobs=jobs, teams=teams, hosts=hosts), replace(numbers, time=time)


def _runs(rng: random.Random, record: JobRecord) -> JobRecord:
    job = replace(record.job, walltime_limit_s=rng.choice((None, 3_600, 9_000, 20_000, 20_000)))
    if rng.random() < 0.4:
        job = replace(job, preemptible=Preemptible.NEVER)
    if rng.random() < 0.15:
        return replace(record, job=job, state=JobState.STOPPING, state_since_s=NOW - 10)
    return replace(record, job=job)


def _waits(rng: random.Random, record: JobRecord) -> JobRecord:
    job = record.job
    network = rng.choice((0, 0, 1_000, 3_000))
    if rng.random() < 0.75:
        (role,) = job.roles
        milli = role.request.gpu_milli
        whole = rng.choice((1_000, 2_000)) if 0 < milli < 1_000 else milli
        request = WorkerRequest(gpu_milli=whole, cpu_milli=role.request.cpu_milli, network_mbps=network)
        job = replace(job, anti_affinity=(), roles=(replace(role, request=request),))
    submitted_s = record.submitted_s if rng.random() < 0.3 else NOW - rng.choice((9_000, 90_000))
    return replace(record, job=job, submitted_s=submitted_s)


def capped(seed: int) -> tuple[Snapshot, Policy]:
    """Starving gangs of which limits and reserved pools, rather than hosts, decide when they may start."""
    rng = random.Random(f"capped {seed}")
    snapshot, numbers = drained(seed)

    def limit() -> tuple[GpuQuota, ...] | None:
        milli = 1_000 * rng.choice((1, 2, 3, 4, 5))
        return (GpuQuota(gpu_type="H100", gpu_milli=milli),) if rng.random() < 0.4 else None

    teams = tuple(replace(team, limit=limit()) for team in snapshot.teams)
    pools = (ReservedPool(site=SiteId("s"), gpu_type="H100", gpu_milli=1_000 * rng.choice((1, 2, 3, 4))),)
    jobs = tuple(
        replace(record, job=replace(record.job, tier=rng.choice((3, 3, 3, 2)))) if rng.random() < 0.7 else record
        for record in snapshot.jobs
    )
    numbers = replace(numbers, reserved=pools if rng.random() < 0.5 else ())
    return replace(snapshot, teams=teams, jobs=jobs), numbers


def next_round(seed: int, snapshot: Snapshot, reservations: tuple[Reservation, ...]) -> Snapshot:
    """The same world some time later: a host or a card lost, a window announced, a gang of another tier."""
    rng = random.Random(f"next {seed}")
    now_s = snapshot.now_s + rng.choice((10, 1_000, 4_000, 9_000))
    promised = tuple(replace(plan, broken=rng.choice((0, 0, 1, 2, 3))) for plan in reservations)
    hosts, jobs = list(snapshot.hosts), list(snapshot.jobs)
    position = rng.randrange(len(hosts))
    hosts[position] = _loses(rng, hosts[position], now_s)
    position = rng.randrange(len(jobs))
    if jobs[position].placement is None:
        job = replace(jobs[position].job, tier=rng.choice((1, 2, 3)), preemptible=Preemptible.BY_HIGHER)
        jobs[position] = replace(jobs[position], job=job)
    return replace(snapshot, now_s=now_s, hosts=tuple(hosts), jobs=tuple(jobs), reservations=promised)


def _loses(rng: random.Random, host: Host, now_s: int) -> Host:
    what = rng.choice(("nothing", "nothing", "host", "card", "time"))
    if what == "host":
        return replace(host, spare=True)
    if what == "card":
        return replace(host, gpus=(replace(host.gpus[0], healthy=False), *host.gpus[1:]))
    if what == "time":
        start_s = now_s + rng.choice((100, 5_000))
        return replace(host, windows=(Window(start_s=start_s, end_s=start_s + 2_000),))
    return host


@pytest.mark.parametrize("worlds", [drained, capped])
@pytest.mark.parametrize("block", range(BLOCKS))
def test_plans_and_promises_equal_brute_force(block: int, worlds: Callable[[int], tuple[Snapshot, Policy]]) -> None:
    compared = planned = kept = 0
    for seed in range(block, SEEDS, BLOCKS):
        snapshot, numbers = worlds(seed)
        compared += equals_brute_force(snapshot, numbers, MOST)
        reservations = solve(snapshot, numbers).reservations
        if reservations:
            planned += 1
            later = next_round(seed, snapshot, reservations)
            kept += bool(promises(later, numbers))
            compared += equals_brute_force(later, numbers, MOST)
    assert compared >= 9 * (SEEDS // BLOCKS + planned) // 10, "most instances must be small enough to compare"
    assert planned, "some gangs must be planned"
    assert kept, "some promises must bind the next round"
