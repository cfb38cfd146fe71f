"""With elastic gangs and gangs that may be moved, decisions equal brute force, goal by goal.

`PHALANX_TEST_SEEDS=4000 pytest tests/property/test_brute_returns.py` compares thousands.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace

import pytest
from moving import moving
from test_brute_force import NOW, _seats, crowded, equals_brute_force, policy
from test_brute_plans import drained

from phalanx.model.decision import Decision, Grain
from phalanx.model.ids import HostId, JobId, TeamId
from phalanx.model.job import CheckpointPolicy, Elastic, Job, Preemptible, Role, WorkerRequest
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.books import Books
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify

BLOCKS = 4
SEEDS = int(os.environ.get("PHALANX_TEST_SEEDS", "80"))
MOST = 20_000
"""Combinations that brute force tries of one round."""


def resizable(seed: int) -> tuple[Snapshot, Policy]:
    """A fleet nearly full of gangs of which most are elastic, or save their work and may be moved; others outrank them."""
    rng = random.Random(f"resizable {seed}")
    snapshot, numbers = drained(seed) if seed % 4 == 0 else (crowded(seed), policy(seed))
    cpu_milli = rng.choice((6_000, 12_000, 100_000))
    hosts = tuple(replace(host, cpu_milli=cpu_milli, windows=()) for host in snapshot.hosts)
    teams = snapshot.teams if rng.random() < 0.3 else tuple(replace(team, limit=None) for team in snapshot.teams)
    empty = replace(snapshot, hosts=hosts, teams=teams, jobs=())
    waiting = [_waits(rng, record) for record in snapshot.jobs if record.placement is None]
    jobs = (*_full(rng, empty), *(() if rng.random() < 0.1 else waiting[: rng.choice((1, 2, 2, 3))]))
    eviction = replace(
        numbers.eviction, moves_per_hour=rng.choice((0, 1, 2, 10)), move_loss_s=rng.choice((0, 90, 300, 300))
    )
    gangs = numbers.objective.standard_gangs
    worth = replace(numbers.objective, room_s=rng.choice((10, 300)), standard_gangs=gangs if rng.random() < 0.9 else ())
    return replace(empty, jobs=jobs), replace(numbers, eviction=eviction, objective=worth)


def _elastic(rng: random.Random, job: Job) -> Job:
    (role,) = job.roles
    if role.parallelism is not None and rng.random() < 0.5:
        return job
    counts = {role.count, rng.choice((1, 1, 1, 2)), rng.choice((1, 2, 3, 4))}
    return replace(job, elastic=Elastic(role=role.name, sizes=tuple(sorted(counts))))


def _full(rng: random.Random, empty: Snapshot) -> list[JobRecord]:
    """Gangs of one to three workers, on most of the cards."""
    books, records = Books(empty), list[JobRecord]()
    for number in range(rng.choice((2, 3, 4, 4))):
        request = WorkerRequest(
            gpu_milli=rng.choice((1_000, 1_000, 1_000, 2_000)), cpu_milli=rng.choice((1_000, 2_000))
        )
        role = Role(count=rng.choice((1, 2, 2, 3)), request=request)
        job = Job(
            id=JobId(f"r{number}"),
            team=TeamId(rng.choice("ab")),
            roles=(role,),
            tier=rng.choice((3, 3, 3, 2)),
            preemptible=rng.choice((Preemptible.BY_HIGHER, Preemptible.BY_HIGHER, Preemptible.ANYTIME)),
        )
        if rng.random() < 0.8:
            restart_s = rng.choice((0, 20, 20, 250))
            job = replace(job, checkpoint=CheckpointPolicy(interval_s=600, write_s=5, restart_s=restart_s, grace_s=10))
        workers = _seats(rng, books, job, role)
        if len(workers) < role.count or len({worker.host for worker in workers} & _of_other_types(empty, workers)):
            for worker in workers:
                books.give(job, worker)
            continue
        if rng.random() < 0.85:
            job = _elastic(rng, job)
            # What it asks need not be what it has.
            sizes = job.elastic.sizes if job.elastic else (role.count,)
            job = replace(job, roles=(replace(role, count=rng.choice(sizes)),))
        records.append(
            JobRecord(
                job=job,
                state=JobState.RUNNING,
                submitted_s=NOW - 9_000,
                attempt=1,
                placement=Placement(workers=tuple(workers)),
                started_s=NOW - rng.choice((60, 3_000, 3_000, 3_000, 8_000)),
                moves=(NOW - rng.choice((60, 7_200)),) if rng.random() < 0.15 else (),
            )
        )
    return records


def _of_other_types(empty: Snapshot, workers: list[WorkerPlacement]) -> set[HostId]:
    """The hosts of which the cards are not of the type of the first worker's."""
    types = {host.id: host.gpus[0].gpu_type for host in empty.hosts}
    return {host for host, name in types.items() if workers and name != types[workers[0].host]}


