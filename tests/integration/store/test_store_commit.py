"""Committing decisions, on every backend: all of it, or nothing where a row moved."""

from __future__ import annotations

from dataclasses import replace

import pytest
from store_world import World, a_decision, a_host, a_placement, a_rejection, check_books

from phalanx.model.decision import Preemption, Resize, Start
from phalanx.model.errors import InvalidInput, StaleTerm
from phalanx.model.host import HostState
from phalanx.model.intent import Want
from phalanx.model.job import Elastic
from phalanx.model.job_state import JobState, StopCause
from phalanx.model.reservation import Reservation


def promise(job: str, name: str = "r1", start_s: int = 9000) -> Reservation:
    return Reservation(id=name, job=job, placement=a_placement(["a1", "a2"]), planned_start_s=start_s, created_s=1000)


def everything(store):
    """All that a snapshot shows, the log's number included."""
    return store.snapshot(5000), store.intents("a"), store.intents("b")


def test_a_decision_over_unmoved_rows_is_committed_whole(world: World) -> None:
    world.submit("j1")
    world.submit("j2")
    world.submit("never")
    versions = {h.id: h.version for h in world.store.hosts()}
    starts = (world.a_start("j1", ["a1"]), world.a_start("j2", ["b1"]))
    assert world.decide(starts=starts, rejections=(a_rejection("never"),)).committed
    assert [world.state(n) for n in ("j1", "j2", "never")] == ["planned", "planned", "rejected"]
    assert [i.job.id for i in world.store.intents("a")] == ["j1"]
    assert [i.job.id for i in world.store.intents("b")] == ["j2"]
    moved = {h.id for h in world.store.hosts() if h.version != versions[h.id]}
    assert moved == {"a1", "b1"}
    check_books(world.store)


@pytest.mark.parametrize("moved", ["host", "job", "victim", "rejected", "reservation", "release"])
def test_one_moved_row_refuses_the_whole_decision(world: World, moved: str) -> None:
    for name in ("low", "j1", "never", "waits"):
        world.submit(name)
    world.run("low", ["a2"])
    world.decide(reservations=(promise("waits"), promise("waits", "r2")))
    snapshot = world.store.snapshot(world.now)
    parts = {
        "starts": (world.a_start("j1", ["a1"]),),
        "preemptions": (Preemption(job="low", attempt=1, beneficiaries=("j1",), loss_gpu_s=1),),
        "rejections": (a_rejection("never"),),
        "reservations": (replace(snapshot.reservations[0], planned_start_s=8000),),
        "releases": ("r2",),
    }
    expected = {
        "host": lambda: world.host_is("a1", HostState.SUSPECT),
        "job": lambda: world.store.set_priority("j1", 5, now_s=world.now),
        "victim": lambda: world.progress("low", 60),
        "rejected": lambda: world.store.cancel("never", now_s=world.now),
        "reservation": lambda: world.decide(reservations=(promise("waits", start_s=7000),)),
        "release": lambda: world.decide(releases=("r2",)),
    }
    expected[moved]()
    before = everything(world.store)
    outcome = world.decide(snapshot, **parts)
    names = {
        "host": "host a1",
        "job": "job j1",
        "victim": "job low",
        "rejected": "job never",
        "reservation": "reservation r1",
        "release": "reservation r2",
    }
    assert (outcome.committed, outcome.conflicts) == (False, (names[moved],))
    assert everything(world.store) == before


def test_rows_that_a_decision_does_not_touch_may_move(world: World) -> None:
    world.submit("j1")
    snapshot = world.store.snapshot(world.now)
    start = world.a_start("j1", ["a1"])
    world.submit("newer")
    world.host_is("a2", HostState.DOWN)
    world.store.set_priority("newer", 3, now_s=world.now)
    assert world.decide(snapshot, starts=(start,)).committed


def test_two_decisions_over_one_host_cannot_both_stand(world: World) -> None:
    world.submit("j1")
    world.submit("j2")
    snapshot = world.store.snapshot(world.now)
    assert world.decide(snapshot, starts=(world.a_start("j1", ["a1"]),)).committed
    second = world.decide(snapshot, starts=(world.a_start("j2", ["a1"]),))
    assert second.conflicts == ("host a1",)


def test_a_release_moves_the_versions_of_its_hosts(world: World) -> None:
    world.submit("j1", workers=2)
    world.run("j1", ["a1", "b1"])
    before = {h.id: h.version for h in world.store.hosts()}
    world.finish("j1")
    after = {h.id: h.version for h in world.store.hosts()}
    assert {h for h in after if after[h] != before[h]} == {"a1", "b1"}


def test_a_plan_without_its_hosts_is_refused(world: World) -> None:
    world.submit("j1", workers=2)
    snapshot = world.store.snapshot(world.now)
    for hosts in ([], ["a1"]):
        start = Start(job="j1", attempt=1, placement=a_placement(hosts))
        assert world.decide(snapshot, starts=(start,)).conflicts == ("job j1",)
    ghost = Start(job="j1", attempt=1, placement=a_placement(["a1", "ghost"]))
    assert world.decide(snapshot, starts=(ghost,)).conflicts == ("host ghost",)
    unknown = Start(job="nobody", attempt=1, placement=a_placement(["a1"]))
    assert world.decide(snapshot, starts=(unknown,)).conflicts == ("job nobody",)
    world.store.put_host(a_host("a7"), now_s=world.now)
    later = Start(job="j1", attempt=1, placement=a_placement(["a1", "a7"]))
    assert world.decide(snapshot, starts=(later,)).conflicts == ("host a7",)
    world.host_is("a2", HostState.CORDONED)
    cordoned = Start(job="j1", attempt=1, placement=a_placement(["a1", "a2"]))
    assert world.decide(starts=(cordoned,)).conflicts == ("host a2",)
    assert world.store.snapshot(world.now).jobs == snapshot.jobs


