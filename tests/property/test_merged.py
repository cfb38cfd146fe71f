"""Merged gangs decide as single ones do: equal goals of every level, and decisions that keep the rules."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from strategies import TEAMS, contested, policies, snapshots

from phalanx.model.decision import GoalStatus
from phalanx.model.ids import JobId
from phalanx.model.job_state import JobState
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver import exact, solve
from phalanx.solver.classes import reduce
from phalanx.solver.later import plans
from phalanx.solver.merge import merged
from phalanx.solver.sizes import settled
from phalanx.solver.verify import verify

EXAMPLES = int(os.environ.get("PHALANX_TEST_SEEDS", "40"))


@st.composite
def crowds(draw: st.DrawFn) -> Snapshot:
    """Waiting jobs of which many are alike but for their age and their team."""
    snapshot = draw(st.one_of(snapshots(max_workers=1), contested(max_hosts=3, max_jobs=3)))
    jobs: list[JobRecord] = []
    for record in snapshot.jobs:
        jobs.append(record)
        for number in range(draw(st.integers(0, 3)) if record.state is JobState.QUEUED else 0):
            job = replace(record.job, id=JobId(f"{record.id}x{number}"), team=draw(st.sampled_from(TEAMS)).id)
            submitted_s = record.submitted_s - draw(st.sampled_from((0, 30, 90_000)))
            jobs.append(replace(record, job=job, submitted_s=submitted_s))
    return replace(snapshot, jobs=tuple(jobs))


@settings(deadline=None, max_examples=EXAMPLES)
@given(snapshot=crowds(), policy=policies())
def test_goals_of_levels_are_the_same_as_without_merging(snapshot: Snapshot, policy: Policy) -> None:
    single = solve.solve(snapshot, policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "LARGE", -1)
        decision = solve.solve(snapshot, policy)
        assert decision == solve.solve(snapshot, policy)
    assert verify(snapshot, policy, decision) == ()
    for mine, other in zip(decision.goals, single.goals, strict=True):
        if "[" not in mine.name or not mine.status is other.status is GoalStatus.PROVEN:
            break
        note(f"{mine.name}: {mine.value} merged, {other.value} single")
        assert mine.value == other.value, mine.name


@settings(deadline=None, max_examples=EXAMPLES)
@given(snapshot=crowds(), policy=policies())
def test_everybody_is_a_member_once_and_places_are_the_same(snapshot: Snapshot, policy: Policy) -> None:
    single = reduce(settled(snapshot), policy)
    together = merged(single, plans(single))
    members = Counter(
        record.id + ("" if gang.members else gang.label)
        for gang in together.gangs
        for record in gang.members or (gang.record,)
    )
    assert members == Counter(gang.id for gang in single.gangs)
    places = {gang.record.id: _places(gang.workers) for gang in single.gangs if not gang.label}
    for gang in together.gangs:
        for record in gang.members:
            assert _places(gang.workers) == places[record.id]
        for workers in gang.workers if gang.members else ():
            assert all(1 <= slot.most <= len(gang.members) for slot in workers.slots)


def _places(workers: object) -> object:
    return tuple((each.role.name, tuple((s.host, s.kind) for s in each.slots)) for each in workers)  # type: ignore[attr-defined]
