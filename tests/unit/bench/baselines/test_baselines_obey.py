"""The production verifier accepts every decision of every baseline, round after round.

The worlds have limits of teams, labels that keep jobs apart, maintenance windows, and running work to be preempted.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import policies, snapshots

from phalanx.bench.baselines import BASELINES
from phalanx.model.decision import Decision
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.verify import verify


@pytest.mark.parametrize("name", BASELINES)
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_rule_is_kept(name: str, data: st.DataObject) -> None:
    snapshot = data.draw(snapshots(max_hosts=6, max_jobs=8, max_workers=5, max_running=5))
    policy = data.draw(policies())
    limits = st.sampled_from((None, 600, 3_600, 100_000))
    snapshot = replace(
        snapshot,
        jobs=tuple(replace(r, job=replace(r.job, walltime_limit_s=data.draw(limits))) for r in snapshot.jobs),
    )
    scheduler = BASELINES[name]()
    for seconds in (60, 4_000, 200_000):
        decision = scheduler(snapshot, policy)
        assert verify(snapshot, policy, decision) == ()
        snapshot = _later(snapshot, decision, seconds, data.draw(st.integers(0, 2)))


@pytest.mark.parametrize("name", BASELINES)
@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(snapshot=snapshots(max_hosts=6, max_jobs=8), policy=policies())
def test_the_same_world_gives_the_same_decision(name: str, snapshot: Snapshot, policy: Policy) -> None:
    assert BASELINES[name]()(snapshot, policy) == BASELINES[name]()(snapshot, policy)


def _later(snapshot: Snapshot, decision: Decision, seconds: int, ended: int) -> Snapshot:
    """The world that many seconds on: what was started runs, and some of what ran has ended."""
    starts = {start.job: start for start in decision.starts}
    stopped = {act.job for act in decision.preemptions}
    records: list[JobRecord] = []
    for record in snapshot.jobs:
        start = starts.get(record.id)
        if start is not None:
            records.append(
                replace(
                    record,
                    state=JobState.RUNNING,
                    attempt=start.attempt,
                    placement=start.placement,
                    started_s=snapshot.now_s,
                )
            )
        elif record.id in stopped:
            records.append(
                replace(record, state=JobState.QUEUED, placement=None, started_s=None, evictions=(snapshot.now_s,))
            )
        elif record.state is JobState.RUNNING and ended:
            ended -= 1
            records.append(replace(record, state=JobState.SUCCEEDED, placement=None))
        else:
            records.append(record)
    return replace(snapshot, now_s=snapshot.now_s + seconds, jobs=tuple(records))