def test_an_attempt_out_of_turn_is_an_error(world: World) -> None:
    world.submit("j1")
    start = Start(job="j1", attempt=3, placement=a_placement(["a1"]))
    with pytest.raises(InvalidInput, match="attempt 3 of job j1; expected attempt 1"):
        world.decide(starts=(start,))


def test_a_fault_in_the_middle_undoes_everything(world: World) -> None:
    world.submit("j1")
    before = everything(world.store)
    start = world.a_start("j1", ["a1"])
    with pytest.raises(Exception, match="job j1 is planned and cannot become planned"):
        world.decide(starts=(start, start))
    assert everything(world.store) == before


def test_only_the_leader_in_office_may_commit(world: World) -> None:
    world.submit("j1")
    snapshot = world.store.snapshot(world.now)
    decision = a_decision(snapshot, starts=(world.a_start("j1", ["a1"]),))
    other = world.store.acquire("scheduler", "loop-2", ttl_s=10, now_s=world.now + 2 * 10**6)
    assert other.term == world.term + 1
    with pytest.raises(StaleTerm, match="term 1 of lease 'scheduler' has passed; loop-2 leads with term 2"):
        world.store.commit(decision, snapshot, term=world.term, now_s=world.now)
    world.store.release(other)
    with pytest.raises(StaleTerm, match="nobody holds"):
        world.store.commit(decision, snapshot, term=other.term, now_s=world.now)
    assert world.state("j1") is JobState.QUEUED


def test_reservations_are_kept_changed_and_dropped(world: World) -> None:
    world.submit("big", workers=2)
    assert world.decide(reservations=(promise("big"),)).committed
    (kept,) = world.store.snapshot(world.now).reservations
    assert kept == replace(promise("big"), version=1)
    number = world.store.snapshot(world.now).version
    assert world.decide(reservations=(kept,)).committed
    assert world.store.snapshot(world.now).version == number
    assert world.decide(reservations=(replace(kept, planned_start_s=5000),)).committed
    (kept,) = world.store.snapshot(world.now).reservations
    assert (kept.planned_start_s, kept.version) == (5000, 2)
    assert world.decide(releases=("r1",)).committed
    assert world.store.snapshot(world.now).reservations == ()


@pytest.mark.parametrize("end", ["start", "cancel", "hold", "expire"])
def test_a_promise_ends_when_its_job_leaves_the_queue(world: World, end: str) -> None:
    world.submit("big", workers=2, queue_deadline_s=50)
    world.decide(reservations=(promise("big"),))
    if end == "start":
        world.decide(starts=(world.a_start("big", ["a1", "a2"]),), releases=("r1",))
    elif end == "expire":
        world.store.sweep(world.now + 50)
    else:
        getattr(world.store, end)("big", now_s=world.now)
    assert world.state("big") is not JobState.QUEUED
    assert world.store.snapshot(world.now).reservations == ()


def test_a_promise_to_a_job_that_left_meanwhile_is_refused(world: World) -> None:
    world.submit("big", workers=2)
    snapshot = world.store.snapshot(world.now)
    world.store.cancel("big", now_s=world.now)
    assert world.decide(snapshot, reservations=(promise("big"),)).conflicts == ("job big",)


def test_an_elastic_job_starts_at_any_of_its_sizes(world: World) -> None:
    elastic = Elastic(role="worker", sizes=(1, 2, 3))
    world.submit("j1", workers=3, elastic=elastic)
    snapshot = world.store.snapshot(world.now)
    assert world.decide(snapshot, starts=(world.a_start("j1", ["a1", "a2"]),)).committed
    world.running("j1")
    resize = Resize(job="j1", attempt=2, placement=a_placement(["a1"]))
    assert world.decide(resizes=(resize,)).committed
    record = world.store.job("j1")
    assert (record.stop_cause, record.message) == (StopCause.REQUEUED, "to run with 1 workers")
    assert (record.replacing, record.resized_to, record.moves) == (("a1",), 1, ())
    # Its grace, cleaning, the launch and a start may take that long.
    assert record.replacing_until_s == world.now + 30 + 10 + 30 + 300
    world.released("j1")
    record = world.store.job("j1")
    assert (record.state, record.replacing, record.resized_to) == (JobState.QUEUED, ("a1",), 1)
    assert world.decide(starts=(world.a_start("j1", ["a1"]),)).committed
    record = world.store.job("j1")
    assert (record.replacing, record.replacing_until_s, record.resized_to) == ((), 0, None)


def test_a_moved_job_keeps_the_time(world: World) -> None:
    world.submit("j1")
    world.plan("j1")
    world.running("j1")
    moved = Resize(job="j1", attempt=2, placement=a_placement(["a2"]))
    assert world.decide(resizes=(moved,)).committed
    record = world.store.job("j1")
    assert (record.moves, record.replacing, record.message) == ((world.now,), ("a2",), "to run on a2")
    assert world.store.events(subject="job j1")[-1].kind == "moved"


def test_a_planned_job_can_be_preempted(world: World) -> None:
    world.submit("low")
    world.plan("low")
    world.submit("high", tier=1)
    world.plan("high", victims=["low"])
    assert world.store.job("low").stop_cause is StopCause.PREEMPTED
    assert [(i.job.id, i.want) for i in world.store.intents("a")] == [("low", Want.STOP)]


def test_an_empty_decision_writes_nothing(world: World) -> None:
    before = everything(world.store)
    assert world.decide().committed
    assert everything(world.store) == before
