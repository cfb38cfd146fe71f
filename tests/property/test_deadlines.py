"""Whenever the deadline passes, the decision keeps every rule, and every job that waits is told something."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import pytest
from grains import as_large
from hypothesis import given, settings
from hypothesis.strategies import integers, one_of
from strategies import contested, policies, snapshots

from phalanx.model.job_state import WAITING
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.solver.evict import greedy_plan
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify


@dataclass
class Asked:
    """A deadline that has passed once it was asked for so many times."""

    times: int

    def remaining_s(self) -> float:
        """A minute, until there is none."""
        self.times -= 1
        return 60.0 if self.times >= 0 else 0.0


@pytest.mark.parametrize("grain", [nullcontext, as_large], ids=["single", "merged"])
@settings(deadline=None, max_examples=60)
@given(snapshot=one_of(snapshots(4, 3, 6, 3), contested(3, 3, 5)), policy=policies(), times=integers(0, 60))
def test_a_round_that_is_cut_short_keeps_every_rule(
    grain: Callable[[], AbstractContextManager[None]], snapshot: Snapshot, policy: Policy, times: int
) -> None:
    with grain():
        decision = solve(snapshot, policy, guard=Asked(times))
    assert verify(snapshot, policy, decision) == ()
    started = {start.job for start in decision.starts}
    waiting = [record.id for record in snapshot.jobs if record.state in WAITING and record.id not in started]
    assert [reason.job for reason in decision.waiting] == waiting
    assert all(reason.sentence for reason in decision.waiting)


@settings(deadline=None, max_examples=40)
@given(snapshot=snapshots(4, 3, 6, 3), policy=policies())
def test_a_deadline_that_does_not_pass_changes_nothing(snapshot: Snapshot, policy: Policy) -> None:
    free = greedy_plan(snapshot, policy)
    assert greedy_plan(snapshot, policy, Asked(10_000)) == free
    # One that has passed already leaves nothing but what was promised.
    assert greedy_plan(snapshot, policy, Asked(0)).starts == ()
