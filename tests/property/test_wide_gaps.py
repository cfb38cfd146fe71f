"""Goals of large rounds that are sought to a gap: bounds stay bounds, and nobody waits who still fits."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, note, settings
from one_more import could_start
from strategies import policies
from test_merged import crowds

from phalanx.model.decision import GoalStatus
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.solver import exact, solve
from phalanx.solver.demand import candidates
from phalanx.solver.plan import Plan
from phalanx.solver.verify import verify

EXAMPLES = int(os.environ.get("PHALANX_TEST_SEEDS", "60"))


@settings(deadline=None, max_examples=EXAMPLES)
@given(snapshot=crowds(), policy=policies())
def test_bounds_hold_and_nobody_waits_who_still_fits(snapshot: Snapshot, policy: Policy) -> None:
    single = solve.solve(snapshot, policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "LARGE", -1)
        patch.setattr(exact, "GANG_PARTS", 1)
        decision = solve.solve(snapshot, policy)
    assert verify(snapshot, policy, decision) == ()
    for mine, best in zip(decision.goals, single.goals, strict=True):
        if "[" not in mine.name or best.status is not GoalStatus.PROVEN:
            break
        note(f"{mine.name}: {mine.value} of {mine.bound}, {best.value} at best")
        assert mine.bound >= best.value, mine.name
        if mine.value != best.value:
            break
    plan = Plan(decision.starts, decision.preemptions, decision.reservations)
    started = {start.job for start in decision.starts}
    for record in candidates(snapshot):
        if record.id not in started and not decision.resizes:
            assert not could_start(snapshot, policy, plan, record), record.id
