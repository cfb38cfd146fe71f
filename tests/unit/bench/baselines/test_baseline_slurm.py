"""Slurm's priority factors are those of its manual, and its backfill delays no job of higher priority."""

from __future__ import annotations

from dataclasses import replace

import pytest
from small_worlds import NOW_S, box, gang, queued, running, world

from phalanx.bench.baselines.slurm import Slurm, Weights, fair_tree
from phalanx.model.ids import TeamId
from phalanx.model.policy import EvictionPolicy, Policy
from phalanx.model.snapshot import Snapshot
from phalanx.model.team import Team, Usage

EXACT = Policy(eviction=EvictionPolicy(launch_s=0, clean_s=0))
DAY = 86_400
TEAMS = (Team(id=TeamId("a")), Team(id=TeamId("b")))


def factors(snapshot: Snapshot, **weights: int) -> dict[str, int]:
    """The priorities with all weights 0 but these."""
    only = Weights(**{"qos": 0, "fair_share": 0, "size": 0, "age": 0, **weights})
    return dict(Slurm(only).priorities(snapshot, EXACT))


def tree(*teams: tuple[str, str | None, int, float]) -> dict[str, float]:
    made = {
        TeamId(name): Team(id=TeamId(name), parent=parent and TeamId(parent), weight=w) for name, parent, w, _ in teams
    }
    return dict(fair_tree(made, {TeamId(name): use for name, _, _, use in teams}))


def test_age_is_full_after_seven_days() -> None:
    jobs = [queued(gang(f"d{days}"), days * DAY) for days in (0, 1, 7, 10)]
    snapshot = world([box("h")], *jobs)
    assert factors(snapshot, age=700) == {"d0": 0, "d1": 100, "d7": 700, "d10": 700}


def test_size_is_the_share_of_the_fleet_and_favours_the_large() -> None:
    snapshot = world([box("h"), box("g")], gang("small", 1, 1), gang("large", 2, 8))
    assert factors(snapshot, size=1_600) == {"small": 100, "large": 1_600}


def test_a_tier_outranks_everything_else() -> None:
    old = queued(gang("old", 1, 8, tier=3), 10 * DAY)
    snapshot = world([box("h")], old, queued(gang("new", 1, 1, tier=2)))
    priority = Slurm().priorities(snapshot, EXACT)
    assert priority["new"] > priority["old"]


def test_fair_tree_ranks_siblings_by_share_over_use() -> None:
    # a and b have equal shares, b has used three times as much.
    assert tree(("a", None, 100, 1.0), ("b", None, 100, 3.0)) == {"a": 1.0, "b": 0.5}
    # With four times the shares, b is served less than its due.
    assert tree(("a", None, 100, 1.0), ("b", None, 400, 3.0)) == {"b": 1.0, "a": 0.5}


def test_fair_tree_puts_all_of_a_better_account_before_all_of_a_worse() -> None:
    found = tree(
        ("x", None, 100, 0.0),
        ("y", None, 100, 0.0),
        ("x1", "x", 100, 9.0),
        ("x2", "x", 100, 1.0),
        ("y1", "y", 100, 20.0),
    )
    assert found["x"] > found["x2"] > found["x1"] > found["y"] > found["y1"]
    assert found["x"] == 1.0
    assert found["y1"] == 0.2


def test_equal_siblings_share_a_rank_and_no_use_ranks_first() -> None:
    found = tree(("a", None, 100, 0.0), ("b", None, 300, 0.0), ("c", None, 100, 1.0))
    assert found == {"a": 1.0, "b": 1.0, "c": pytest.approx(1 / 3)}


def test_use_halves_in_seven_days_and_grows_by_what_is_held() -> None:
    scheduler = Slurm(Weights(qos=0, fair_share=1_000, size=0, age=0))
    teams = (replace(TEAMS[0], usage=Usage(gpu_milli_s=1_000 * DAY)), TEAMS[1])
    scheduler(world([box("h")], gang("a1", team="a", gpus=8), teams=teams), EXACT)
    busy = world([box("h")], running(gang("b1", 1, 8, team="b"), ("h", range(8))), teams=teams)
    # After 7 days a has 500 GPU-milli-days left; what it started in the first round was held all that time.
    scheduler(replace(busy, now_s=NOW_S + 7 * DAY), EXACT)
    assert scheduler._use["a"] == pytest.approx(500 * DAY + 8_000 * 7 * DAY)
    scheduler(replace(busy, now_s=NOW_S + 14 * DAY), EXACT)
    assert scheduler._use["a"] == pytest.approx((500 + 56_000) / 2 * DAY)
    assert scheduler._use["b"] == pytest.approx(56_000 * DAY)


def test_the_team_that_used_less_goes_first() -> None:
    teams = (replace(TEAMS[0], usage=Usage(gpu_milli_s=1_000 * DAY)), TEAMS[1])
    jobs = [queued(gang("a1", 1, 8, team="a"), 900), queued(gang("b1", 1, 8, team="b"), 60)]
    assert [start.job for start in Slurm()(world([box("h")], *jobs, teams=teams), EXACT).starts] == ["b1"]


def test_a_teams_own_priority_permutes_its_places_only() -> None:
    jobs = [
        queued(gang("a1", 1, 8, team="a"), 900),
        queued(gang("b1", 1, 8, team="b"), 600),
        queued(gang("a2", 1, 8, team="a", priority=5), 300),
    ]
    snapshot = world([box("h")], *jobs, teams=TEAMS)
    assert [start.job for start in Slurm()(snapshot, EXACT).starts] == ["a2"]


def test_backfill_delays_nobody_of_higher_priority() -> None:
    busy = replace(running(gang("r", 1, 6, walltime_limit_s=3_600), ("h", range(6))), started_s=NOW_S)
    other = replace(running(gang("s", 1, 3, walltime_limit_s=7_200), ("g", range(3))), started_s=NOW_S)
    hosts = [box("h"), box("g", 4, "A100")]
    waiting = [
        queued(gang("head", 1, 8, walltime_limit_s=7_200), 900),
        queued(gang("second", 1, 4, ("A100",), walltime_limit_s=600), 600),
        queued(gang("long", 1, 1, ("A100",), walltime_limit_s=9_000), 300),
        queued(gang("short", 1, 1, ("A100",), walltime_limit_s=7_200), 100),
    ]
    snapshot = world(hosts, busy, other, *waiting)
    assert [start.job for start in Slurm()(snapshot, EXACT).starts] == ["short"]
    # Planning for the head alone, as EASY does, lets the long one go before the second.
    shallow = Slurm(Weights(max_job_test=1))
    assert [start.job for start in shallow(snapshot, EXACT).starts] == ["long"]
