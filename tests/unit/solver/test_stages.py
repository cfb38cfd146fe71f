"""Goals that are sought to a gap: what is within it is taken as found, with all that still goes beside it."""

from __future__ import annotations

from typing import Any

import pytest
from ortools.sat.python import cp_model

from phalanx.model.policy import SolvePolicy
from phalanx.solver import stages
from phalanx.solver.guard import UNLIMITED
from phalanx.solver.objective import Goal, Sum
from phalanx.solver.outcome import Incumbent, Outcome

WORTH = (50, 30, 40)
"""What each of three gangs gains, of which two may start."""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first search ends at its first solution, in which as little as possible starts."""
    calls: list[None] = []
    quickly = stages.quickly

    def first_then_real(parameters: Any) -> None:
        quickly(parameters)
        calls.append(None)
        if len(calls) == 1:
            parameters.search_branching = cp_model.FIXED_SEARCH
            parameters.stop_after_first_solution = True
            parameters.cp_model_presolve = False

    monkeypatch.setattr(stages, "quickly", first_then_real)


def solved(gap: int, mark: int) -> Outcome:
    model = cp_model.CpModel()
    gangs = [model.new_bool_var(f"gang {number}") for number in range(3)]
    model.add(sum(gangs) <= 2)
    model.add_decision_strategy(gangs, cp_model.CHOOSE_FIRST, cp_model.SELECT_MIN_VALUE)
    goal = Goal("start[0]", "mGPU*s", {"start": Sum(0, list(zip(WORTH, gangs, strict=True)))})
    incumbent = Incumbent([mark], [(gang, 0) for gang in gangs])
    return stages.run(
        model,
        [goal],
        incumbent,
        [sum(WORTH)],
        SolvePolicy(),
        guard=UNLIMITED,
        starts=[(0, gang) for gang in gangs],
        gaps={"start[0]": gap},
        thorough=False,
    )


def test_without_a_gap_the_best_is_found_and_proven() -> None:
    (result,) = solved(gap=0, mark=0).results
    assert (result.value, result.bound, result.solved) == (90, 90, True)


@pytest.mark.usefixtures("hasty")
def test_what_a_search_within_its_gap_leaves_out_is_added_where_it_fits() -> None:
    outcome = solved(gap=100, mark=0)
    (result,) = outcome.results
    # Nothing was found; the first and the third are the best that goes beside it.
    assert list(outcome.solution or ()) == [1, 0, 1]
    assert (result.value, result.far) == (90, False)
    assert result.bound >= 90


def test_a_decision_at_hand_within_the_gap_is_not_sought_again() -> None:
    outcome = solved(gap=40, mark=80)
    (result,) = outcome.results
    assert (result.value, result.bound, result.solved) == (80, 120, True)
    assert (outcome.solution, outcome.spent_ms) == (None, 0)


def test_who_fits_starts_though_all_there_is_to_gain_is_within_the_gap() -> None:
    model = cp_model.CpModel()
    upper, lower = model.new_bool_var("upper"), model.new_bool_var("lower")
    goals = [Goal(f"start[{n}]", "mGPU*s", {"start": Sum(0, [(40, each)])}) for n, each in ((1, upper), (0, lower))]
    outcome = stages.run(
        model,
        goals,
        Incumbent([0, 0], [(upper, 0), (lower, 0)]),
        [40, 40],
        SolvePolicy(),
        guard=UNLIMITED,
        starts=[(1, upper), (0, lower)],
        gaps={"start[0]": 100},
        thorough=False,
    )
    assert [result.value for result in outcome.results] == [40, 40]
    assert list(outcome.solution or ()) == [1, 1]
