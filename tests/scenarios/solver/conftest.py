"""Tests of the solver share the builders of small_worlds.py; no test folder is on the path by itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from grains import as_large
from small_worlds import POLICY

from phalanx.model.policy import Policy
from phalanx.model.snapshot import Snapshot
from phalanx.solver.evict import greedy_plan
from phalanx.solver.plan import Plan
from phalanx.solver.solve import solve
from phalanx.solver.verify import verify, verify_starts

FOR_ECONOMY = {
    "test_a6_three_moves_free_three_hosts",
    "test_a6_no_more_moves_than_the_hour_allows",
}
"""Scenarios of moves that serve nobody's start but `economy` alone, for which large rounds do not search."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every scenario runs at both grains, but for those named above."""
    grains = ("single",) if metafunc.function.__name__ in FOR_ECONOMY else ("single", "merged")
    metafunc.parametrize("grain", grains, indirect=True)


@pytest.fixture(autouse=True)
def grain(request: pytest.FixtureRequest) -> Iterator[None]:
    """How rounds are solved: by their size, here gang by gang, or as large ones are."""
    if request.param == "single":
        yield
    else:
        with as_large():
            yield


def exact(snapshot: Snapshot, policy: Policy) -> Plan:
    """The plan of a whole round."""
    decision = solve(snapshot, policy)
    assert verify(snapshot, policy, decision) == ()
    return Plan(decision.starts, decision.preemptions)


@pytest.fixture(params=[greedy_plan, exact], ids=["greedy", "exact"])
def planned(request: pytest.FixtureRequest) -> Callable[[Snapshot], Plan]:
    """Solves and checks that no rule is broken: every victim is legal, and none is needless."""

    def solved(snapshot: Snapshot) -> Plan:
        plan: Plan = request.param(snapshot, POLICY)
        assert verify_starts(snapshot, POLICY, plan.starts, plan.preemptions) == ()
        return plan

    return solved
