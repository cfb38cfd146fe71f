"""The rows of large rounds: a world that a seed gives again, a store that goes on, stages and shares that add up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from phalanx.api.cli.root import guarded
from phalanx.bench import rows
from phalanx.bench.large import Size, fleet, jobs
from phalanx.bench.made_up import MadeUp
from phalanx.bench.round import bench
from phalanx.bench.rows import HELD_OUT, SEEDS, Row, levels, made_up, measure_row, percentile
from phalanx.bench.stages import STAGES, Course, Measured, Watch
from phalanx.model.decision import GoalStatus
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot

SMALL = Size(name="tiny", hosts=8, pending=6)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that takes a moment, under the name of the smallest."""
    monkeypatch.setitem(rows.ROWS, "100", Row(make=made_up(SMALL), must_s=1e-9, moonshot_s=1e-9))
    monkeypatch.setitem(rows.ROWS, "1250-shock", Row(make=made_up(SMALL), shock=True, must_s=1e9, moonshot_s=1.0))


def test_a_seed_gives_the_same_world_again() -> None:
    assert fleet(SMALL, 3) == fleet(SMALL, 3)
    assert fleet(SMALL, 3) != fleet(SMALL, 4)
    assert jobs(SMALL, 3, 2, 4) == jobs(SMALL, 3, 0, 6)[2:]


def test_the_fleet_carries_its_load_and_its_rules() -> None:
    snapshot: Snapshot = fleet(Size(name="mid", hosts=64, pending=0), 0)
    held = sum(record.job.gpu_milli for record in snapshot.jobs)
    whole = sum(host.gpu_milli for host in snapshot.hosts)
    assert 0.85 * whole < held < 0.95 * whole
    assert any(team.limit for team in snapshot.teams)
    assert len({host.path.site for host in snapshot.hosts}) == 2


def test_a_course_goes_on_from_round_to_round(tmp_path: Path) -> None:
    course = Course(MadeUp(SMALL, 1, Policy()), tmp_path)
    first, second = course.round(), course.round()
    course.close()
    assert (first.pending, first.violations, second.violations) == (6, 0, 0)
    assert set(first.cpu_s) == set(first.wall_s) <= set(STAGES)
    assert {"read", "greedy", "exact", "reasons", "verify", "pack", "commit"} <= set(first.cpu_s)
    assert first.cpu == pytest.approx(sum(first.cpu_s.values()))
    # One job ends and one comes; who started runs, who was stopped waits again.
    assert second.running == first.running + first.starts - first.preemptions - 1
    assert second.pending == first.pending - first.starts + first.preemptions + 1


@pytest.mark.usefixtures("tiny")
def test_a_row_counts_its_rounds_and_goals() -> None:
    measured = measure_row("100", (1, 2), 2, Policy())
    assert (measured["rounds"], measured["violations"], measured["state"]) == (4, 0, "steady")
    assert all(sum(shares.values()) <= 4 for shares in measured["goals"].values())
    assert list(measured["goals"]["order"]) == ["proven", "within_a_gang", "open"]
    assert measured["cpu_s"]["min"] <= measured["cpu_s"]["median"] <= measured["cpu_s"]["p95"]
    assert 95 <= sum(measured["shares"].values()) <= 105
    for its in measured["levels"].values():
        assert sum(its["start"].values()) <= sum(its["all"].values()) <= 4


@pytest.mark.usefixtures("tiny")
def test_rows_are_a_table_and_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(bench, ["round", "--row", "1250-shock", "--seed", "1", "--json"], "phalanx-bench") == 0
    told = json.loads(capsys.readouterr().out)
    assert [(row["state"], row["rounds"]) for row in told["rows"]] == [("shock", 1)]
    assert guarded(bench, ["round", "--row", "1250-shock", "--seed", "1"], "phalanx-bench") == 0
    out = capsys.readouterr().out
    assert all(stage in out for stage in STAGES)
    assert ": kept" in out


@pytest.mark.usefixtures("tiny")
def test_held_out_seeds_are_told_as_such_and_are_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(bench, ["round", "--row", "1250-shock", "--held-out"], "phalanx-bench") == 0
    assert f"held-out seeds {', '.join(map(str, HELD_OUT))}" in " ".join(capsys.readouterr().out.split())
    assert min(HELD_OUT) >= 100 > max(SEEDS)
    assert len(set(HELD_OUT)) == 3
    assert guarded(bench, ["round", "--row", "100", "--rounds", "1", "--seed", "1"], "phalanx-bench") == 0
    out = capsys.readouterr().out
    assert "missed by a factor of" in out
    assert "held-out" not in out


def test_a_level_is_as_good_as_the_worst_of_its_goals() -> None:
    proven, near, unknown = GoalStatus.PROVEN, GoalStatus.WITHIN_A_GANG, GoalStatus.OPEN
    told = levels(
        [{"start[1]": proven, "spare[1]": near, "economy": unknown}, {"start[1]": unknown, "start[3]": proven}]
    )
    assert list(told) == ["3", "1"]
    assert told["1"]["start"] == {"proven": 1, "within_a_gang": 0, "open": 1}
    assert told["1"]["all"] == {"proven": 0, "within_a_gang": 1, "open": 1}


def test_laps_of_one_name_are_added_up() -> None:
    measured = Measured()
    watch = Watch(measured)
    for stage in ("encode", "exact", "encode"):
        watch.lap(stage)
    assert list(measured.wall_s) == ["encode", "exact"]
    assert measured.wall == pytest.approx(sum(measured.wall_s.values()))


def test_rows_and_files_are_not_measured_together() -> None:
    assert guarded(bench, ["round"], "phalanx-bench") == 2
    assert guarded(bench, ["round", __file__, "--row", "100"], "phalanx-bench") == 2


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile(range(1, 21), 95) == 19
    assert percentile([7.0], 95) == 7.0
