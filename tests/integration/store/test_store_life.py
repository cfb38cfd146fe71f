"""The life of attempts, as events tell it, on every backend."""

from __future__ import annotations

from store_world import World, check_books

from phalanx.model.event import GangReleased, GangReserved
from phalanx.model.host import HostState
from phalanx.model.intent import Want
from phalanx.model.job import CheckpointPolicy
from phalanx.model.job_state import JobState, StopCause


def test_an_attempt_from_plan_to_success(world: World) -> None:
    world.submit("j1", workers=2, checkpoint=CheckpointPolicy(interval_s=600, grace_s=45))
    planned = world.plan("j1", ["a1", "a2"])
    assert (planned.state, planned.attempt, planned.planned_s) == (JobState.PLANNED, 1, world.now)
    (intent,) = world.store.intents("a")
    assert (intent.want, intent.term, intent.grace_s) == (Want.RUN, world.term, 45)
    assert (intent.job, intent.placement) == (planned.job, planned.placement)
    world.reserved("j1")
    assert world.state("j1") is JobState.STARTING
    world.now += 7
    world.running("j1")
    running = world.store.job("j1")
    assert (running.state, running.started_s, running.placement) == (JobState.RUNNING, world.now, planned.placement)
    world.exited("j1", [0, 0])
    stopping = world.store.job("j1")
    assert (stopping.state, stopping.stop_cause, stopping.exit_code) == (JobState.STOPPING, StopCause.FINISHED, 0)
    assert [i.want for i in world.store.intents("a")] == [Want.STOP]
    world.released("j1")
    ended = world.store.job("j1")
    assert (ended.state, ended.placement, ended.exit_code) == (JobState.SUCCEEDED, None, 0)
    assert world.store.intents("a") == ()
    assert world.store.snapshot(world.now).jobs == ()


def test_each_event_counts_once(world: World) -> None:
    world.submit("j1")
    world.plan("j1")
    assert [world.reserved("j1"), world.reserved("j1"), world.running("j1"), world.reserved("j1")] == [1, 0, 1, 0]
    assert [e.kind for e in world.store.events(subject="job j1")] == [
        "submitted",
        "planned",
        "gang_reserved",
        "gang_running",
    ]


def test_late_events_of_old_attempts_change_nothing(world: World) -> None:
    world.submit("j1")
    world.run("j1")
    world.exited("j1", lost_host="a1", codes=[])
    world.released("j1")
    record = world.run("j1", ["a2"])
    assert record.attempt == 2
    assert world.exited("j1", [1], attempt=1) == 0
    late = GangReserved(id="late", at_s=world.now, job="j1", attempt=1)
    assert world.tell(late, GangReleased(id="later", at_s=world.now, job="j1", attempt=1)) == 2
    assert world.store.job("j1") == record


def test_events_of_unknown_jobs_and_hosts_change_nothing(world: World) -> None:
    version = world.store.snapshot(1).version
    assert world.tell(GangReleased(id="x", at_s=1, job="ghost", attempt=4)) == 1
    assert world.host_is("ghost", HostState.DOWN) == 1
    assert world.store.snapshot(1).version == version + 2
    assert len(world.store.hosts()) == 4


def test_lost_forerunners_are_made_up_for(world: World) -> None:
    world.submit("j1")
    world.plan("j1")
    world.running("j1")
    assert world.state("j1") is JobState.RUNNING
    world.submit("j2")
    world.plan("j2", ["a2"])
    world.released("j2")
    assert world.state("j2") is JobState.QUEUED
    assert [i.job.id for i in world.store.intents("a")] == ["j1"]


def test_a_failing_rank_fails_the_job_without_restart(world: World) -> None:
    world.submit("j1", workers=2)
    world.run("j1", ["a1", "a2"])
    world.exited("j1", [0, 137])
    world.released("j1")
    record = world.store.job("j1")
    assert (record.state, record.exit_code, record.message) == (JobState.FAILED, 137, "exit code 137")
    assert record.restarts == 0


