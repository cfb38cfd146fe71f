"""The log, leases, rounds, teams' usage, on every backend."""

from __future__ import annotations

import json

import pytest
from store_world import World, a_decision

from phalanx.adapters.ports import RoundRecord, StageTime
from phalanx.adapters.store.core import Retention
from phalanx.model.errors import InvalidInput, NotFound
from phalanx.model.job import CheckpointPolicy
from phalanx.model.team import GpuQuota, Team, Usage


def test_the_log_tells_in_order_what_was_asked_and_what_happened(world: World) -> None:
    start = world.store.snapshot(1).version
    world.submit("j1")
    world.store.set_priority("j1", 4, now_s=world.now)
    world.run("j1")
    world.store.cancel("j1", now_s=world.now)
    world.released("j1")
    entries = world.store.events(after=start)
    kinds = ["submitted", "priority", "planned", "gang_reserved", "gang_running", "cancel", "gang_released"]
    assert [entry.kind for entry in entries] == kinds
    assert {entry.subject for entry in entries} == {"job j1"}
    assert [entry.number for entry in entries] == list(range(start + 1, start + 8))
    assert json.loads(entries[1].document)["priority"] == 4
    assert json.loads(entries[2].document)["hosts"] == ["a1"]
    assert world.store.events(after=start, limit=2) == entries[:2]
    assert world.store.events(after=start + 7) == ()
    assert world.store.snapshot(1).version == start + 7


def test_a_note_is_an_entry_that_changes_nothing_else(world: World) -> None:
    world.submit("j1")
    before = world.store.snapshot(1)
    number = world.store.note("forecast", "job j1", '{"start_s":7}', now_s=world.now)
    assert number == before.version + 1
    (entry,) = world.store.events(after=before.version)
    assert (entry.number, entry.kind, entry.subject, entry.document) == (number, "forecast", "job j1", '{"start_s":7}')
    assert world.store.snapshot(1).jobs == before.jobs


def test_what_changes_nothing_is_not_logged(world: World) -> None:
    world.submit("j1")
    number = world.store.snapshot(1).version
    world.store.resume("j1", now_s=world.now)
    world.store.set_priority("j1", 0, now_s=world.now)
    world.store.sweep(world.now)
    assert world.store.snapshot(1).version == number


def test_a_lease_is_one_holders_until_it_runs_out(world: World) -> None:
    take = world.store.acquire
    first = take("adapter:a", "p1", ttl_s=10, now_s=100)
    assert (first.term, first.expires_s) == (1, 110)
    assert take("adapter:a", "p2", ttl_s=10, now_s=109) is None
    renewed = take("adapter:a", "p1", ttl_s=10, now_s=109)
    assert (renewed.term, renewed.expires_s) == (1, 119)
    second = take("adapter:a", "p2", ttl_s=10, now_s=119)
    assert (second.holder, second.term) == ("p2", 2)
    world.store.release(renewed)
    assert take("adapter:a", "p3", ttl_s=10, now_s=120) is None
    world.store.release(second)
    assert take("adapter:a", "p3", ttl_s=10, now_s=120).term == 3
    assert take("adapter:b", "p3", ttl_s=10, now_s=120).term == 1
    with pytest.raises(InvalidInput, match="holder"):
        take("adapter:a", "", ttl_s=10, now_s=0)
    with pytest.raises(InvalidInput, match="ttl_s"):
        take("adapter:a", "p1", ttl_s=0, now_s=0)


def test_rounds_are_kept_with_their_snapshots(world: World) -> None:
    world.submit("j1", checkpoint=CheckpointPolicy(interval_s=60))
    snapshot = world.store.snapshot(world.now)
    decision = a_decision(snapshot, starts=(world.a_start("j1", ["a1"]),))
    record = RoundRecord(
        number=0,
        at_s=world.now,
        outcome="violation",
        decision=decision,
        snapshot=snapshot,
        times=(StageTime(stage="greedy", milliseconds=12),),
        violations=("host a1: 9 of 8 GPUs",),
    )
    assert [world.store.record_round(record) for _ in range(3)] == [1, 2, 3]
    stored = world.store.round(2)
    assert (stored.number, stored.decision, stored.snapshot) == (2, decision, snapshot)
    assert (stored.times, stored.violations, stored.outcome) == (record.times, record.violations, "violation")
    listed = world.store.rounds(limit=2)
    assert [(r.number, r.snapshot, r.decision) for r in listed] == [(3, None, decision), (2, None, decision)]
    assert [r.number for r in world.store.rounds(before=2)] == [1]
    with pytest.raises(NotFound, match="there is no round 9"):
        world.store.round(9)


def test_old_rounds_snapshots_and_log_are_dropped(backend) -> None:
    store = backend.open(retention=Retention(rounds=4, snapshots=2, log=3))
    world = World(store)
    for number in range(6):
        world.submit(f"j{number}")
    snapshot = store.snapshot(1)
    record = RoundRecord(number=0, at_s=1, outcome="nothing", decision=a_decision(snapshot), snapshot=snapshot)
    for _ in range(7):
        store.record_round(record)
    assert [r.number for r in store.rounds()] == [7, 6, 5, 4]
    assert [store.round(n).snapshot is None for n in (4, 5, 6, 7)] == [True, True, False, False]
    entries = store.events()
    assert [entry.subject for entry in entries] == ["job j3", "job j4", "job j5"]
    assert store.snapshot(1).version == entries[-1].number
    world.submit("j9")
    assert store.events(after=entries[-1].number)[0].number == entries[-1].number + 1


def test_usage_is_charged_decayed_and_shown_while_running(world: World) -> None:
    def red(now_s: int) -> Team:
        return next(team for team in world.store.snapshot(now_s).teams if team.id == "red")

    world.submit("j1")
    world.run("j1")
    assert red(world.now + 100).usage.gpu_milli_s == 8_000 * 100
    world.now += 3_600
    world.finish("j1")
    assert red(world.now).usage.gpu_milli_s == 8_000 * 3_600
    assert red(world.now).usage.cpu_milli_s == 1_000 * 3_600
    week = world.now + 7 * 86_400
    assert (red(week).usage.gpu_milli_s, red(week).spent_gpu_s) == (8_000 * 1_800, 8 * 3_600)
    world.store.put_teams([Team(id="red", weight=7)])
    assert (red(week).weight, red(week).usage.gpu_milli_s) == (7, 8_000 * 1_800)


def test_teams_are_stored_whole(world: World) -> None:
    team = Team(
        id="green",
        parent="red",
        weight=3,
        limit=(GpuQuota(gpu_type="H100", gpu_milli=4_000),),
        usage=Usage(gpu_milli_s=5),
        budget_gpu_s=100,
    )
    world.store.put_teams([team])
    assert {t.id: t for t in world.store.snapshot(1).teams}["green"] == team
    with pytest.raises(InvalidInput, match=r"teams\[0\].parent: there is no team 'nobody'"):
        world.store.put_teams([Team(id="grey", parent="nobody")])
    assert "grey" not in {t.id for t in world.store.snapshot(1).teams}
    world.store.put_teams([Team(id="red", parent="blue")])
    with pytest.raises(InvalidInput, match="a loop"):
        world.store.put_teams([Team(id="blue", parent="green")])
    assert len(world.store.snapshot(1).teams) == 3
