"""S4: what a user changes while the solver works is not lost; invariant 10: any moved row refuses the commit."""

from __future__ import annotations

import pytest
from store_world import World

from phalanx.model.job_state import JobState


def test_a_priority_changed_during_the_solve_refuses_the_commit(world: World) -> None:
    world.submit("j1", priority=1)
    snapshot = world.store.snapshot(world.now)
    world.store.set_priority("j1", 50, now_s=world.now)
    outcome = world.decide(snapshot, starts=(world.a_start("j1", ["a1"]),))
    assert (outcome.committed, outcome.conflicts) == (False, ("job j1",))
    assert (world.store.job("j1").job.priority, world.state("j1")) == (50, JobState.QUEUED)
    world.plan("j1")
    assert world.store.job("j1").job.priority == 50
    assert world.store.intents("a")[0].job.priority == 50


@pytest.mark.parametrize("ask", ["cancel", "hold"])
def test_a_job_taken_back_during_the_solve_does_not_start(world: World, ask: str) -> None:
    world.submit("j1")
    snapshot = world.store.snapshot(world.now)
    record = getattr(world.store, ask)("j1", now_s=world.now)
    assert world.decide(snapshot, starts=(world.a_start("j1", ["a1"]),)).conflicts == ("job j1",)
    assert world.store.job("j1") == record


def test_held_and_resumed_during_the_solve_is_a_change_too(world: World) -> None:
    world.submit("j1")
    snapshot = world.store.snapshot(world.now)
    world.store.hold("j1", now_s=world.now)
    world.store.resume("j1", now_s=world.now)
    assert world.decide(snapshot, starts=(world.a_start("j1", ["a1"]),)).conflicts == ("job j1",)


def test_submissions_during_the_solve_do_not_starve_decisions(world: World) -> None:
    world.submit("j1")
    snapshot = world.store.snapshot(world.now)
    for number in range(20):
        world.submit(f"new{number}")
    assert world.decide(snapshot, starts=(world.a_start("j1", ["a1"]),)).committed