def test_success_during_a_cut_of_the_network_is_success(world: World) -> None:
    world.submit("j1", workers=2)
    world.run("j1", ["a1", "a2"])
    world.exited("j1", [0, 0], lost_host="a2")
    world.released("j1")
    record = world.store.job("j1")
    assert (record.state, record.attempt, record.message) == (JobState.SUCCEEDED, 1, "finished")


def test_a_lost_host_requeues_with_the_age_until_restarts_run_out(world: World) -> None:
    submitted = world.submit("j1", max_restarts=1).submitted_s
    world.run("j1")
    world.now += 500
    world.exited("j1", [], lost_host="a1")
    assert world.store.job("j1").stop_cause is StopCause.HOST_LOST
    world.released("j1")
    record = world.store.job("j1")
    assert (record.state, record.submitted_s, record.restarts) == (JobState.QUEUED, submitted, 1)
    assert (record.stop_cause, record.planned_s, record.started_s) == (None, None, None)
    # Its hosts, the lost one included, are held for it a while, until its next start.
    assert (record.replacing, record.replacing_until_s) == (("a1",), world.now + 300)
    world.run("j1", ["a2"])
    assert (world.store.job("j1").replacing, world.store.job("j1").replacing_until_s) == ((), 0)
    world.exited("j1", [], lost_host="a2")
    world.released("j1")
    record = world.store.job("j1")
    assert (record.state, record.message) == (JobState.FAILED, "its 1 restarts are used up: host a2 was lost")


def test_failed_starts_back_off_and_then_fail(world: World) -> None:
    world.submit("j1")
    waits = []
    for _ in range(8):
        world.plan("j1")
        world.start_failed("j1")
        assert world.store.job("j1").stop_cause is StopCause.START_FAILED
        world.released("j1")
        waits.append(world.store.job("j1").not_before_s - world.now)
        world.now += 10_000
    record = world.store.job("j1")
    assert waits[:7] == [10, 20, 40, 80, 160, 320, 640]
    assert (record.state, record.failed_starts) == (JobState.FAILED, 8)
    assert record.message.startswith("8 starts failed in a row, the last: the start failed: no such image")


def test_a_start_that_succeeds_ends_the_row_of_failures(world: World) -> None:
    world.submit("j1")
    world.plan("j1")
    world.start_failed("j1")
    world.released("j1")
    assert world.run("j1").failed_starts == 0


def test_a_preempted_job_returns_to_the_queue_with_its_age(world: World) -> None:
    world.submit("low")
    world.run("low")
    world.now += 100
    world.submit("high", tier=1)
    world.plan("high", victims=["low"])
    low = world.store.job("low")
    assert (low.state, low.stop_cause, low.evictions) == (JobState.STOPPING, StopCause.PREEMPTED, (world.now,))
    # Its hosts are promised to the beneficiary, which must not start before they are clean (K3).
    assert [(i.job.id, i.want) for i in world.store.intents("a")] == [("low", Want.STOP)]
    check_books(world.store)
    world.exited("low", [0])
    world.released("low")
    low = world.store.job("low")
    assert (low.state, low.submitted_s, low.exit_code) == (JobState.QUEUED, world.now - 100, None)
    assert [(i.job.id, i.want) for i in world.store.intents("a")] == [("high", Want.RUN)]


def test_a_stop_goes_to_the_executor_even_while_victims_are_there(world: World) -> None:
    world.submit("low")
    world.run("low")
    world.submit("high", tier=1)
    world.plan("high", victims=["low"])
    world.store.cancel("high", now_s=world.now)
    assert {i.job.id: i.want for i in world.store.intents("a")} == {"low": Want.STOP, "high": Want.STOP}


def test_cancelling_what_ends_anyway_leaves_the_end_alone(world: World) -> None:
    world.submit("j1")
    world.run("j1")
    world.exited("j1", [0])
    world.store.cancel("j1", now_s=world.now)
    world.released("j1")
    assert world.state("j1") is JobState.SUCCEEDED


def test_a_preempted_job_can_still_be_cancelled(world: World) -> None:
    world.submit("low")
    world.run("low")
    world.submit("high", tier=1)
    world.plan("high", victims=["low"])
    world.store.cancel("low", now_s=world.now)
    world.released("low")
    assert world.state("low") is JobState.CANCELLED
