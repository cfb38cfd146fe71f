"""Worlds from traces: the busiest moments, who runs and waits then, and what the trace brings next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from phalanx.api.cli.root import guarded
from phalanx.bench.queued import fullest
from phalanx.bench.real import Poured, Replayed, at_moment, busy_moments
from phalanx.bench.round import bench
from phalanx.bench.rows import ROWS
from phalanx.bench.stages import Course
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy

DAY = 86_400


def states(records: Sequence[Any]) -> dict[str, str]:
    return {record.id: record.state.value for record in records}


def replayed(workload: Any, at_s: int) -> Replayed:
    return Replayed(workload, Policy(), at_moment(workload, Policy(), at_s), "small")


def test_the_busiest_moment_of_each_day_comes_first(small: Any) -> None:
    jobs = [
        small.job("a", 100, 1_000, gpus=2),
        small.job("b", 200, 1_000, gpus=2),
        # Both are over when this one comes, on the same day.
        small.job("c", 5_000, 10, gpus=3),
        small.job("d", DAY + 50, 10, gpus=8),
        small.job("e", 2 * DAY + 70, 10, gpus=1),
    ]
    assert busy_moments(small.workload(jobs, [small.host("h")])) == [DAY + 50, 200, 2 * DAY + 70]


def test_who_was_there_and_fits_runs_since_it_was_submitted(small: Any) -> None:
    jobs = [
        small.job("gone", 0, 10, gpus=8),
        small.job("a", 20, 1_000, gpus=6),
        small.job("b", 30, 1_000, gpus=4),
        small.job("c", 40, 1_000, gpus=2),
        small.job("later", 500, 1_000, gpus=1),
    ]
    world = replayed(small.workload(jobs, [small.host("h")]), 60)
    assert states(world.start.jobs) == {"a": "running", "b": "queued", "c": "running"}
    assert world.start.now_s == 60
    assert [record.started_s for record in world.start.jobs] == [20, None, 40]


def test_the_trace_goes_on_from_end_to_arrival(small: Any) -> None:
    jobs = [
        small.job("a", 0, 1_000, gpus=6),
        small.job("b", 0, 3_000, gpus=2),
        small.job("c", 900, 10, gpus=1),
        small.job("d", 2_000, 10, gpus=1),
    ]
    world = replayed(small.workload(jobs, [small.host("h")]), 10)
    first_s, news = world.happens(10, world.start.jobs)
    assert (first_s, states(news)) == (900, {"c": "queued"})
    second_s, news = world.happens(first_s, world.start.jobs)
    assert (second_s, states(news)) == (1_000, {"a": "succeeded"})
    # At least a minute later, with all that happened meanwhile.
    third_s, news = world.happens(1_990, world.start.jobs[1:])
    assert (third_s, states(news)) == (2_050, {"d": "queued"})
    assert world.happens(9_000, ()) == (9_060, [])


def test_a_list_is_poured_until_it_is_full_and_churned(small: Any) -> None:
    jobs = [small.job(f"j{number}", number, 1_000, gpus=1) for number in range(20)]
    world = Poured(small.workload(jobs, [small.host("h"), small.host("g")]), Policy(), 0.5, 5, "small")
    assert list(states(world.start.jobs).values()) == ["running"] * 8 + ["queued"] * 5
    now_s, news = world.happens(world.start.now_s, world.start.jobs)
    assert now_s == world.start.now_s + 60
    assert sorted(states(news).values()) == ["queued", "succeeded"]


def test_rounds_of_a_trace_keep_all_rules(small: Any, tmp_path: Path) -> None:
    jobs = [small.job(f"j{n}", 40 * n, 400 + 90 * (n % 5), gpus=(1, 2, 4, 8)[n % 4]) for n in range(30)]
    workload = small.workload(jobs, [small.host("h"), small.host("g")])
    course = Course(replayed(workload, busy_moments(workload)[0]), tmp_path)
    measured = [course.round() for _ in range(6)]
    left = course.store.snapshot(course.now_s).jobs
    course.close()
    assert sum(each.violations for each in measured) == 0
    assert sum(each.starts for each in measured) > 0
    assert all(record.state in (JobState.RUNNING, JobState.QUEUED) for record in left)


@pytest.mark.parametrize("row", [name for name, row in ROWS.items() if row.real])
def test_a_missing_trace_is_said_with_what_to_do(row: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(bench, ["round", "--row", row, "--traces", str(tmp_path)], "phalanx-bench") == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "there is no such file" in told
    assert "docs/traces.md" in told


def test_a_row_reads_its_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = "job_id,team,submit_s,duration_s,num_workers,gpus_per_worker,cpu_per_worker,mem_gib_per_worker,gpu_type,priority_class,status\n"
    rows = [f"j{i},t{i % 2},{311 * i},{400 + 97 * (i % 7)},1,{(1, 2, 4, 8)[i % 4]},,,any,," for i in range(30)]
    hosts = "host_id,site_or_rack,gpu_type,num_gpus,cpu,mem_gib\nh0,,A100,8,,\nh1,,A100,8,,\n"
    for trace in ("lingjun2023", "openb2023"):
        (tmp_path / f"{trace}.jobs.csv").write_text(head + "\n".join(rows) + "\n")
    (tmp_path / "lingjun2023_fleet256.hosts.csv").write_text(hosts)
    (tmp_path / "openb2023.hosts.csv").write_text(hosts)
    monkeypatch.setenv("PHALANX_BENCH_CACHE", str(tmp_path / "cache"))
    for name in ("lingjun-256", "openb-1523"):
        make = ROWS[name].make
        assert make(0, tmp_path, Policy()).start == make(0, tmp_path, Policy()).start
    assert ROWS["openb-1523"].make(0, tmp_path, Policy()).start != ROWS["openb-1523"].make(1, tmp_path, Policy()).start
    assert len(list((tmp_path / "cache").glob("lingjun-all-*.json"))) == 6


def test_the_fullest_moment_of_each_day_is_kept(small: Any) -> None:
    jobs = [
        small.job(f"{day}-{n}", day * DAY + 700 * n, 20_000, gpus=8)
        for day, many in ((0, 3), (1, 5))
        for n in range(many)
    ]
    states = fullest(small.workload(jobs, [small.host("h")]), Policy(), 2)
    waiting = [[record.id for record in state.jobs if record.state is JobState.QUEUED] for state in states]
    assert waiting == [["1-1", "1-2", "1-3", "1-4"], ["0-1", "0-2"]]
    assert [state.now_s // DAY for state in states] == [1, 0]
