"""Invariant 9: a process killed at any moment loses nothing that it was told is done, and leaves no half of anything."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text
from store_world import World, check_books

from phalanx.model.job_state import JobState

WRITER = Path(__file__).with_name("writer.py")
ORDER = [JobState.QUEUED, JobState.PLANNED, JobState.RUNNING, JobState.STOPPING, JobState.SUCCEEDED]
KINDS = ["submitted", "planned", "gang_running", "gang_exited", "gang_released"]


def write_and_die(url: str, name: str, steps: int) -> list[str]:
    """Runs a writer for so many steps and a little, kills it, and returns all that it told."""
    command = [sys.executable, str(WRITER), url, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        told = [writer.stdout.readline().strip() for _ in range(steps)]
        writer.kill()
        told += writer.stdout.read().split("\n")[:-1]
    assert told[0] == "ready"
    return told[1:]


@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_told_is_there_after_a_kill(database, seed: int) -> None:
    World(database.open()).store.close()
    random.seed(seed)
    told = write_and_die(database.url, "w", random.randrange(30, 60))
    world = World(database.open(), fresh=False)
    check_books(world.store)
    last = dict(line.split() for line in told)
    for job, state in last.items():
        # The kill may fall between a commit and the telling of it: one step further, never one back.
        assert ORDER.index(world.state(job)) - ORDER.index(JobState(state)) in (0, 1)
        kinds = [entry.kind for entry in world.store.events(subject=f"job {job}")]
        assert kinds == KINDS[: ORDER.index(world.state(job)) + 1]
    numbers = [entry.number for entry in world.store.events(limit=10_000)]
    assert numbers == sorted(set(numbers))
    unfinished = [record.id for record in world.store.snapshot(1).jobs]
    assert len(unfinished) <= 1
    if database.url.startswith("sqlite"):
        with world.store.engine.connect() as connection:
            assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"
    # The next process goes on where the dead one stopped.
    for job in unfinished:
        if world.state(job) is JobState.QUEUED:
            world.plan(job, ["a1"])
        world.running(job)
        world.exited(job, [0])
        world.released(job)
        assert world.state(job) is JobState.SUCCEEDED
