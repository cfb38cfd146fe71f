"""R4: a host dies under gangs that cross. Each is broken and removed whole; nothing waits half held."""

from __future__ import annotations

from phalanx.adapters.fakes.executor import Script
from phalanx.model.host import HostState
from phalanx.model.job_state import JobState


def test_crossing_gangs_are_removed_whole_and_start_again(world) -> None:
    forever = Script(run_s=None)
    world.start("a", ("h0", 0), ("h1", 0), script=forever)
    world.start("b", ("h1", 1), ("h2", 0), script=forever)
    world.run(5)
    assert (world.state("a"), world.state("b")) == (JobState.RUNNING, JobState.RUNNING)
    submitted_s = world.job("a").submitted_s

    world.executor.lose_host("h1")
    world.run(12)
    assert world.host("h1").state is HostState.DOWN
    assert (world.state("a"), world.state("b")) == (JobState.QUEUED, JobState.QUEUED)
    assert world.executor.observe().gangs == ()
    assert world.job("a").submitted_s == submitted_s

    world.plan("a", ("h0", 0), ("h2", 0))
    world.run(5)
    assert (world.state("a"), world.job("a").attempt) == (JobState.RUNNING, 2)
    assert world.state("b") is JobState.QUEUED

    world.executor.return_host("h1")
    world.run(7)
    assert world.host("h1").state is HostState.READY
    assert set(world.executor.launches.values()) == {1}


def test_a_silent_host_is_not_a_lost_one(world) -> None:
    """R13: nothing is restarted while nobody knows; what runs on it runs on."""
    world.start("j", ("h0", 0), ("h1", 0), script=Script(run_s=None))
    world.run(5)
    world.executor.silence("h1")
    world.run(60)
    assert (world.state("j"), world.job("j").attempt) == (JobState.RUNNING, 1)

    world.store.cancel("j", now_s=world.clock.now_s())
    world.run(30)
    assert world.state("j") is JobState.STOPPING, "its cards are not free while nobody knows"

    world.executor.return_host("h1")
    world.run(5)
    assert world.state("j") is JobState.CANCELLED
