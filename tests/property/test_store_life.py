"""K20, A4: over any sequence of requests, events, rounds and time, a job is in one state, capacity is held by placement
states only, no card has two owners, and the store in memory and the one on SQLite (opened again) tell the same.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "integration" / "store"))

from store_world import HOSTS, World, a_placement, cards_held, check_books

from phalanx.adapters.fakes.memory_store import MemoryStore
from phalanx.adapters.store.sql import open_store
from phalanx.model.errors import IllegalTransition
from phalanx.model.host import HostState
from phalanx.model.job_state import HOLDING, TRANSITIONS, JobState
from phalanx.model.reservation import Reservation

JOBS = ("j0", "j1", "j2", "j3")
EVICTABLE = (JobState.PLANNED, JobState.STARTING, JobState.RUNNING)

jobs = st.sampled_from(JOBS)
attempts = st.sampled_from([0, 0, 0, 0, -1, 1])
steps = st.one_of(
    st.tuples(st.just("submit"), jobs, st.sampled_from([(), ("j0",), ("j1",)]), st.sampled_from([None, 300])),
    st.tuples(st.sampled_from(["cancel", "hold", "resume"]), jobs),
    st.tuples(st.just("priority"), jobs, st.integers(0, 3)),
    st.tuples(st.just("plan"), jobs, st.sampled_from(HOSTS), st.booleans()),
    st.tuples(st.just("plan"), jobs, st.sampled_from(HOSTS), st.booleans()),
    st.tuples(st.just("promise"), jobs, st.sampled_from(HOSTS)),
    st.tuples(
        st.sampled_from(["reserved", "running", "running", "start_failed", "released", "released"]), jobs, attempts
    ),
    st.tuples(st.just("exited"), jobs, attempts, st.sampled_from([0, 0, 1, None])),
    st.tuples(st.just("progress"), jobs, st.integers(0, 500)),
    st.tuples(st.just("host"), st.sampled_from(HOSTS), st.sampled_from([HostState.READY, *HostState])),
    st.tuples(st.just("time"), st.sampled_from([1, 30, 400, 5000])),
)


def after_two(state: JobState) -> set[JobState]:
    """The states that one request or event may lead to: events may make up for a lost forerunner."""
    near = {state} | TRANSITIONS[state]
    return near | {further for middle in near for further in TRANSITIONS[middle]}


class Life:
    """Applies steps to one store, checking after each."""

    def __init__(self, store) -> None:
        self.world = World(store)

    def apply(self, step: tuple) -> None:
        before = self.states()
        kind, *rest = step
        if kind == "submit":
            self.submit(*rest)
        elif kind == "host":
            self.world.host_is(*rest)
        elif kind == "time":
            self.world.now += rest[0]
            self.world.store.sweep(self.world.now)
        elif rest[0] in before:
            getattr(self, kind, lambda *given: self.event(kind, *given))(*rest)
        for job, state in self.states().items():
            assert state in after_two(before.get(job, JobState.BLOCKED)), (job, before.get(job), state)
        check_books(self.world.store)
        assert all(len(owners) == 1 for owners in cards_held(self.world.store).values())

    def states(self) -> dict[str, JobState]:
        return {record.id: record.state for record in self.world.store.jobs().jobs}

    def submit(self, job: str, after: tuple[str, ...], deadline_s: int | None) -> None:
        known = self.states()
        if job not in known and set(after) <= set(known):
            self.world.submit(job, after=after, queue_deadline_s=deadline_s)

    def cancel(self, job: str) -> None:
        self.world.store.cancel(job, now_s=self.world.now)

    def hold(self, job: str) -> None:
        self.ask(self.world.store.hold, job)

    def resume(self, job: str) -> None:
        self.ask(self.world.store.resume, job)

    def priority(self, job: str, priority: int) -> None:
        self.ask(self.world.store.set_priority, job, priority)

    def ask(self, request, *args) -> None:
        # Only what a user asks may be illegal; events, rounds and time never are.
        with contextlib.suppress(IllegalTransition):
            request(*args, now_s=self.world.now)

    def plan(self, job: str, host: str, evict: bool) -> None:
        record = self.world.store.job(job)
        snapshot = self.world.store.snapshot(self.world.now)
        owners = [r for r in snapshot.jobs if r.state in HOLDING and host in r.placement.hosts]
        fits = not owners or (evict and all(owner.state in EVICTABLE for owner in owners))
        ready = self.world.store.host(host).state is HostState.READY
        if record.state is JobState.QUEUED and fits and ready:
            self.world.plan(job, [host], victims=[owner.id for owner in owners])

    def promise(self, job: str, host: str) -> None:
        if self.world.state(job) is JobState.QUEUED:
            promise = Reservation(
                id=f"r-{job}",
                job=job,
                placement=a_placement([host]),
                planned_start_s=self.world.now + 100,
                created_s=self.world.now,
            )
            assert self.world.decide(reservations=(promise,)).committed

    def event(self, kind: str, job: str, offset: int = 0) -> None:
        attempt = max(self.world.store.job(job).attempt + offset, 0)
        getattr(self.world, kind)(job, attempt=attempt)

    def exited(self, job: str, offset: int, code: int | None) -> None:
        attempt = max(self.world.store.job(job).attempt + offset, 0)
        lost = {"codes": [], "lost_host": "a1"} if code is None else {"codes": [code]}
        self.world.exited(job, attempt=attempt, **lost)

    def progress(self, job: str, saved_s: int) -> None:
        self.world.progress(job, saved_s)


def everything(store, now_s: int):
    return store.snapshot(now_s), store.jobs(), store.intents("a"), store.intents("b"), store.events()


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("store_life") / "template.db"
    open_store(f"sqlite:///{path}").close()
    return path


@settings(deadline=None, max_examples=60)
@given(st.lists(steps, min_size=10, max_size=60))
def test_one_state_and_no_card_twice_in_memory(steps) -> None:
    life = Life(MemoryStore())
    for number in (0, 1):
        life.submit(f"j{number}", (), None)
    for step in steps:
        life.apply(step)


@settings(deadline=None, max_examples=6)
@given(st.lists(steps, min_size=20, max_size=40))
def test_sqlite_opened_again_tells_what_memory_tells(template, steps) -> None:
    path = template.with_name("life.db")
    for old in template.parent.glob("life.db*"):
        old.unlink()
    shutil.copy(template, path)
    store = open_store(f"sqlite:///{path}")
    lives = Life(store), Life(MemoryStore())
    for step in steps:
        for life in lives:
            life.apply(step)
    store.close()
    again, now_s = open_store(f"sqlite:///{path}"), lives[0].world.now
    try:
        assert everything(again, now_s) == everything(lives[1].world.store, now_s)
    finally:
        again.close()
