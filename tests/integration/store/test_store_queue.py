"""Submitting and asking, on every backend."""

from __future__ import annotations

import pytest
from store_world import World, a_job, a_rejection, check_books

from phalanx.model.errors import IllegalTransition, InvalidInput, NotFound
from phalanx.model.job_state import JobState, StopCause


def test_a_submitted_job_is_queued_with_its_document(world: World) -> None:
    job = a_job("j1", workers=2, priority=7, tier=2)
    assert world.store.submit(job, now_s=50).created
    record = world.store.job("j1")
    assert (record.job, record.state, record.submitted_s, record.attempt) == (job, JobState.QUEUED, 50, 0)
    assert record.version == 1
    assert world.store.snapshot(60).jobs == (record,)


def test_the_same_client_key_returns_the_first_job(world: World) -> None:
    assert world.store.submit(a_job("j1"), now_s=1, client_key="k").created
    again = world.store.submit(a_job("j1"), now_s=2, client_key="k")
    renamed = world.store.submit(a_job("j2"), now_s=3, client_key="k")
    assert (again.job, again.created, renamed.job, renamed.created) == ("j1", False, "j1", False)
    assert len(world.store.jobs().jobs) == 1


@pytest.mark.parametrize(
    ("fields", "key", "words"),
    [
        ({"priority": 5}, "k", "client_key: 'k' was used for job 'j1'"),
        ({}, None, "id: a job named 'j1' exists"),
        ({"team": "green"}, None, "team: there is no team 'green'; expected one of blue, red"),
        ({"after": ("gone",)}, None, "after[0]: there is no job 'gone'; expected jobs that were submitted before"),
        ({}, "", "client_key: '' is not a key"),
        ({}, "a\0b", "client_key: "),
        ({}, "x" * 201, "client_key: "),
    ],
)
def test_a_submission_that_cannot_be_says_why(world: World, fields, key, words) -> None:
    world.store.submit(a_job("j1"), now_s=1, client_key="k")
    name = "j1" if not fields else "j2"
    with pytest.raises(InvalidInput) as caught:
        world.store.submit(a_job(name, **fields), now_s=2, client_key=key)
    assert words in str(caught.value)
    assert [r.id for r in world.store.jobs().jobs] == ["j1"]


@pytest.mark.parametrize("name", ["nobody", "", "a\0b", "\ud800", "x" * 5000, "../etc"])
def test_unknown_names_are_not_found(world: World, name: str) -> None:
    for ask in (world.store.job, world.store.host):
        with pytest.raises(NotFound):
            ask(name)
    for change in (world.store.cancel, world.store.hold, world.store.resume):
        with pytest.raises(NotFound):
            change(name, now_s=1)
    assert world.store.jobs(team=name).jobs == ()
    assert world.store.events(subject=f"job {name}") == ()
    with pytest.raises(NotFound):
        world.store.round(77)


def test_a_job_waits_for_its_dependencies(world: World) -> None:
    world.submit("first")
    assert world.submit("second", after=("first",)).state is JobState.BLOCKED
    world.run("first")
    assert world.store.sweep(world.now) == ()
    world.finish("first")
    assert world.store.sweep(world.now) == ("job second is queued: its dependencies succeeded",)
    assert world.state("second") is JobState.QUEUED
    assert world.submit("third", after=("first",)).state is JobState.QUEUED


def test_a_job_fails_when_its_dependency_does(world: World) -> None:
    world.submit("first")
    world.submit("second", after=("first",))
    world.store.cancel("first", now_s=world.now)
    world.store.sweep(world.now)
    record = world.store.job("second")
    assert (record.state, record.message) == (JobState.FAILED, "it waits for job first, which ended cancelled")
    assert world.submit("third", after=("first",)).state is JobState.FAILED
    # Requeued, it waits again: the dependency may be requeued too.
    world.store.resume("first", now_s=world.now)
    assert world.store.resume("second", now_s=world.now).state is JobState.BLOCKED


def test_cancel_ends_a_waiting_job_at_once_and_stops_a_running_one(world: World) -> None:
    for name in ("waits", "held", "blocked", "runs"):
        world.submit(name, after=("waits",) if name == "blocked" else ())
    world.store.hold("held", now_s=world.now)
    world.run("runs")
    for name in ("waits", "held", "blocked"):
        assert world.store.cancel(name, now_s=world.now).state is JobState.CANCELLED
    stopping = world.store.cancel("runs", now_s=world.now)
    assert (stopping.state, stopping.stop_cause) == (JobState.STOPPING, StopCause.CANCELLED)
    assert world.store.cancel("runs", now_s=world.now) == stopping
    assert [i.want for i in world.store.intents("a")] == ["stop"]
    world.exited("runs", [-15])
    world.released("runs")
    ended = world.store.job("runs")
    assert (ended.state, ended.exit_code, ended.placement) == (JobState.CANCELLED, -15, None)
    assert world.store.cancel("runs", now_s=world.now) == ended
    check_books(world.store)


