"""Budgets on every backend: accepted as preemptible, demoted when all is spent, told once, back with a new month."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from store_world import World

from phalanx.model.job_state import JobState
from phalanx.model.team import Team

HOUR = 3_600
MAY = int(datetime(2026, 5, 10, tzinfo=UTC).timestamp())
JUNE = int(datetime(2026, 6, 1, tzinfo=UTC).timestamp())


def with_budget(world: World, hours: int, team: str = "blue") -> None:
    world.now = MAY
    world.store.put_teams([Team(id="red"), Team(id=team, budget_gpu_s=hours * HOUR)])


def notices(world: World) -> list[int]:
    found = [entry for entry in world.store.events(after=0, limit=1_000) if entry.kind == "budget_notice"]
    return [json.loads(entry.document)["percent"] for entry in found]


def test_a_request_beyond_what_is_left_is_accepted_as_preemptible(world: World) -> None:
    with_budget(world, 80)
    assert not world.submit("fits", team="blue", walltime_limit_s=10 * HOUR).demoted
    over = world.submit("over", team="blue", walltime_limit_s=10 * HOUR + 1)
    assert (over.demoted, over.level, over.state) == (True, 0, JobState.QUEUED)
    assert "80.0 are left of the budget of team blue" in over.message
    assert world.submit("production", team="blue", tier=2, walltime_limit_s=1_000 * HOUR).level == 2
    assert not world.submit("other", team="red", walltime_limit_s=1_000 * HOUR).demoted


def test_what_runs_drops_when_all_is_spent_and_comes_back_with_the_month(world: World) -> None:
    with_budget(world, 80)
    world.submit("j1", team="blue", walltime_limit_s=2_000 * HOUR, tier=4)
    world.store.put_teams([Team(id="red"), Team(id="blue", budget_gpu_s=20_000 * HOUR)])
    world.store.sweep(world.now)
    assert not world.store.job("j1").demoted
    world.run("j1")
    world.store.put_teams([Team(id="red"), Team(id="blue", budget_gpu_s=80 * HOUR)])
    start = world.store.job("j1").planned_s
    world.now = start + 8 * HOUR - 1
    world.store.sweep(world.now)
    assert notices(world) == []
    world.now += 1
    world.store.sweep(world.now)
    assert not world.store.job("j1").demoted
    assert notices(world) == [80]
    world.now = start + 10 * HOUR
    assert any("preemptible for money" in line for line in world.store.sweep(world.now))
    record = world.store.job("j1")
    assert (record.demoted, record.level, record.state) == (True, 0, JobState.RUNNING)
    assert world.store.sweep(world.now) == ()
    assert notices(world) == [80, 100]
    # June has all its money, but the job may cost more than that.
    world.now = JUNE + 60
    world.store.sweep(world.now)
    assert world.store.job("j1").demoted
    world.store.put_teams([Team(id="red"), Team(id="blue", budget_gpu_s=20_000 * HOUR)])
    world.store.sweep(world.now)
    assert not world.store.job("j1").demoted


def test_spending_counts_for_its_month_and_preemptible_work_at_its_price(world: World) -> None:
    with_budget(world, 1_000)
    world.now = JUNE - 10 * HOUR
    world.submit("j1", team="blue", walltime_limit_s=20 * HOUR)
    world.run("j1")
    planned_s = world.store.job("j1").planned_s
    world.now = JUNE - 1
    assert spent(world) == 8 * (JUNE - 1 - planned_s)
    world.now = JUNE + HOUR
    assert spent(world) == 8 * HOUR
    world.exited("j1", [0])
    world.released("j1")
    assert spent(world) == 8 * HOUR
    world.submit("cheap", team="blue", walltime_limit_s=1_000 * HOUR)
    world.run("cheap", ["a2"])
    assert world.store.job("cheap").demoted
    planned_s = world.store.job("cheap").planned_s
    world.now = planned_s + 10 * HOUR
    assert spent(world) == 8 * HOUR + 8 * 10 * HOUR * 30 // 100


def spent(world: World) -> int:
    return next(team.spent_gpu_s for team in world.store.snapshot(world.now).teams if team.id == "blue")
