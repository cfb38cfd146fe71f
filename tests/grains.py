"""Rounds solved as large ones are, whatever their size: alike gangs merged, level by level, by one search a goal.

`from grains import ...`, as `small_worlds`. What large rounds do not ask for is `economy`, `calm` and `order`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from phalanx.model.decision import Decision, GoalResult, GoalStatus
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.solver import exact
from phalanx.solver.solve import solve


@contextmanager
def as_large() -> Iterator[None]:
    """Every round with anything to decide counts as a large one, and is solved until all its levels are proven."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "LARGE", -1)
        patch.setattr(exact, "EXACT_LEVEL", 0)
        yield


def solve_as_large(snapshot: Snapshot, policy: Policy) -> Decision:
    """The decision of the round as a large one."""
    with as_large():
        return solve(snapshot, policy)


def goals_of_levels(decision: Decision) -> list[GoalResult]:
    """The goals that large rounds ask for."""
    return [goal for goal in decision.goals if "[" in goal.name]


def all_proven(decision: Decision) -> bool:
    """Whether every goal is that rounds of the grain now in force ask for."""
    asked = goals_of_levels(decision) if exact.LARGE < 0 else decision.goals
    return all(goal.status is GoalStatus.PROVEN for goal in asked)
