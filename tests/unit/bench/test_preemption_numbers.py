"""What preemption takes, whom it serves, what forecasts were worth and how guarantees were met, worked out by hand."""

from dataclasses import replace

import pytest

from phalanx.bench.baselines import BASELINES
from phalanx.bench.evictions import avoidable
from phalanx.bench.foresight import Foresight, Slips, Told
from phalanx.bench.metrics import measure
from phalanx.bench.preemption import forecasts, forecasts_of_waits, guarantee_met
from phalanx.bench.run import Outcome, Rounds, Run, Span
from phalanx.bench.simulator import Options, simulate
from phalanx.bench.timing import Timing
from phalanx.model.decision import Certificate, Decision, Grain, Preemption, Stage, Start
from phalanx.model.job import CheckpointPolicy
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import Policy
from phalanx.model.reservation import Reservation
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.topology import Site

OPTIONS = Options(timing=Timing(launch_s=30, launch_jitter_s=0, clean_s=10, stop_s=5))
PLACE = Placement(workers=(WorkerPlacement(role="worker", index=0, host="h", gpus=(0,)),))


def run(world, **more):
    return simulate(world, "test", BASELINES["best_fit_preempt"](), Policy(), replace(OPTIONS, **more))


def test_an_eviction_takes_lost_work_handover_and_restart(small) -> None:
    saves = CheckpointPolicy(interval_s=1_000, write_s=50, restart_s=20, grace_s=40)
    jobs = [
        small.job("low", 0, 5_000, gpus=8, tier=3, checkpoint=saves),
        small.job("high", 2_700, 600, gpus=8, tier=1),
    ]
    found = run(small.workload(jobs, [small.host("h")]))
    (eviction,) = found.evictions
    # Up at 30, warned at 2,700 after 2,670 s of work of which 2,000 are saved: its grace is too short to save more.
    assert (eviction.job, eviction.at_s, eviction.served, eviction.avoidable) == ("low", 2_700, True, False)
    assert eviction.lost_gpu_s == 670 * 8
    # 40 s of grace and 10 s of cleaning; then 30 s to launch and 20 s to read the checkpoint.
    assert eviction.handover_gpu_s == 50 * 8
    assert eviction.restart_gpu_s == 50 * 8
    by_name = {outcome.job: outcome for outcome in found.outcomes}
    assert by_name["high"].start_s == 2_750
    low = by_name["low"]
    # high holds the host from 2,750 on: 30 s to launch, 600 s of work, 10 s to clean; low queues meanwhile.
    assert (low.wait_s, low.queued_s, low.attempts) == (0, 640, 2)
    assert low.end_s == 2_750 + 640 + 30 + 20 + 3_000
    numbers = measure(found)
    assert numbers.preempted.evictions == numbers.preempted.jobs == numbers.preempted.most == 1
    assert (numbers.preempted.unserved, numbers.preempted.avoidable) == (0, 0)
    assert numbers.preempted.gpu_h == pytest.approx((670 + 50 + 50) * 8 / 3600)
    assert numbers.queued.mean == (640 + 50) / 2
    assert found.useful_gpu_s == 8 * (2_000 + 3_000 + 600)


def test_work_saved_in_time_is_not_lost(small) -> None:
    saves = CheckpointPolicy(interval_s=1_000, write_s=30, restart_s=20, grace_s=40)
    jobs = [
        small.job("low", 0, 5_000, gpus=8, tier=3, checkpoint=saves),
        small.job("high", 2_700, 600, gpus=8, tier=1),
    ]
    (eviction,) = run(small.workload(jobs, [small.host("h")])).evictions
    assert (eviction.lost_gpu_s, eviction.handover_gpu_s) == (0, 40 * 8)


def test_a_beneficiary_that_never_runs_leaves_the_eviction_unserved(small) -> None:
    jobs = [small.job("low", 0, 5_000, gpus=8, tier=3), small.job("high", 2_700, 600, gpus=8, tier=1)]
    found = run(small.workload(jobs, [small.host("h")]), until_s=2_720)
    assert [(each.served, each.needless) for each in found.evictions] == [(False, True)]
    assert measure(found).preempted.unserved == 1


def world_of(small, hosts, *records) -> Snapshot:
    return Snapshot(now_s=10_000, sites=(Site(id="s"),), hosts=tuple(hosts), jobs=tuple(records))


@pytest.mark.parametrize(("hosts", "expected"), [(1, False), (2, True)])
def test_an_eviction_is_avoidable_where_its_beneficiary_fits_elsewhere(small, hosts: int, expected: bool) -> None:
    where = Placement(workers=(WorkerPlacement(role="worker", index=0, host="h0", gpus=tuple(range(8))),))
    low = JobRecord(
        job=small.job("low", 0, 5_000, gpus=8).job, submitted_s=0, state=JobState.RUNNING, attempt=1, started_s=0,
        placement=where,
    )  # fmt: skip
    high = JobRecord(job=small.job("high", 0, 600, gpus=8, tier=1).job, submitted_s=0)
    snapshot = world_of(small, [small.host(f"h{number}") for number in range(hosts)], low, high)
    act = Preemption(job="low", attempt=1, beneficiaries=("high",), loss_gpu_s=0)
    decision = Decision(
        snapshot_version=0, now_s=10_000, starts=(Start(job="high", attempt=1, placement=where, after=("low",)),),
        preemptions=(act,),
        certificate=Certificate(stage=Stage.GREEDY, grain=Grain.SINGLETONS, budget_ms=0, spent_ms=0, seed=1),
    )  # fmt: skip
    assert avoidable(snapshot, Policy(), decision, act) is expected


