"""Solves the goals one after another with CP-SAT, each with the values of the goals before it frozen.

Every goal ends with a value and a bound that is valid while the goals before keep their values. The work is counted in
CP-SAT's deterministic time, so that the same input gives the same decision on any machine; the guard is a deadline
outside. Parameters after measurement: one worker, the `max_lp` strategy, no probing, no symmetry, no hint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import gcd, inf

from ortools.sat.python import cp_model

from .guard import Guard
from .objective import Goal

MINIMUM_MS = 1


@dataclass(frozen=True, slots=True)
class StageResult:
    """The outcome of one goal; `solved` is False where the solver was not asked or found nothing in its budget."""

    value: int
    bound: int
    solved: bool


@dataclass(slots=True)
class Outcome:
    """What the exact stage reached: one result a goal, the last solution (values by variable index), what it spent."""

    results: list[StageResult] = field(default_factory=list)
    solution: Sequence[int] | None = None
    spent_ms: int = 0
    stopped: str = ""


def run(
    model: cp_model.CpModel,
    goals: Sequence[Goal],
    incumbent: Sequence[int],
    uppers: Sequence[int],
    *,
    budget_ms: int,
    seed: int,
    guard: Guard,
) -> Outcome:
    """Solves all goals in order.

    `incumbent`: the values of a decision known to be feasible (the greedy's), one a goal; no stage ends below it as
    long as the stages before ended equal to it. `uppers`: what no decision can exceed, one a goal. `budget_ms`:
    deterministic milliseconds for all goals; what a goal leaves goes to the next ones.
    """
    outcome = Outcome()
    level_with_incumbent = True
    for number, goal in enumerate(goals):
        floor = incumbent[number] if level_with_incumbent else None
        left = budget_ms - outcome.spent_ms
        if left < MINIMUM_MS or guard.remaining_s() <= 0:
            outcome.stopped = "budget" if left < MINIMUM_MS else "deadline"
            break
        share = max(MINIMUM_MS, left // (len(goals) - number) if number else left * 2 // (len(goals) + 1))
        result = _solve_goal(model, goal, uppers[number], floor, share, seed, guard, outcome)
        outcome.results.append(result)
        model.add(_expression(goal) >= result.value - goal.constant)
        level_with_incumbent = level_with_incumbent and result.value == incumbent[number]
    return outcome


def _solve_goal(
    model: cp_model.CpModel,
    goal: Goal,
    upper: int,
    floor: int | None,
    share_ms: int,
    seed: int,
    guard: Guard,
    outcome: Outcome,
) -> StageResult:
    if floor == upper and outcome.solution is None:
        # The incumbent has all there is to have; nothing to search for.
        return StageResult(floor, floor, solved=True)
    known = _known(goal, floor, outcome)
    if known is not None:
        model.add(_expression(goal) >= known - goal.constant)
    scale = gcd(*(coefficient for coefficient, _ in goal.terms)) or 1
    model.maximize(_expression(goal, scale))
    solver = _solver(share_ms, seed, guard)
    status = solver.solve(model)
    outcome.spent_ms += max(MINIMUM_MS, round(solver.response_proto.deterministic_time * 1000))
    if status == cp_model.MODEL_INVALID:
        raise AssertionError(f"the model of {goal.name} is invalid: {model.validate()}")
    bound = upper
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        outcome.solution = tuple(solver.response_proto.solution)
        value = goal.constant + scale * round(solver.objective_value)
        bound = min(bound, goal.constant + scale * _floor(solver.best_objective_bound))
        return StageResult(value, value if status == cp_model.OPTIMAL else max(value, bound), solved=True)
    if status == cp_model.INFEASIBLE:
        raise AssertionError(f"goal {goal.name} has no solution although one is known")
    if solver.best_objective_bound != 0 and abs(solver.best_objective_bound) < inf:
        bound = min(bound, goal.constant + scale * _floor(solver.best_objective_bound))
    outcome.stopped = outcome.stopped or "budget"
    value = known if known is not None else goal.constant
    return StageResult(value, max(value, bound), solved=False)


def _known(goal: Goal, floor: int | None, outcome: Outcome) -> int | None:
    """The best value that a decision at hand reaches without giving up a frozen goal."""
    values = [] if floor is None else [floor]
    if outcome.solution is not None:
        values.append(goal.constant + sum(c * outcome.solution[variable.index] for c, variable in goal.terms))
    return max(values, default=None)


def _expression(goal: Goal, scale: int = 1) -> cp_model.LinearExprT:
    """The goal without its constant, divided by a common divisor of its coefficients."""
    return cp_model.LinearExpr.weighted_sum([v for _, v in goal.terms], [c // scale for c, _ in goal.terms])


def _solver(share_ms: int, seed: int, guard: Guard) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = 1
    parameters.subsolvers.append("max_lp")
    parameters.cp_model_probing_level = 0
    parameters.symmetry_level = 0
    parameters.random_seed = seed
    parameters.max_deterministic_time = share_ms / 1000
    remaining = guard.remaining_s()
    if remaining < inf:
        parameters.max_time_in_seconds = max(0.001, remaining)
    return solver


def _floor(bound: float) -> int:
    """The largest integer objective that a floating-point bound allows."""
    return int(bound + 1e-6 + 1e-9 * abs(bound)) if bound >= 0 else -int(-bound - 1e-6 + 1e-9 * abs(bound))
