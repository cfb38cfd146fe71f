"""An elastic gang through rounds and the site: it shrinks for a higher job, resumes, and grows again when all is idle."""

from __future__ import annotations

from collections import Counter

from phalanx.adapters.fakes.executor import Script
from phalanx.api.round import run_round
from phalanx.model.ids import JobId, TeamId
from phalanx.model.job import CheckpointPolicy, Elastic, Job, Role, WorkerRequest
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy

POLICY = Policy()
EACH = WorkerRequest(gpu_milli=1000, cpu_milli=1000)


def submit(world, name: str, count: int, run_s: int | None, **more) -> None:
    world.scripts[name] = Script(run_s=run_s)
    job = Job(
        id=JobId(name),
        team=TeamId("t"),
        roles=(Role(count=count, request=EACH),),
        checkpoint=CheckpointPolicy(interval_s=60, write_s=5, restart_s=5, grace_s=5),
        **more,
    )
    world.store.submit(job, now_s=world.clock.now_s())


def live(world, seconds: int, every_s: int = 10) -> None:
    """Rounds and the adapter in turn; after each the books hold no card twice."""
    for _ in range(0, seconds, every_s):
        run_round(world.store, POLICY, world.clock, world.term)
        world.run(every_s)
        used: Counter[tuple[str, int]] = Counter()
        for record in world.store.snapshot(world.clock.now_s()).jobs:
            for worker in record.placement.workers if record.placement else ():
                used.update((worker.host, card) for card in worker.gpus)
        assert max(used.values(), default=0) <= 1


def size(world, name: str) -> int:
    record = world.job(name)
    return len(record.placement.workers) if record.placement and record.state is JobState.RUNNING else 0


def test_an_elastic_gang_shrinks_resumes_and_grows(world) -> None:
    submit(world, "elastic", 8, None, elastic=Elastic(role="worker", sizes=(2, 4, 6, 8)))
    live(world, 700)
    assert size(world, "elastic") == 8
    submit(world, "urgent", 1, 100, tier=1)
    live(world, 90)
    assert world.state("urgent") in (JobState.RUNNING, JobState.SUCCEEDED)
    assert size(world, "elastic") == 6
    record = world.job("elastic")
    assert (record.attempt, record.evictions, record.moves, record.resized_to) == (2, (), (), None)
    live(world, 900)
    assert world.state("urgent") is JobState.SUCCEEDED
    record = world.job("elastic")
    assert (size(world, "elastic"), record.attempt, len(record.moves)) == (8, 3, 1)
    kinds = [entry.kind for entry in world.store.events(subject="job elastic")]
    assert kinds.count("resized") == 2
