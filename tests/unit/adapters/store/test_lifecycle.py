"""The rules of a job's life as pure functions: every pair of state and event, and the numbers of back-off and time."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from phalanx.adapters.store import lifecycle
from phalanx.adapters.store.attempt import OUTCOMES, apply_event, backoff_s
from phalanx.model.errors import IllegalTransition
from phalanx.model.event import GangExited, GangProgress, GangReleased, GangReserved, GangRunning, GangStartFailed
from phalanx.model.intent import RankExit
from phalanx.model.job import Job, Preemptible, Role, WorkerRequest
from phalanx.model.job_state import HOLDING, TRANSITIONS, JobState, StopCause
from phalanx.model.limits import ran_s, walltime_limit_s
from phalanx.model.placement import Placement, Progress, WorkerPlacement
from phalanx.model.policy import FailurePolicy, Policy
from phalanx.model.snapshot import JobRecord

JOB = Job(id="j1", team="red", roles=(Role(count=2, request=WorkerRequest(gpu_milli=1000)),))
PLACEMENT = Placement(workers=tuple(WorkerPlacement(role="worker", index=i, host=f"h{i}", gpus=(0,)) for i in range(2)))
HEAD = {"id": "e", "at_s": 50, "job": "j1", "attempt": 3}
EVENTS = (
    GangReserved(**HEAD),
    GangRunning(**HEAD),
    GangExited(**HEAD, exits=(RankExit(rank=0, code=0), RankExit(rank=1, code=0))),
    GangExited(**HEAD, exits=(RankExit(rank=1, code=9),)),
    GangExited(**HEAD, lost_host="h1"),
    GangExited(**HEAD),
    GangStartFailed(**HEAD, cause="no"),
    GangProgress(**HEAD, saved_work_s=30),
    GangReleased(**HEAD),
)


def record(state: JobState, cause: StopCause | None = None, **fields) -> JobRecord:
    placement = PLACEMENT if state in HOLDING else None
    given = {"attempt": 3, "placement": placement, "planned_s": 10, "started_s": 20, "stop_cause": cause, **fields}
    return JobRecord(job=JOB, state=state, submitted_s=1, state_since_s=20, **given)


def every_record() -> list[JobRecord]:
    stopping = [record(JobState.STOPPING, cause) for cause in StopCause]
    return [record(state) for state in JobState if state is not JobState.STOPPING] + stopping


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_no_event_ever_breaks_the_table_of_states(event) -> None:
    for old in every_record():
        new = apply_event(old, event, Policy(), 60)
        middle = {old.state} | TRANSITIONS[old.state]
        assert new.state in middle | {further for state in middle for further in TRANSITIONS[state]}
        if old.state not in HOLDING:
            assert new is old
        assert apply_event(old, replace(event, attempt=2), Policy(), 60) is old
        assert apply_event(old, replace(event, attempt=4), Policy(), 60) is old
        assert new.submitted_s == old.submitted_s


@pytest.mark.parametrize("cause", list(StopCause))
def test_the_cause_of_a_stop_decides_what_follows(cause: StopCause) -> None:
    after = apply_event(record(JobState.STOPPING, cause), EVENTS[-1], Policy(), 60)
    assert (after.state, after.placement, after.state_since_s) == (OUTCOMES[cause], None, 50)


@pytest.mark.parametrize(
    ("event", "cause", "code"),
    [
        (EVENTS[2], StopCause.FINISHED, 0),
        (EVENTS[3], StopCause.FAILED, 9),
        (EVENTS[4], StopCause.HOST_LOST, None),
        (EVENTS[5], StopCause.HOST_LOST, None),
    ],
)
def test_how_a_gang_exits_is_why_it_stops(event, cause, code) -> None:
    for state in (JobState.PLANNED, JobState.STARTING, JobState.RUNNING):
        after = apply_event(record(state), event, Policy(), 60)
        assert (after.state, after.stop_cause, after.exit_code) == (JobState.STOPPING, cause, code)


def test_a_stop_asked_for_keeps_its_cause_whatever_the_ranks_return() -> None:
    # A trainer that saves on SIGTERM and exits 0 has not finished.
    for cause in (StopCause.PREEMPTED, StopCause.HELD, StopCause.CANCELLED, StopCause.LIMIT):
        after = apply_event(record(JobState.STOPPING, cause), EVENTS[2], Policy(), 60)
        assert (after.state, after.stop_cause, after.exit_code) == (JobState.STOPPING, cause, 0)


def test_back_off_doubles_up_to_its_maximum() -> None:
    failure = FailurePolicy(backoff_base_s=10, backoff_max_s=100)
    assert [backoff_s(n, failure) for n in (0, 1, 2, 3, 4, 5, 1000)] == [10, 10, 20, 40, 80, 100, 100]


def test_time_run_is_what_was_saved_and_what_ran_since() -> None:
    running = record(JobState.RUNNING)
    assert ran_s(running, 120) == 100
    assert ran_s(replace(running, progress=Progress(saved_work_s=70, last_checkpoint_s=100)), 120) == 90
    # Saved by an earlier attempt: all of this one counts.
    assert ran_s(replace(running, progress=Progress(saved_work_s=70, last_checkpoint_s=5)), 120) == 170
    assert ran_s(replace(running, started_s=None, progress=Progress(saved_work_s=70)), 120) == 70


def test_saved_work_never_shrinks() -> None:
    running = record(JobState.RUNNING, progress=Progress(saved_work_s=70, last_checkpoint_s=40))
    assert apply_event(running, EVENTS[7], Policy(), 60) is running


def test_a_job_has_its_own_limit_or_that_of_its_pool_also_when_it_is_demoted_for_money() -> None:
    time = Policy().time
    running = record(JobState.RUNNING)
    assert walltime_limit_s(running, True, Policy()) == time.limit_team_s
    assert walltime_limit_s(running, False, Policy()) == time.limit_shared_s
    assert walltime_limit_s(replace(running, demoted=True), True, Policy()) == time.limit_team_s
    anytime = replace(running, job=replace(JOB, preemptible=Preemptible.ANYTIME))
    assert walltime_limit_s(anytime, True, Policy()) == time.limit_preemptible_s
    own = replace(anytime, job=replace(JOB, walltime_limit_s=7))
    assert walltime_limit_s(own, True, Policy()) == 7


def test_requests_are_legal_or_refused_with_the_story() -> None:
    requests = (
        lambda r: lifecycle.on_cancel(r, 60),
        lambda r: lifecycle.on_hold(r, 60),
        lambda r: lifecycle.on_resume(r, (), 60),
        lambda r: lifecycle.on_priority(r, 5),
    )
    refused = []
    for ask, old in itertools.product(requests, every_record()):
        try:
            new = ask(old)
        except IllegalTransition as refusal:
            refused.append(str(refusal))
            continue
        assert new.state in {old.state} | TRANSITIONS[old.state]
    assert refused
    assert all("Its story: submitted at 1 s, 3 attempts" in text for text in refused)


def test_the_story_names_what_befell_the_job() -> None:
    old = record(JobState.STOPPING, StopCause.HELD, failed_starts=2, evictions=(4, 5), message="held")
    told = "submitted at 1 s, 3 attempts, 2 failed starts, 2 evictions, stopping (held) since 20 s, 'held'"
    assert lifecycle.story(old) == told
