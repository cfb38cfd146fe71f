"""What time decides: timeouts, limits, deadlines, on every backend."""

from __future__ import annotations

import pytest
from store_world import World

from phalanx.model.event import GangReserved
from phalanx.model.job import Preemptible
from phalanx.model.job_state import JobState, StopCause


def test_a_start_that_takes_too_long_is_given_up(world: World) -> None:
    world.submit("j1", start_timeout_s=60)
    world.submit("j2")
    world.plan("j1", ["a1"])
    world.plan("j2", ["a2"])
    world.reserved("j2")
    world.now += 59
    assert world.store.sweep(world.now) == ()
    world.now += 1
    assert len(world.store.sweep(world.now)) == 1
    assert world.store.job("j1").stop_cause is StopCause.START_TIMEOUT
    world.now += 240
    world.store.sweep(world.now)
    assert world.store.job("j2").stop_cause is StopCause.START_TIMEOUT
    world.released("j1")
    record = world.store.job("j1")
    assert (record.state, record.failed_starts, record.not_before_s) == (JobState.QUEUED, 1, world.now + 10)


@pytest.mark.parametrize(
    ("fields", "limit_s"),
    [
        ({"walltime_limit_s": 100}, 100),
        ({"team": "red"}, 72 * 3600),
        ({"team": "blue"}, 24 * 3600),
        ({"preemptible": Preemptible.ANYTIME}, 4 * 3600),
    ],
)
def test_the_walltime_limit_stops_a_job(world: World, fields, limit_s) -> None:
    world.submit("j1", **fields)
    world.run("j1")
    start_s = world.now
    assert world.store.sweep(start_s + limit_s - 1) == ()
    world.store.sweep(start_s + limit_s)
    world.released("j1")
    record = world.store.job("j1")
    assert record.state is JobState.FAILED
    assert record.message == f"walltime limit: it ran {limit_s} s of the {limit_s} s allowed"


def test_walltime_adds_up_over_attempts_by_what_checkpoints_saved(world: World) -> None:
    world.submit("j1", walltime_limit_s=1000)
    world.run("j1")
    world.now += 700
    world.progress("j1", 600)
    world.now += 90
    world.exited("j1", [], lost_host="a1")
    world.released("j1")
    world.now += 5000
    record = world.run("j1", ["a2"])
    assert record.progress.saved_work_s == 600
    assert world.store.sweep(world.now + 399) == ()
    assert len(world.store.sweep(world.now + 400)) == 1


def test_a_victim_that_never_leaves_gives_its_beneficiary_back_to_the_queue(world: World) -> None:
    world.submit("low")
    world.run("low")
    world.submit("high", tier=1)
    world.plan("high", victims=["low"])
    world.now += 300 + 30 + 10 - 1
    assert world.store.sweep(world.now) == ()
    world.now += 1
    world.store.sweep(world.now)
    world.released("high")
    high = world.store.job("high")
    assert (high.state, high.failed_starts, high.not_before_s) == (JobState.QUEUED, 0, 0)


def test_a_queue_deadline_expires_waiting_jobs_only(world: World) -> None:
    world.submit("waits", queue_deadline_s=100)
    world.submit("held", queue_deadline_s=100)
    world.submit("runs", queue_deadline_s=100)
    world.store.hold("held", now_s=world.now)
    world.run("runs")
    world.now += 100
    world.store.sweep(world.now)
    assert [world.state(n) for n in ("waits", "held", "runs")] == ["expired", "expired", "running"]
    assert world.store.job("waits").message == "it waited 100 s; its queue deadline is 100 s"


def test_a_site_clock_that_is_off_does_not_turn_time_back(world: World) -> None:
    world.submit("j1")
    world.plan("j1")
    world.tell(GangReserved(id="early", at_s=3, job="j1", attempt=1))
    assert world.store.job("j1").state_since_s == world.now
    world.submit("j2")
    world.plan("j2", ["a2"])
    world.tell(GangReserved(id="ahead", at_s=10**9, job="j2", attempt=1))
    assert world.store.job("j2").state_since_s == world.now