def _waits(rng: random.Random, record: JobRecord) -> JobRecord:
    if rng.random() < 0.7:
        (role,) = record.job.roles
        milli = rng.choice((1_000, 2_000, 2_000, 3_000))
        role = Role(count=rng.choice((1, 1, 1, 2)), request=WorkerRequest(gpu_milli=milli, cpu_milli=1_000))
        tier, preemptible = rng.choice((1, 2, 2, 3)), Preemptible.BY_HIGHER
        job = replace(record.job, tier=tier, preemptible=preemptible, roles=(role,), topology=(), anti_affinity=())
        record = replace(record, job=job)
    if rng.random() < 0.6:
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
    compared, seen, seeds = 0, Counter[str](), range(block, SEEDS, BLOCKS)
    for seed in seeds:
        snapshot, numbers = resizable(seed)
        if equals_brute_force(snapshot, numbers, MOST):
            compared += 1
            seen.update(_kinds(snapshot, solve(snapshot, numbers)))
    assert compared >= len(seeds) * 9 // 10, "nearly all instances must be small enough to compare"
    assert seen["smaller"], "some gangs must shrink"


def test_a_gang_that_asks_more_weighs_more_than_its_like_at_the_size_for_which_there_is_room() -> None:
    """Only one worker fits: of the older gang of one, or of the younger one that asks three, which weighs more."""
    two = WorkerRequest(gpu_milli=2_000, cpu_milli=1_000)
    jobs = [
        Job(id=JobId("one"), team=TeamId("a"), roles=(Role(count=1, request=two),)),
        Job(
            id=JobId("three"),
            team=TeamId("a"),
            roles=(Role(count=3, request=two),),
            elastic=Elastic(role="worker", sizes=(1, 2, 3)),
        ),
    ]
    queue = tuple(JobRecord(job=job, submitted_s=NOW - 100 + number) for number, job in enumerate(jobs))
    snapshot = crowded(0)
    host = replace(snapshot.hosts[0], gpus=snapshot.hosts[0].gpus[:2], windows=())
    teams = tuple(replace(team, limit=None, guarantee=()) for team in snapshot.teams)
    snapshot = replace(snapshot, hosts=(host,), jobs=queue, teams=teams)
    assert equals_brute_force(snapshot, policy(0), MOST)
    assert [start.job for start in solve(snapshot, policy(0)).starts] == ["three"]


@pytest.mark.parametrize("block", range(BLOCKS))
def test_returns_that_starts_need_equal_brute_force(block: int) -> None:
    compared, seen, seeds = 0, Counter[str](), range(block, SEEDS, BLOCKS)
    for seed in seeds:
        snapshot, numbers = moving(seed)
        if equals_brute_force(snapshot, numbers, MOST):
            compared += 1
            kinds = _kinds(snapshot, solve(snapshot, numbers))
            seen.update({*kinds, "return"} if kinds & {"moved", "smaller"} else kinds)
    assert compared >= len(seeds) * 9 // 10, "nearly all instances must be small enough to compare"
    assert seen["return"] * 8 >= compared, "in many decisions gangs must return"
    assert seen["moved"], "some gangs must move"


def test_a_round_too_large_to_be_solved_whole_has_returns_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()
    for snapshot, numbers in map(moving, range(20)):
        whole = solve(snapshot, numbers)
        with monkeypatch.context() as patch:
            patch.setattr("phalanx.solver.solve._reduced", lambda snapshot, policy: (None, None))
            patch.setattr("phalanx.solver.partly.LEVEL", 0)
            in_part = solve(snapshot, numbers)
        assert verify(snapshot, numbers, in_part) == ()
        if in_part.certificate.grain is Grain.KERNEL and not (in_part.reservations or snapshot.reservations):
            assert [goal.value for goal in in_part.goals] == [goal.value for goal in whole.goals]
            seen.update(_kinds(snapshot, in_part))
    assert seen["moved"]
    assert seen["smaller"]
