"""With elastic gangs and gangs that may be moved, decisions equal brute force, goal by goal.

`PHALANX_TEST_SEEDS=4000 pytest tests/property/test_brute_returns.py` compares thousands.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest
from test_brute_force import NOW, crowded, equals_brute_force, policy
from test_brute_plans import drained

from phalanx.model.decision import Decision
from phalanx.model.job import CheckpointPolicy, Elastic, Job, Preemptible
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.solve import solve

BLOCKS = 4
SEEDS = int(os.environ.get("PHALANX_TEST_SEEDS", "160"))
MOST = 2_500
"""Combinations that brute force tries of one round."""


def resizable(seed: int) -> tuple[Snapshot, Policy]:
    """A crowded fleet of which most gangs are elastic, or save their work and may be moved."""
    rng = random.Random(f"resizable {seed}")
    snapshot, numbers = drained(seed) if seed % 4 == 0 else (crowded(seed), policy(seed))
    jobs = tuple(_runs(rng, record) if record.placement else _waits(rng, record) for record in snapshot.jobs)
    if rng.random() < 0.1:
        jobs = tuple(record for record in jobs if record.placement)
    eviction = replace(numbers.eviction, moves_per_hour=rng.choice((0, 1, 2, 10)), move_loss_s=rng.choice((0, 90, 300)))
    gangs = numbers.objective.standard_gangs
    worth = replace(numbers.objective, room_s=rng.choice((10, 300)), standard_gangs=gangs if rng.random() < 0.9 else ())
    return replace(snapshot, jobs=jobs), replace(numbers, eviction=eviction, objective=worth)


def _elastic(rng: random.Random, job: Job) -> Job:
    (role,) = job.roles
    if role.parallelism is not None and rng.random() < 0.5:
        return job
    counts = {role.count, *rng.sample((1, 2, 3, 4), rng.choice((1, 2)))}
    return replace(job, elastic=Elastic(role=role.name, sizes=tuple(sorted(counts))))


def _runs(rng: random.Random, record: JobRecord) -> JobRecord:
    job = record.job
    if rng.random() < 0.8:
        restart_s = rng.choice((0, 20, 20, 250))
        job = replace(job, checkpoint=CheckpointPolicy(interval_s=600, write_s=5, restart_s=restart_s, grace_s=10))
    if rng.random() < 0.6:
        job = replace(job, preemptible=rng.choice((Preemptible.BY_HIGHER, Preemptible.ANYTIME)))
    if rng.random() < 0.5:
        job = _elastic(rng, job)
        # What it asks need not be what it has.
        sizes = job.elastic.sizes if job.elastic else ()
        if sizes and job.roles[0].parallelism is None:
            job = replace(job, roles=(replace(job.roles[0], count=rng.choice(sizes)),))
    return replace(record, job=job, moves=(NOW - rng.choice((60, 7_200)),) if rng.random() < 0.15 else ())


def _waits(rng: random.Random, record: JobRecord) -> JobRecord:
    if rng.random() < 0.5:
        return record
    return replace(record, job=_elastic(rng, record.job), resized_to=rng.choice((None, None, 2, 3)))


def _kinds(snapshot: Snapshot, decision: Decision) -> set[str]:
    records = {record.id: record for record in snapshot.jobs}
    found = set()
    for act in decision.resizes:
        now = records[act.job].placement
        assert now is not None
        before, after = len(now.workers), len(act.placement.workers)
        found.add("moved" if after == before else "smaller" if after < before else "larger")
    for start in decision.starts:
        if len(start.placement.workers) < records[start.job].job.workers:
            found.add("started smaller")
    return found


@pytest.mark.parametrize("block", range(BLOCKS))
def test_returns_and_sizes_equal_brute_force(block: int) -> None:
    compared, seen, seeds = 0, set[str](), range(block, SEEDS, BLOCKS)
    for seed in seeds:
        snapshot, numbers = resizable(seed)
        if equals_brute_force(snapshot, numbers, MOST):
            compared += 1
            seen |= _kinds(snapshot, solve(snapshot, numbers))
    assert compared >= len(seeds) // 3, "many instances must be small enough to compare"
    assert {"moved", "smaller", "started smaller"} <= seen
