"""Metrics and comparisons against numbers worked out by hand."""

import pytest

from phalanx.bench.compare import compare
from phalanx.bench.metrics import measure, percentile, size_of, spread, weighted_wait
from phalanx.bench.run import Outcome, Rounds, Run, Sample, Span
from phalanx.model.job_state import JobState


def outcome(name: str, wait_s: int | None, gpus: int = 1, team: str = "t", level: int = 1, **more) -> Outcome:
    start_s = None if wait_s is None else 100 + wait_s
    return Outcome(
        job=name, team=team, tier=3, level=level, gpu_milli=1_000 * gpus, submit_s=100, measured=True, work_s=400,
        start_s=start_s, end_s=None if start_s is None else start_s + 400, state=JobState.SUCCEEDED, **more,
    )  # fmt: skip


def run(outcomes, samples=(), spans=(), name="r", **more) -> Run:
    return Run(
        scheduler=name, workload="w", seed=1, outcomes=list(outcomes), samples=list(samples), spans=list(spans),
        rounds=more.pop("rounds", Rounds()), window_s=1_000, end_s=2_000, events=10, cpu_s=2.0,
        setup_gpu_s=0.0, lost_gpu_s=0.0, useful_gpu_s=more.pop("useful", 0.0),
    )  # fmt: skip


def test_percentiles_are_values_that_occurred() -> None:
    assert [percentile(range(1, 101), share) for share in (0.01, 0.5, 0.9, 0.99, 1.0)] == [1, 50, 90, 99, 100]
    assert percentile([7], 0.5) == 7
    assert spread([]).count == 0


def test_allocation_over_the_window_and_while_jobs_wait() -> None:
    samples = [
        Sample(0, 4_000, 8_000, 0, 0, 4, 1),
        Sample(500, 8_000, 8_000, 2, 2_000, 0, 0),
        Sample(900, 6_000, 8_000, 1, 1_000, 2, 3),
        Sample(1_500, 0, 8_000, 0, 0, 8, 1),
    ]
    found = measure(run([outcome("a", 0, held_gpu_s=400)], samples, useful=300.0))
    assert found.allocation == pytest.approx((4 * 500 + 8 * 400 + 6 * 100) / 8_000)
    assert found.allocation_waiting == pytest.approx((8 * 400 + 6 * 100) / (8 * 500))
    assert found.waiting_share == 0.5
    assert found.goodput == pytest.approx(found.allocation * 0.75)
    assert found.stranded_gpus == pytest.approx(2 * 100 / 500)
    assert found.standard_gangs == pytest.approx(3 * 100 / 500)


def test_a_job_that_never_started_counts_with_what_it_waited() -> None:
    found = measure(run([outcome("a", 0), outcome("b", None)]))
    assert found.unstarted == 1
    assert found.wait.mean == 950


def test_waits_by_level_count_eight_four_two_one() -> None:
    assert weighted_wait(run([outcome("a", 90, level=3), outcome("b", 0, level=0)])) == 80


def test_jain_is_one_for_equal_shares_and_a_half_when_one_of_two_gets_all() -> None:
    jobs = [outcome("a", 0, team="x"), outcome("b", 0, team="y")]
    spans = [Span("a", "x", "h", (0,), 100, 500, 1)]
    assert measure(run(jobs, spans=spans)).fairness == 0.5
    both = [*spans, Span("b", "y", "h", (1,), 100, 500, 1)]
    assert measure(run(jobs, spans=both)).fairness == 1.0


def test_sizes_are_classed_by_gpus() -> None:
    assert [size_of(outcome("a", 0, gpus)) for gpus in (1, 2, 8, 16, 64)] == ["<=1", "2-4", "5-8", "9-16", ">=64"]


def test_goals_are_shares() -> None:
    found = measure(run([outcome("a", 0)], rounds=Rounds(seconds=[0.1, 0.3], proven=6, within=1, open=1)))
    assert (found.goals_proven, found.goals_within, found.goals_open) == (0.75, 0.125, 0.125)
    assert (found.round_p50_s, found.round_p95_s) == (0.1, 0.3)


def test_the_better_scheduler_is_better_in_each_resample_of_seeds() -> None:
    ours = [run([outcome("a", 50), outcome("b", 150)]), run([outcome("a", 60), outcome("b", 160)])]
    theirs = [
        run([outcome("a", 100), outcome("b", 300)], name="q"),
        run([outcome("a", 120), outcome("b", 320)], name="q"),
    ]
    mean = compare(ours, theirs)[0]
    assert (mean.measure, mean.scheduler, mean.over) == ("mean wait", "q", "2 seeds")
    assert mean.better == pytest.approx(0.5)
    assert mean.low == pytest.approx(0.5, abs=0.01)
    assert mean.high == pytest.approx(0.5, abs=0.01)


def test_equal_runs_show_no_difference_with_one_seed() -> None:
    jobs = [outcome(f"j{i}", 13 * i % 97, gpus=64 if i % 9 == 0 else 1) for i in range(60)]
    found = compare([run(jobs)], [run(jobs, name="q")])
    assert [each.measure for each in found][-1] == "p90 wait, >= 64 GPUs"
    assert {(each.better, each.low, each.high) for each in found} == {(0.0, 0.0, 0.0)}
    assert "blocks" in found[0].over


def test_no_rival_wait_means_no_percentage() -> None:
    found = compare([run([outcome("a", 5)])], [run([outcome("a", 0)], name="q")])[0]
    assert (found.better, found.low, found.high) == (None, None, None)
