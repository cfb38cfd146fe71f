"""Whatever the order in which the rule families are written into the model, the goals of the decision are the same."""

from __future__ import annotations

import random

import pytest
from moving import moving
from test_brute_force import crowded, policy
from test_brute_plans import drained, next_round

from phalanx.model.decision import Decision, GoalStatus, Stage
from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.solver.constraints import FAMILIES
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify

ORDERS = 3


def worlds(block: int) -> list[tuple[Snapshot, Policy]]:
    """Small rounds of crowded fleets, of gangs that may return, and of starving ones, with the rounds behind these."""
    found = [(crowded(seed), policy(seed)) for seed in range(block, 8, 2)]
    found += [moving(seed) for seed in (1, 4, 5, 8, 12, 7)[block::2]]
    for seed in range(block, 24, 2):
        snapshot, numbers = drained(seed)
        found.append((snapshot, numbers))
        reservations = solve(snapshot, numbers).reservations
        if reservations:
            found.append((next_round(seed, snapshot, reservations), numbers))
    return found


def reached(snapshot: Snapshot, numbers: Policy) -> tuple[Decision, list[tuple[str, int]]]:
    """A decision that keeps every rule, and its goals, each proven."""
    decision = solve(snapshot, numbers)
    assert verify(snapshot, numbers, decision) == ()
    assert all(goal.status is GoalStatus.PROVEN for goal in decision.goals)
    return decision, [(goal.name, goal.value) for goal in decision.goals]


@pytest.mark.parametrize("block", range(2))
def test_the_order_of_the_families_does_not_matter(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = planned = promised = returned = 0
    for number, (snapshot, numbers) in enumerate(worlds(block)):
        decision, expected = reached(snapshot, numbers)
        searched += decision.certificate.stage is Stage.EXACT
        planned += bool(decision.reservations)
        promised += bool(snapshot.reservations)
        returned += bool(decision.resizes)
        rng = random.Random(f"{block} {number}")
        for _ in range(ORDERS):
            names = rng.sample(sorted(FAMILIES), len(FAMILIES))
            monkeypatch.setattr("phalanx.solver.exact.FAMILIES", {name: FAMILIES[name] for name in names})
            assert reached(snapshot, numbers)[1] == expected, names
        monkeypatch.undo()
    assert searched >= 8, "many rounds must reach the exact stage"
    assert planned, "some rounds must plan"
    assert promised, "some rounds must have promises"
    assert returned, "in some rounds gangs must return"
