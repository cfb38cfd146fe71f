"""Several writers at once: conflicts are told, nothing is booked twice, nothing is applied twice."""

from __future__ import annotations

import threading
from collections import Counter

from store_world import HOSTS, World, a_decision, cards_held, check_books

from phalanx.model.errors import StaleTerm
from phalanx.model.event import GangRunning


def at_once(*actions) -> list:
    """Runs the actions in threads that start together; returns what they returned, or raises what one raised."""
    gate = threading.Barrier(len(actions))
    results, faults = [], []

    def run(action) -> None:
        gate.wait()
        try:
            results.append(action())
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return results


def test_of_two_decisions_over_one_host_one_is_refused(backend) -> None:
    world = World(backend.open())
    others = [backend.open() for _ in range(2)]
    for number in range(8):
        world.submit(f"j{number}")
    for number in range(0, 8, 2):
        names = [f"j{number}", f"j{number + 1}"]
        snapshot = world.store.snapshot(world.now)
        decisions = [a_decision(snapshot, starts=(world.a_start(name, [HOSTS[number // 2]]),)) for name in names]

        def commit(store, decision, snapshot=snapshot):
            return store.commit(decision, snapshot, term=world.term, now_s=world.now)

        outcomes = at_once(*[lambda s=s, d=d: commit(s, d) for s, d in zip(others, decisions, strict=True)])
        assert sorted(outcome.committed for outcome in outcomes) == [False, True]
        assert {c for o in outcomes for c in o.conflicts} == {f"host {HOSTS[number // 2]}"}
    assert all(len(owners) == 1 for owners in cards_held(world.store).values())
    assert len(cards_held(world.store)) == 32
    check_books(world.store)


def test_an_event_told_by_many_counts_once(backend) -> None:
    world = World(backend.open())
    world.submit("j1")
    world.plan("j1")
    event = GangRunning(id="j1/1/running", at_s=world.now, job="j1", attempt=1)
    stores = [backend.open() for _ in range(4)]
    assert sorted(at_once(*[lambda s=s: s.append([event, event], now_s=world.now) for s in stores])) == [0, 0, 0, 1]
    assert Counter(e.kind for e in world.store.events(subject="job j1"))["gang_running"] == 1


def test_of_many_who_reach_for_a_lease_one_leads(backend) -> None:
    world = World(backend.open())
    stores = [backend.open() for _ in range(5)]
    now_s = world.now + 2 * 10**6
    leases = at_once(
        *[lambda s=s, n=n: s.acquire("scheduler", f"p{n}", ttl_s=9, now_s=now_s) for n, s in enumerate(stores)]
    )
    (leader,) = [lease for lease in leases if lease is not None]
    assert leader.term == world.term + 1
    world.submit("j1")
    snapshot = world.store.snapshot(world.now)
    decision = a_decision(snapshot, starts=(world.a_start("j1", ["a1"]),))

    def deposed() -> str:
        try:
            world.store.commit(decision, snapshot, term=world.term, now_s=now_s)
        except StaleTerm:
            return "stale"
        return "committed"

    assert at_once(deposed, deposed) == ["stale", "stale"]
    assert world.store.commit(decision, snapshot, term=leader.term, now_s=now_s).committed


def test_a_reader_that_polls_the_log_misses_nothing(backend) -> None:
    world = World(backend.open())
    writers = [backend.open() for _ in range(3)]
    reader = backend.open()
    start = reader.snapshot(1).version
    seen: list[int] = []
    done = threading.Event()

    def read() -> None:
        last = start
        while True:
            ended = done.is_set()
            new = reader.events(after=last, limit=7)
            seen.extend(entry.number for entry in new)
            if new:
                last = new[-1].number
            elif ended:
                return

    def write(number: int) -> None:
        other = World.__new__(World)
        other.store, other.now = writers[number], world.now
        for index in range(15):
            other.submit(f"w{number}-{index}")

    polling = threading.Thread(target=read)
    polling.start()
    at_once(*[lambda n=n: write(n) for n in range(3)])
    done.set()
    polling.join()
    assert seen == [entry.number for entry in reader.events(after=start)]
    assert len(seen) == 45


def test_a_snapshot_is_one_moment(backend) -> None:
    """A job's submission and its log entry come together: the snapshot's version counts what it shows."""
    world = World(backend.open())
    writer, reader = backend.open(), backend.open()
    base = reader.snapshot(1).version
    stop = threading.Event()

    def write() -> None:
        other = World.__new__(World)
        other.store, other.now = writer, world.now
        for index in range(30):
            other.submit(f"j{index}")
        stop.set()

    def read() -> int:
        looks = 0
        while not stop.is_set():
            snapshot = reader.snapshot(1)
            assert snapshot.version - base == len(snapshot.jobs)
            looks += 1
        return looks

    assert None in at_once(write, read)
