"""Budgets on a tree of teams, prices, and who drops to preemptible for money."""

from __future__ import annotations

import pytest

from phalanx.model.budget import Budgets, charged_gpu_s, cost_gpu_s, dropped
from phalanx.model.job import Job, Role, WorkerRequest
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, Progress, WorkerPlacement
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord
from phalanx.model.team import Team

POLICY = Policy()
TREE = (
    Team(id="lab", budget_gpu_s=1_000, spent_gpu_s=100),
    Team(id="a", parent="lab", budget_gpu_s=500, spent_gpu_s=300),
    Team(id="b", parent="lab", spent_gpu_s=450),
    Team(id="free"),
)


def record(tier: int = 3, *, runs: bool = False, demoted: bool = False, **more: object) -> JobRecord:
    job = Job(id="j", team="a", tier=tier, roles=(Role(count=2, request=WorkerRequest(gpu_milli=4_000)),), **more)
    placement = Placement(workers=(WorkerPlacement(role="worker", index=0, host="h", gpus=(0,)),)) if runs else None
    state = JobState.RUNNING if runs else JobState.QUEUED
    return JobRecord(job=job, state=state, submitted_s=0, placement=placement, demoted=demoted)


def test_the_tightest_budget_of_the_line_counts_and_the_whole_tree_spends() -> None:
    budgets = Budgets(TREE)
    # The lab spent 850 of 1,000 with its teams; a itself 300 of 500.
    assert {name: budgets.left_gpu_s(name) for name in ("lab", "a", "b", "free")} == {
        "lab": 150,
        "a": 150,
        "b": 150,
        "free": None,
    }
    assert [budgets.share_spent(name) for name in ("lab", "a", "b")] == [850, 600, None]
    assert budgets.any
    assert not Budgets([Team(id="free")]).any
    assert Budgets([Team(id="x", budget_gpu_s=5, spent_gpu_s=9)]).left_gpu_s("x") == -4
    assert Budgets([Team(id="none", budget_gpu_s=0)]).share_spent("none") == 0


def test_a_job_may_cost_what_its_limit_leaves() -> None:
    job = record(walltime_limit_s=1_000)
    assert cost_gpu_s(job, False, 0, POLICY) == 8_000
    resumed = JobRecord(job=job.job, submitted_s=0, progress=Progress(saved_work_s=900))
    assert cost_gpu_s(resumed, False, 0, POLICY) == 800
    assert cost_gpu_s(record(), True, 0, POLICY) == 8 * 72 * 3_600


def test_preemptible_work_is_cheaper() -> None:
    assert [charged_gpu_s(1_000, level, POLICY) for level in (0, 1, 2, 3)] == [300, 1_000, 1_000, 1_000]


@pytest.mark.parametrize(
    ("job", "left", "cost", "drops"),
    [
        (record(), 100, 100, False),
        (record(), 100, 101, True),
        (record(), -1, 0, True),
        (record(), None, 10**9, False),
        (record(tier=2), 0, 100, False),
        (record(tier=1), -5, 100, False),
        (record(tier=4, runs=True), 1, 100, False),
        (record(tier=4, runs=True), 0, 100, True),
        (record(runs=True, demoted=True), 99, 100, True),
        (record(runs=True, demoted=True), 100, 100, False),
    ],
)
def test_who_drops(job: JobRecord, left: int | None, cost: int, drops: bool) -> None:
    assert dropped(job, left, cost) is drops
