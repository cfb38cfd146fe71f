"""The demo's jobs fit its fleet as they are meant to, and its view tells what the service says."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.api import demo_jobs, demo_view
from phalanx.api.cli.tables import console
from phalanx.api.fleet import fleet_from_dict
from phalanx.api.jobfile import job_from_dict
from phalanx.model.job_state import JobState
from phalanx.model.policy import EvictionPolicy, Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.admission import admit
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify


@pytest.fixture(scope="module")
def fleet():
    return fleet_from_dict(tomllib.loads(demo_jobs.FLEET))


def snapshot_of(fleet, jobs) -> Snapshot:
    records = tuple(JobRecord(job=job, submitted_s=number) for number, job in enumerate(jobs))
    return Snapshot(now_s=100, sites=fleet.sites, hosts=fleet.hosts, teams=fleet.teams, links=fleet.links, jobs=records)


def test_the_fleet_has_three_sites(fleet) -> None:
    assert len(fleet.sites) == 3
    assert {kind for host in fleet.hosts for kind in host.gpu_types} == {"H100", "A100", "T4"}


def test_all_but_one_start_at_once_and_one_must_wait(fleet, tmp_path: Path) -> None:
    first = [job_from_dict(job) for job in demo_jobs.first_jobs(tmp_path)]
    waiting = job_from_dict(demo_jobs.waiting_job())
    decision = solve(snapshot_of(fleet, [*first, waiting]), Policy())
    assert [reason.job for reason in decision.waiting] == [demo_jobs.MUST_WAIT]
    training = next(start for start in decision.starts if start.job == demo_jobs.TRAINING)
    assert len(training.placement.hosts) == 2
    assert admit(waiting, snapshot_of(fleet, []), Policy()).accepted


def test_the_impossible_one_is_refused(fleet) -> None:
    told = admit(job_from_dict(demo_jobs.impossible_job()), snapshot_of(fleet, []), Policy())
    assert not told.accepted
    assert "80 GiB" in told.nearest


def test_the_incident_preempts_the_training_and_nothing_else(fleet, tmp_path: Path) -> None:
    jobs = [job_from_dict(job) for job in demo_jobs.first_jobs(tmp_path)]
    policy = Policy(eviction=EvictionPolicy(min_run_s=demo_jobs.MIN_RUN_S))
    first = snapshot_of(fleet, jobs)
    placed = {start.job: start.placement for start in solve(first, policy).starts}
    running = tuple(
        replace(record, state=JobState.RUNNING, placement=placed[record.id], started_s=100, attempt=1)
        for record in first.jobs
    )
    later = replace(
        first, now_s=110, jobs=(*running, JobRecord(job=job_from_dict(demo_jobs.incident_job()), submitted_s=109))
    )
    decision = solve(later, policy)
    assert verify(later, policy, decision) == ()
    assert [(act.job, act.beneficiaries) for act in decision.preemptions] == [
        (demo_jobs.TRAINING, (demo_jobs.INCIDENT,))
    ]


def test_a_preemption_is_told_with_its_loss_and_where_the_job_went_on() -> None:
    acts = [
        {"job": "a", "beneficiaries": ["b"], "loss_gpu_s": 1200},
        {"job": demo_jobs.TRAINING, "beneficiaries": ["o"], "loss_gpu_s": 7},
    ]
    starts = [{"job": "b"}, {"job": "o", "inside_guarantee": True}]
    told = dict(demo_view.preemptions_told([{"preemptions": acts, "starts": starts}], ["x", '{"resumed_after": 40}']))
    assert told == {
        "a": "preempted for b at a loss of 1,200 GPU-seconds",
        demo_jobs.TRAINING: "preempted for o reclaiming its team's guarantee at a loss of 7 GPU-seconds; "
        "went on from its checkpoint after step 40",
    }


def test_a_drain_is_told_with_its_time_and_who_ran_there() -> None:
    def start(job: str, *hosts: str) -> dict[str, object]:
        return {"job": job, "attempt": 1, "placement": {"workers": [{"host": host} for host in hosts]}}

    plan = {"job": "pair", "planned_start_s": 190, "placement": {"workers": [{"host": "h2"}, {"host": "h1"}]}}
    decisions = [
        {"now_s": 90, "starts": [start("before", "h1")]},
        {"now_s": 100, "reservations": [plan]},
        {"now_s": 110, "starts": [start("short", "h2"), start("elsewhere", "h3")], "reservations": [plan]},
        {"now_s": 150, "starts": [start("pair", "h1", "h2")]},
        {"now_s": 160, "starts": [start("late", "h1")]},
    ]
    assert list(demo_view.drains_told(decisions)) == [
        "[bold]pair[/]: h1, h2 drained for it; started 50 s later, 40 s before the time first promised; "
        "short ran there meanwhile"
    ]


def job_view(name: str, state: str, **more: object) -> dict[str, object]:
    plain = {"id": name, "state": state, "gpu_milli": 500, "waited_s": 3, "hosts": [], "reason": None, "message": ""}
    return plain | more


def test_changes_are_told_once() -> None:
    told: dict[str, str] = {}
    reason = {"sentence": "No card is free."}
    jobs = [job_view("b", "queued", reason=reason), job_view("a", "running", hosts=["h1"])]
    assert demo_view.changes(jobs, told) == ["a is running: on h1", "b is queued: No card is free."]
    assert demo_view.changes(jobs, told) == []
    assert demo_view.changes([job_view("a", "succeeded", message="finished")], told) == ["a is succeeded"]


def test_the_screen_shows_cards_and_jobs(capsys) -> None:
    card = {"gpu_type": "T4", "jobs": [], "used_milli": 0}
    cards = [card, card | {"jobs": ["a"], "used_milli": 500}, card | {"jobs": ["a"], "used_milli": 1000}]
    hosts = [{"id": "h1", "site": "s", "gpus": cards}]
    console().print(demo_view.screen([job_view("a", "running", hosts=["h1"])], hosts))
    out = capsys.readouterr().out
    assert "h1      · ▄ █   T4, site s" in out
    assert "0.5" in out


def test_the_summary_names_the_widest_gap(capsys) -> None:
    goal = {"name": "start[1]", "unit": "mGPU", "gap": 2000}
    rounds = [{"goals": [goal, {**goal, "name": "order", "gap": 0}], "times_ms": {"solve": 7, "verify": 2}}]
    totals = {
        "states": {"succeeded": 2},
        "waits": {"mean_s": 61, "p50_s": 1, "p90_s": 2, "jobs": 2},
        "allocation": {"share_milli": 425, "held_gpu_s": 17, "capacity_gpu_s": 40},
        "rounds": 1,
        "outcomes": {"committed": 1},
        "goal_statuses": {"within_a_gang": 1},
    }
    demo_view.summary(console(), totals, rounds)
    out = capsys.readouterr().out
    for part in ("2 succeeded", "mean 1m 01s", "42.5 %", "start[1] up to 2 GPU", "1 within a gang", "9 ms"):
        assert part in out
    demo_view.summary(console(), totals, [])
    assert "every goal of every round" in capsys.readouterr().out


def test_the_training_is_summed_up() -> None:
    lines = [
        '{"step": 1, "loss": 2.0, "wait_share": 0.1}',
        "noise",
        "[1]",
        '{"step": 2, "loss": 1.0, "wait_share": 0.3}',
    ]
    told = demo_view.training_told(lines)
    assert "2 steps" in told
    assert "2.000 -> 1.000, 20.0%" in told
    assert demo_view.training_told(["noise"]) == ""