def test_hold_and_resume_keep_the_age(world: World) -> None:
    world.submit("j1")
    held = world.store.hold("j1", now_s=world.now + 5)
    assert (held.state, world.store.hold("j1", now_s=world.now + 6)) == (JobState.HELD, held)
    again = world.store.resume("j1", now_s=world.now + 9)
    assert (again.state, again.submitted_s) == (JobState.QUEUED, world.now)
    assert world.store.resume("j1", now_s=world.now + 9) == again


def test_a_running_job_is_stopped_before_it_is_held(world: World) -> None:
    world.submit("j1")
    world.run("j1")
    assert world.store.hold("j1", now_s=world.now).stop_cause is StopCause.HELD
    world.released("j1")
    assert world.state("j1") is JobState.HELD
    assert world.store.resume("j1", now_s=world.now).state is JobState.QUEUED


def test_a_hold_taken_back_while_stopping_requeues(world: World) -> None:
    world.submit("j1")
    world.run("j1")
    world.store.hold("j1", now_s=world.now)
    assert world.store.resume("j1", now_s=world.now).stop_cause is StopCause.REQUEUED
    world.released("j1")
    assert world.state("j1") is JobState.QUEUED


def test_ended_jobs_come_back_only_when_asked(world: World) -> None:
    world.submit("failed")
    world.run("failed")
    world.finish("failed", code=3)
    world.submit("expired", queue_deadline_s=10)
    world.now += 20
    world.store.sweep(world.now)
    assert world.state("expired") is JobState.EXPIRED
    for name in ("failed", "expired"):
        back = world.store.resume(name, now_s=world.now)
        assert (back.state, back.submitted_s, back.exit_code) == (JobState.QUEUED, world.now, None)
    assert world.store.sweep(world.now) == ()
    assert world.run("failed", ["a2"]).attempt == 2


def test_what_cannot_be_is_refused_with_the_jobs_story(world: World) -> None:
    world.submit("done")
    world.run("done")
    world.finish("done")
    for ask in (world.store.hold, world.store.resume):
        with pytest.raises(IllegalTransition, match=r"job done is succeeded and cannot become .* Its story: submitted"):
            ask("done", now_s=world.now)
    with pytest.raises(IllegalTransition, match="has ended succeeded"):
        world.store.set_priority("done", 3, now_s=world.now)
    world.submit("never")
    world.decide(rejections=(a_rejection("never"),))
    assert world.store.job("never").message == "no host has 9 GPUs"
    with pytest.raises(IllegalTransition, match="never is rejected"):
        world.store.resume("never", now_s=world.now)
    world.submit("ends")
    world.run("ends")
    world.exited("ends", [0])
    for ask in (world.store.hold, world.store.resume):
        with pytest.raises(IllegalTransition, match="is ending"):
            ask("ends", now_s=world.now)


def test_a_changed_priority_shows_everywhere(world: World) -> None:
    world.submit("j1", priority=1)
    assert world.store.set_priority("j1", 9, now_s=world.now).version == 2
    assert world.store.job("j1").job.priority == 9
    assert world.store.snapshot(world.now).jobs[0].job.priority == 9
    assert world.store.set_priority("j1", 9, now_s=world.now).version == 2
    with pytest.raises(InvalidInput, match="priority"):
        world.store.set_priority("j1", 10**9, now_s=world.now)


def test_pages_run_newest_first_without_gap_or_repeat(world: World) -> None:
    for number in range(7):
        world.submit(f"j{number}", team="red" if number % 2 else "blue")
    world.store.cancel("j3", now_s=world.now)
    seen, cursor = [], None
    while True:
        page = world.store.jobs(limit=3, cursor=cursor)
        seen += [record.id for record in page.jobs]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [f"j{number}" for number in range(6, -1, -1)]
    assert [r.id for r in world.store.jobs(states=[JobState.CANCELLED]).jobs] == ["j3"]
    assert [r.id for r in world.store.jobs(team="red", states=[JobState.QUEUED]).jobs] == ["j5", "j1"]
    assert world.store.jobs(limit=7).next_cursor is None
    for bad in ({"cursor": "x"}, {"cursor": "²"}, {"limit": 0}, {"limit": 5000}):
        with pytest.raises(InvalidInput):
            world.store.jobs(**bad)
