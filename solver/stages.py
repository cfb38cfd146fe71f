"""Solves the goals one after another with CP-SAT, each with the values of the goals before it frozen.

Every goal ends with a value and a bound that is valid while the goals before keep their values. The work is counted in
CP-SAT's deterministic time, so that the same input gives the same decision on any machine; the guard is a deadline
outside. Parameters after measurement: one worker, the `max_lp` strategy, no probing, no symmetry; a portfolio for what
that leaves unproven. A hint slows the `start` goals down, whose bound the LP finds by itself, and halves the time of
`economy`, where it also keeps the greedy's packing when the budget ends before a better one is found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, gcd, inf

from ortools.sat.python import cp_model

from ..model.policy import SolvePolicy
from .guard import Guard
from .objective import Goal
from .outcome import Incumbent, Outcome, StageResult
from .strategies import Prepare, max_lp, portfolio, quickly

MINIMUM_MS = 1
Starts = Sequence[tuple[int, cp_model.IntVar]]
"""For each gang that may start or be planned: its level, and the variable that says whether it does."""

_PROPAGATED_S = 0.002
"""Deterministic time after which presolve is asked to complete an incumbent after all, in seconds."""

SOLVED = (cp_model.OPTIMAL, cp_model.FEASIBLE)


def run(
    model: cp_model.CpModel,
    goals: Sequence[Goal],
    incumbent: Incumbent,
    uppers: Sequence[int],
    effort: SolvePolicy,
    *,
    guard: Guard,
    starts: Starts = (),
    leaves: Starts = (),
    gaps: Mapping[str, int] | None = None,
    thorough: bool = True,
) -> Outcome:
    """Solves all goals in order; no stage ends below the incumbent while the stages before ended equal to it.

    `uppers`: what no decision can exceed, one a goal. Of the deterministic milliseconds for all goals what one goal
    leaves goes to the next ones. Not `thorough`: by the first search alone, no further than to the goal's gap of
    `gaps` (proven, where it has none), and of decisions with equal starts preferably one in which fewer of `leaves`
    leave.
    """
    search = _Search(model, incumbent, effort.seed, guard, starts, leaves, gaps or {})
    for number, goal in enumerate(goals):
        left = effort.budget_ms - search.outcome.spent_ms
        if left < MINIMUM_MS or guard.remaining_s() <= 0:
            search.outcome.stopped = "budget" if left < MINIMUM_MS else "deadline"
            break
        share = max(MINIMUM_MS, left // _part(goal, thorough=thorough, last=number == len(goals) - 1))
        search.outcome.results.append(search.solve(number, goal, uppers[number], share, thorough=thorough))
        if not thorough and not search.outcome.results[-1].solved:
            search.outcome.stopped = search.outcome.stopped or "budget"
            break
    else:
        search.outcome.stopped = search.outcome.stopped or ("" if thorough else "columns")
    return search.outcome


def _part(goal: Goal, *, thorough: bool, last: bool) -> int:
    """By what the budget left is divided, so that no hard goal starves those behind it; the last may use it up."""
    if thorough:
        return 1 if last else 2
    if last:
        # What it proves it proves early: twice and a half the time gave no more of them within a gang.
        return 5
    return 8 if goal.name.startswith("spare[") else 4


@dataclass(frozen=True, slots=True)
class _Gentle:
    """How a goal is sought that need not be proven to the last, and whom it should rather not make leave.

    `gap`: what is worth no further search, `gang` and `least` what the goal gains by the largest and the smallest gang,
    if it is of gangs. Each of `leaves` who leaves counts less than anything that the goal counts.
    """

    gap: int = 0
    gang: int = 0
    least: int = 0
    leaves: tuple[cp_model.IntVar, ...] = ()

    @property
    def factor(self) -> int:
        """What one of the goal counts beside those who leave."""
        return len(self.leaves) + 1

    def over(self, goal: cp_model.LinearExprT) -> cp_model.LinearExprT:
        """The objective."""
        return self.factor * goal - sum(self.leaves) if self.leaves else goal

    def bound(self, objective: int) -> int:
        """What the goal cannot exceed where the objective cannot exceed this."""
        return (objective + len(self.leaves)) // self.factor


class _Search:
    """The model with the goals frozen so far, and the best solution at hand."""

    def __init__(
        self,
        model: cp_model.CpModel,
        incumbent: Incumbent,
        seed: int,
        guard: Guard,
        starts: Starts,
        leaves: Starts,
        gaps: Mapping[str, int],
    ) -> None:
        self.model = model
        self.gaps = gaps
        self.starts = starts
        self.leaves = leaves
        self.incumbent = incumbent
        self.level_with_incumbent = True
        self.frozen: list[tuple[Goal, int]] = []
        self.seed = seed
        self.guard = guard
        self.outcome = Outcome()

    def solve(self, number: int, goal: Goal, upper: int, share_ms: int, *, thorough: bool) -> StageResult:
        """Maximises one goal and freezes what it reached; `thorough`: the portfolio takes on what is unproven."""
        mark = self.incumbent.values[number]
        if not goal.terms:
            # Listed, but nothing that may happen in this round changes it.
            return StageResult(goal.constant, goal.constant, solved=True)
        if self.level_with_incumbent and mark == upper and self.outcome.solution is None:
            # The incumbent has all there is to have: nothing to search for.
            result = StageResult(mark, mark, solved=True)
        else:
            result = self._maximise(goal, upper, share_ms, thorough=thorough)
        if self.outcome.solution is not None and _value(goal, self.outcome.solution) < result.value:
            # The incumbent attains more than the last search found: that solution gives up a goal now frozen.
            self.outcome.solution = None
        self.model.add(expression(goal) >= result.value - goal.constant)
        self.frozen.append((goal, result.value))
        self.level_with_incumbent = self.level_with_incumbent and result.value == mark
        return result

    def _maximise(self, goal: Goal, upper: int, share_ms: int, *, thorough: bool) -> StageResult:
        """First the LP-driven search, which proves; what it leaves unproven goes to the portfolio, which improves."""
        self._leave_out_below(self._least_level(goal))
        known = self._best_known(goal)
        scale = gcd(*(coefficient for coefficient, _ in goal.terms)) or 1
        gentle = _Gentle() if thorough else self._gentle(goal, scale)
        self.model.maximize(gentle.over(expression(goal, scale)))
        bottom = goal.constant + self._least(goal)
        result = StageResult(bottom if known is None else known, upper, solved=False)
        searches = (max_lp, portfolio) if thorough else (quickly,)
        if not thorough and not self.level_with_incumbent and self.outcome.solution is not None:
            # Its rows leave few decisions: without one to start from the search may find none at all.
            self._hint(self.outcome.solution)
        for number, prepare in enumerate(searches):
            if result.bound - result.value <= gentle.gap * scale:
                result = replace(result, solved=True)
                break
            if result.value > bottom:
                self.model.add(expression(goal) >= result.value - goal.constant)
            if number:
                self._hint_best(goal)
            share = max(MINIMUM_MS, share_ms // len(searches))
            result = self._attempt(goal, scale, result, prepare, share, gentle)
        found = self.outcome.solution
        if gentle.least and result.solved and result.bound - result.value >= gentle.least and found is not None:
            result = self._extended(goal, found, result, share_ms, gentle)
        return result

    def _extended(
        self, goal: Goal, found: Sequence[int], so_far: StageResult, share_ms: int, gentle: _Gentle
    ) -> StageResult:
        """A solution with all that goes beside it: what a wide gap leaves may be gangs that just fit.

        All that the solution decides stays, so that next to nothing is left to be searched.
        """
        whole, self.model = self.model, self.model.clone()
        variables = self.model.proto.variables
        for variable, _ in self.incumbent.assignment:
            if found[variable.index]:
                variables[variable.index].domain[0] = found[variable.index]
        stopped, solver = self.outcome.stopped, self._solved(goal, share_ms, quickly)
        self.model, self.outcome.stopped = whole, stopped
        if solver is None:
            return so_far
        more = tuple(solver.response_proto.solution)
        value = _value(goal, more)
        if value <= so_far.value:
            return so_far
        self.outcome.solution = more
        return replace(so_far, value=value, far=so_far.bound - value > gentle.gang)

    def _least_level(self, goal: Goal) -> int | None:
        """Starts of lower levels only take room while the goal is searched for; None where there is none.

        While it is sought that nobody leaves, those of its own level do, too, unless a goal before it counts them.
        """
        if goal.level is None or not goal.name.startswith("spare["):
            return goal.level
        return goal.level + all(before.level != goal.level for before, _ in self.frozen)

    def _leave_out_below(self, level: int | None) -> None:
        """Nobody of a lower level starts while the goals of a level are searched for: whoever does only takes room."""
        for own, started in self.starts:
            started.proto.domain[1] = int(level is None or own >= level)

    def _gentle(self, goal: Goal, scale: int) -> _Gentle:
        """How a large round seeks it: to its gap, and sparing others."""
        gap = self.gaps.get(goal.name, 0) // scale
        if goal.level is None or not goal.name.startswith("start["):
            return _Gentle(gap)
        leaves = tuple(left for level, left in self.leaves if level < goal.level)
        own = {started.index for level, started in self.starts if level == goal.level}
        gains = [coefficient for coefficient, variable in goal.terms if variable.index in own]
        return _Gentle(gap, max(gains, default=0), min(gains, default=0), leaves)

    def _attempt(
        self, goal: Goal, scale: int, so_far: StageResult, prepare: Prepare, share_ms: int, gentle: _Gentle
    ) -> StageResult:
        """One search from what is known; the better value and the tighter bound of both."""
        solver = self._solved(goal, share_ms, prepare, gentle.gap * gentle.factor)
        if solver is None:
            return so_far
        self.outcome.solution = tuple(solver.response_proto.solution)
        value = _value(goal, self.outcome.solution)
        if solver.response_proto.status == cp_model.OPTIMAL and not gentle.gap:
            return StageResult(value, value, solved=True)
        bound = goal.constant + scale * gentle.bound(_rounded(solver.best_objective_bound))
        bound = max(value, min(so_far.bound, bound))
        return StageResult(value, bound, solved=True, far=bool(gentle.gang) and bound - value > gentle.gang)

    def _solved(self, goal: Goal, share_ms: int, prepare: Prepare, gap: int = 0) -> cp_model.CpSolver | None:
        """A solver that found a solution; None where there is no time left, or it found none in what it had."""
        remaining = self.guard.remaining_s()
        if remaining <= 0:
            self.outcome.stopped = "deadline"
            return None
        solver = cp_model.CpSolver()
        parameters = solver.parameters
        parameters.num_workers = 1
        parameters.random_seed = self.seed
        parameters.max_deterministic_time = share_ms / 1000
        parameters.absolute_gap_limit = max(parameters.absolute_gap_limit, gap)
        if remaining < inf:
            parameters.max_time_in_seconds = remaining
        prepare(parameters)
        status = solver.solve(self.model)
        self.outcome.spent_ms += max(MINIMUM_MS, round(solver.response_proto.deterministic_time * 1000))
        if status == cp_model.MODEL_INVALID:
            raise AssertionError(f"the model of goal {goal.name} is invalid: {self.model.validate()}")
        if status == cp_model.INFEASIBLE:
            raise AssertionError(f"goal {goal.name} has no solution although one is known")
        if status in SOLVED:
            return solver
        # No bound either: the solver's is 0 where it found none.
        self.outcome.stopped = "budget" if self.guard.remaining_s() > 0 else "deadline"
        return None

    def _best_known(self, goal: Goal) -> int | None:
        """The goal's best value at hand that gives up no frozen goal; from `economy` on, its solution is the hint."""
        if goal.name.endswith("]"):
            return (
                self.incumbent.values[len(self.outcome.results)] if self.level_with_incumbent else self._at_hand(goal)
            )
        if self.level_with_incumbent:
            found, mark = self.outcome.solution, self.incumbent.values[len(self.outcome.results)]
            # A solution of an earlier goal gives up a later one where the incumbent's value was taken unsearched.
            stale = found is not None and any(_value(frozen, found) < value for frozen, value in self.frozen)
            if found is None or stale or mark > _value(goal, found):
                self.outcome.solution = self._complete(goal)
        if self.outcome.solution is None:
            return None
        self._hint(self.outcome.solution)
        return _value(goal, self.outcome.solution)

    def _hint_best(self, goal: Goal) -> None:
        """The portfolio improves what it is given: the last solution, or the incumbent where no search found one."""
        if self.outcome.solution is not None:
            self._hint(self.outcome.solution)
        elif self.level_with_incumbent:
            self._hint(self._complete(goal))

    def _hint(self, solution: Sequence[int]) -> None:
        # At once: one by one the variables of a large model take 0.05 s.
        self.model.clear_hints()
        self.model.proto.solution_hint.vars.extend(range(len(solution)))
        self.model.proto.solution_hint.values.extend(solution)

    def _at_hand(self, goal: Goal) -> int | None:
        return None if self.outcome.solution is None else _value(goal, self.outcome.solution)

    def _complete(self, goal: Goal) -> Sequence[int]:
        """The incumbent with the auxiliary variables at their best for this goal.

        With all that decides fixed, propagation does it in a tenth of the time that presolve would take first.
        """
        fixed = self.model.clone()
        variables = fixed.proto.variables
        for variable, value in self.incumbent.assignment:
            domain = variables[variable.index].domain
            domain[0] = domain[1] = value
        fixed.maximize(expression(goal))
        for presolve, limit_s in ((False, _PROPAGATED_S), (True, inf)):
            solver = cp_model.CpSolver()
            solver.parameters.num_workers = 1
            solver.parameters.random_seed = self.seed
            solver.parameters.cp_model_presolve = presolve
            solver.parameters.max_deterministic_time = limit_s
            if solver.solve(fixed) == cp_model.OPTIMAL:
                return tuple(solver.response_proto.solution)
        raise AssertionError("the greedy's decision does not fit the model, although the verifier accepts it")

    def _least(self, goal: Goal) -> int:
        """A value that every solution reaches, for a goal of which no solution is at hand."""
        total = 0
        for coefficient, variable in goal.terms:
            # As a list: the solver's own sequence takes a negative index for one beside its end.
            bounds = list(variable.proto.domain)
            total += min(coefficient * bounds[0], coefficient * bounds[-1])
        return total


def _value(goal: Goal, solution: Sequence[int]) -> int:
    return goal.constant + sum(int(coefficient * solution[variable.index]) for coefficient, variable in goal.terms)


def expression(goal: Goal, scale: int = 1) -> cp_model.LinearExprT:
    """The goal without its constant, divided by a common divisor of its coefficients."""
    return cp_model.LinearExpr.weighted_sum([v for _, v in goal.terms], [c // scale for c, _ in goal.terms])


def _rounded(bound: float) -> int:
    """The largest integer objective that a floating-point bound allows, with room for its rounding errors."""
    return floor(bound + 1e-6 + 1e-9 * abs(bound))