def plans(*made: Reservation, starts: tuple[Start, ...] = ()) -> Decision:
    certificate = Certificate(stage=Stage.GREEDY, grain=Grain.SINGLETONS, budget_ms=0, spent_ms=0, seed=1)
    return Decision(snapshot_version=0, now_s=0, starts=starts, reservations=made, certificate=certificate)


def plan(job: str, at_s: int, cause: str = "") -> Reservation:
    return Reservation(id=job, job=job, placement=PLACE, planned_start_s=at_s, created_s=0, cause=cause)


def test_slips_are_counted_with_and_without_a_cause() -> None:
    seen = Foresight(Policy(), None)
    seen.decided(plans(plan("a", 1_000), plan("b", 2_000), plan("c", 500)))
    seen.decided(plans(plan("a", 900), plan("b", 2_300), plan("c", 800, "a host was lost")))
    seen.decided(plans(plan("b", 2_300), starts=(Start(job="a", attempt=1, placement=PLACE),)))
    assert seen.slips == Slips(planned=3, moved_with_cause=1, moved_without=1, given_up=1, later_s=600)


def told_run(*told: Told, starts: dict[str, int]) -> Run:
    outcomes = [
        Outcome(
            job=job, team="t", tier=3, level=1, gpu_milli=1_000, submit_s=0, measured=True, work_s=9, start_s=start_s
        )
        for job, start_s in starts.items()
    ]
    return Run(
        scheduler="r", workload="w", seed=1, outcomes=outcomes, samples=[], spans=[], rounds=Rounds(), window_s=9_000,
        end_s=9_000, events=1, cpu_s=1.0, setup_gpu_s=0.0, lost_gpu_s=0.0, useful_gpu_s=0.0, told=list(told),
    )  # fmt: skip


def test_the_error_of_a_forecast_is_over_the_time_that_was_left() -> None:
    found = told_run(
        Told("a", 0, 0, 1_500),
        Told("b", 60, 0, 2_060),
        Told("b", 2_000, 0, 4_000),
        Told("c", 0, 0, None),
        Told("d", 0, 0, 1),
        starts={"a": 1_000, "b": 4_060, "c": 2_000, "d": 599},
    )
    new, later = forecasts(found, new=True), forecasts(found, new=False)
    # a: 500 of 1,000 s too late; b: 2,000 of 4,000 s too early; c: none told; d started too soon to be judged.
    assert (new.asked, new.told, new.median, new.late) == (3, 2, 0.5, 0.5)
    assert (later.asked, later.told, later.late) == (1, 1, 1.0)
    assert later.median == pytest.approx(60 / 2_060)


def test_the_error_of_forecasts_of_waits_is_over_the_whole_wait() -> None:
    found = told_run(
        Told("a", 100, 100, 1_500),
        Told("b", 3_900, 60, 4_000),
        Told("b", 60, 60, None),
        Told("c", 0, 0, 1),
        starts={"a": 1_100, "b": 4_060, "c": 599},
    )
    numbers = forecasts_of_waits(found)
    # a: 400 s too late of 1,000 s; b: 60 s too early of 4,000 s, three minutes before its start; c waited too shortly.
    assert (numbers.asked, numbers.told, numbers.late) == (3, 2, 0.5)
    assert numbers.median == pytest.approx(60 / 4_000)


def test_the_service_forecasts_what_waits_behind_a_job_of_known_length(small) -> None:
    jobs = [small.job("a", 0, 4_000, gpus=8, walltime_estimate_s=4_000), small.job("b", 60, 100, gpus=8)]
    found = run(small.workload(jobs, [small.host("h")]), forecast_s=600)
    assert {told.job for told in found.told} == {"b"}
    numbers = forecasts(found, new=True)
    assert (numbers.asked, numbers.told) == (1, 1)
    assert numbers.median is not None
    assert numbers.median < 0.05


def test_a_guarantee_is_met_as_far_as_it_was_wanted() -> None:
    found = told_run(starts={"a": 500, "b": 0})
    for outcome, end_s in zip(found.outcomes, (1_000, 1_000), strict=True):
        outcome.end_s = end_s
    found.spans = [Span("a", "t", "h", (0,), 500, 1_000, 1), Span("b", "t", "h", (1,), 0, 1_000, 1)]
    assert guarantee_met(found) is None
    found.guaranteed_milli = {"t": 1_000}
    assert guarantee_met(found) == 1.0
    found.guaranteed_milli = {"t": 5_000}
    # Two GPUs wanted for 1,000 s; the second one came after 500 s.
    assert guarantee_met(found) == 0.75
