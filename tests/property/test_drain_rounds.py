"""Round after round with starving gangs and promises: every rule holds, and no plan moves later without a cause."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from grains import solve_as_large
from test_brute_force import NOW, crowded, policy

from phalanx.model.decision import Decision
from phalanx.model.host import HostState
from phalanx.model.ids import JobId
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.solver.drains import promises
from phalanx.solver.evict import greedy_plan
from phalanx.solver.plan import Plan
from phalanx.solver.verify import verify_starts

SEEDS, ROUNDS, BLOCKS = 40, 5, 4


def waiting_long(seed: int, rng: random.Random) -> Snapshot:
    """A crowded fleet where some gangs starve, mostly without labels and limits."""
    snapshot = crowded(seed)
    jobs = []
    for record in snapshot.jobs:
        if record.placement is None:
            job = replace(record.job, walltime_limit_s=rng.choice((60, 3_600, 50_000, None)))
            job = replace(job, anti_affinity=()) if rng.random() < 0.6 else job
            record = replace(record, job=job, submitted_s=NOW - rng.choice((0, 90_000, 300_000)))
        jobs.append(record)
    teams = tuple(replace(team, limit=None) if rng.random() < 0.7 else team for team in snapshot.teams)
    return replace(snapshot, jobs=tuple(jobs), teams=teams)


def later(snapshot: Snapshot, plan: Plan | Decision, rng: random.Random) -> Snapshot:
    """The world some time on: starts run, victims wait again, some work is over, new jobs come, a host may be lost."""
    placed = {start.job: start for start in plan.starts}
    victims = {act.job for act in plan.preemptions}
    now_s = snapshot.now_s + rng.choice((30, 600, 4_000, 100_000))
    jobs = []
    for record in snapshot.jobs:
        start = placed.get(record.id)
        if record.id in victims:
            record = replace(record, state=JobState.QUEUED, placement=None, started_s=None)
        elif start is not None:
            facts = {"placement": start.placement, "attempt": start.attempt, "started_s": snapshot.now_s + 30}
            record = replace(record, state=JobState.RUNNING, **facts)
        elif record.placement is not None and rng.random() < 0.2:
            continue
        jobs.append(record)
    for record in crowded(rng.randrange(10**6)).jobs:
        if record.placement is None and rng.random() < 0.5:
            job = replace(record.job, id=JobId(f"{record.id}-{now_s}"))
            jobs.append(replace(record, job=job, submitted_s=now_s - rng.choice((0, 90_000))))
    hosts = snapshot.hosts
    if rng.random() < 0.15:
        hosts = (replace(hosts[0], state=HostState.CORDONED), *hosts[1:])
    return replace(snapshot, now_s=now_s, jobs=tuple(jobs), hosts=hosts, reservations=plan.reservations)


Decides = Callable[[Snapshot, Policy], "Plan | Decision"]


@pytest.mark.parametrize(
    ("block", "decides"), [*((block, greedy_plan) for block in range(BLOCKS)), (BLOCKS, solve_as_large)]
)
def test_rounds_keep_every_rule_and_promises_move_later_with_a_cause_only(block: int, decides: Decides) -> None:
    bound = 0
    for seed in range(block, SEEDS, BLOCKS):
        rng, numbers = random.Random(seed), policy(seed)
        snapshot = waiting_long(seed, rng)
        for _ in range(ROUNDS):
            plan = decides(snapshot, numbers)
            acts = (plan.starts, plan.preemptions, plan.reservations, plan.resizes)
            assert verify_starts(snapshot, numbers, *acts) == ()
            assert decides(snapshot, numbers) == plan
            plans = {reservation.job: reservation for reservation in plan.reservations}
            for promise in promises(snapshot, numbers):
                bound += 1
                after = plans.get(promise.record.id)
                if after is not None and after.planned_start_s > promise.start_s:
                    assert after.cause
                    assert after.broken in (promise.reservation.broken, promise.reservation.broken + 1)
                elif after is not None:
                    assert (after.cause, after.broken) == (promise.reservation.cause, promise.reservation.broken)
            assert {r.id for r in snapshot.reservations} == {
                *plan.releases,
                *(r.id for r in plan.reservations if r.created_s < snapshot.now_s),
                *(r.id for r in snapshot.reservations if r.job in {start.job for start in plan.starts}),
            }
            snapshot = later(snapshot, plan, rng)
    assert bound >= 2, "some rounds must have promises"
