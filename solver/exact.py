"""The exact stage of a round: the model written, its goals solved in order, and the decision that the solution is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ortools.sat.python import cp_model

from ..model.decision import Stage
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from . import symmetry
from .bound import one_gang
from .classes import Instance
from .constraints import FAMILIES
from .decode import decode
from .decode_plans import decode_plans
from .demand import candidates
from .encode import encode
from .goals import GoalValue, values
from .guard import Guard
from .later import NO_PLANS, Plans
from .objective import Goal, goals_of_levels, goals_of_the_round
from .outcome import Incumbent, Outcome
from .plan import Plan
from .reprieve import reprieve
from .stages import run
from .top_up import beside, top_up
from .variables import Variables
from .verify import verify_starts

Lap = Callable[[str], None]
"""Is told of the end of each stage."""

LARGE = 5_000
"""Columns above which gangs are merged and only the goals of levels solved, by one search each, as far as proven."""

EXACT_LEVEL = 2
"""In large rounds goals of this level and above are sought until they are proven."""

GANG_PARTS = 16
"""Those below are sought within one of so many parts of a gang."""

_WRITTEN_S = 0.0001
"""Seconds in which a column is surely written into a model, with its rows."""

_PLACED_S = 0.004
"""Seconds in which the greedy surely places a gang or finds no place."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan that keeps all rules, with the goals it reaches."""

    stage: Stage
    plan: Plan
    values: tuple[GoalValue, ...]

    @property
    def rank(self) -> tuple[int, ...]:
        """Goals in order: the larger tuple is the better decision."""
        return tuple(value.value for value in self.values)


def is_large(columns: int) -> bool:
    """Whether a round of so many columns is a large one: merged, and solved level by level only."""
    return columns > LARGE


def affordable(columns: int, guard: Guard) -> bool:
    """Whether the model is surely written before the deadline."""
    return guard.remaining_s() > columns * _WRITTEN_S


def search(
    instance: Instance,
    drains: Plans,
    best: Candidate,
    limits: Sequence[int],
    guard: Guard,
    lap: Lap,
    *,
    large: bool,
    alike: bool = True,
    least: int = 0,
    spent_ms: int = 0,
) -> tuple[Candidate, Outcome, tuple[int, int]]:
    """The better of the plan at hand and the exact stage's; what that reached, and the size of its model.

    `least`: the lowest level whose gangs are in the instance; the greedy adds those below. Who leaves for these of the
    level below is sought, too, where nothing of that level comes before. `spent_ms`: what the round
    has spent of its budget before. Nothing is sought where there is no time to write the model.
    """
    if not affordable(instance.columns + drains.columns, guard):
        return best, Outcome(stopped="deadline"), (0, 0)
    policy, model = instance.policy, cp_model.CpModel()
    effort = replace(policy.solve, budget_ms=max(0, policy.solve.budget_ms - spent_ms))
    variables, listed = build(model, instance, drains, alike=alike, whole=not large)
    listed = tuple(goal for goal in listed if _sought(goal, least, best))
    # In a kernel nobody of some level may leave: what its goals are is then known, and they are not listed.
    attained = {value.name: (value.value, limit) for value, limit in zip(best.values, limits, strict=True)}
    limits = [attained[goal.name][1] for goal in listed]
    incumbent = Incumbent([attained[goal.name][0] for goal in listed], encode(variables, best.plan))
    lap("encode")
    starts, leaves = _starts(variables), _leaves(variables)
    gaps = _gaps(listed, instance) if large else {}
    outcome = run(
        model,
        listed,
        incumbent,
        limits,
        effort,
        guard=guard,
        starts=starts,
        leaves=leaves,
        gaps=gaps,
        thorough=not large,
    )
    outcome.spent_ms += spent_ms
    lap("exact")
    if large and all(result.value == mark for result, mark in zip(outcome.results, incumbent.values, strict=False)):
        # The plan at hand attains all that was found, and is packed better than a search for that alone packs.
        found = None
    else:
        found = _exact(variables, outcome, instance.snapshot, policy)
    if found is not None and guard.remaining_s() > len(candidates(instance.snapshot)) * _PLACED_S:
        level = _unsolved(listed, outcome, incumbent, least)
        if level is not None:
            best = _better(best, _filled(found, best, level, instance.snapshot, policy, drains))
    best = _better(best, found)
    lap("decode")
    return best, outcome, (len(model.proto.variables), len(model.proto.constraints))


def build(
    model: cp_model.CpModel, instance: Instance, drains: Plans = NO_PLANS, *, alike: bool = True, whole: bool = True
) -> tuple[Variables, tuple[Goal, ...]]:
    """Writes the whole model of a round: variables, every rule family, the cuts, and the goals.

    `alike`: gangs alike in the instance are alike in the round, as they are not where hosts were left out. Not `whole`:
    only the goals of levels, as the last ones cost most and give least in a large round.
    """
    variables = Variables(model, instance, drains)
    for add in FAMILIES.values():
        add(model, instance, variables)
    if alike:
        symmetry.add(model, instance, variables)
    listed = goals_of_levels(variables)
    return variables, (*listed, *goals_of_the_round(variables)) if whole else listed


def _sought(goal: Goal, least: int, best: Candidate) -> bool:
    """Whether the goal depends on no gang below that level."""
    if goal.level is None or goal.level >= least:
        return True
    first = next(value.name for value in best.values if value.name.endswith(f"[{goal.level}]"))
    return goal.level == least - 1 and goal.name == first and goal.name.startswith("spare[")


def _gaps(listed: Sequence[Goal], instance: Instance) -> dict[str, int]:
    """How near their bounds goals of the usual levels are sought: what is left then is worth no further search."""
    worth = instance.policy.objective.horizon_s
    return {
        goal.name: one_gang(instance.snapshot, instance.policy, goal.level) * worth // GANG_PARTS
        for goal in listed
        if goal.level is not None and goal.level < EXACT_LEVEL and goal.name.startswith(("spare[", "start["))
    }


def _starts(variables: Variables) -> list[tuple[int, cp_model.IntVar]]:
    """For each start and plan the highest level with a goal that it may help: its own, or its promise's."""
    promised = {promise.record.id: promise.level for promise in variables.plans.promises}
    starts = [start for gang in variables.instance.gangs for start in variables.starts(gang)]
    starts += [(gang.record, variables.started(gang)) for gang in variables.plans.gangs]
    return [(max(record.level, promised.get(record.id, 0)), started) for record, started in starts]


def _leaves(variables: Variables) -> list[tuple[int, cp_model.IntVar]]:
    """The possible victims: level, and 1 if preempted."""
    instance = variables.instance
    return [
        (victim.level, variables.evicted(victim.id)) for victim in instance.victims if victim.id not in instance.staying
    ]


def candidate(stage: Stage, plan: Plan, snapshot: Snapshot, policy: Policy) -> Candidate:
    """The plan with the goals that it reaches."""
    reached = values(snapshot, policy, plan.starts, plan.preemptions, plan.reservations, plan.resizes)
    return Candidate(stage, plan, reached)


def _exact(variables: Variables, outcome: Outcome, snapshot: Snapshot, policy: Policy) -> Candidate | None:
    """The exact stage's decision; None where it has none or the verifier finds it at fault."""
    if outcome.solution is None:
        return None
    starts, victims, returns = decode(variables, outcome.solution)
    planned = decode_plans(variables, outcome.solution, (*starts, *returns), victims)
    plan = reprieve(snapshot, policy, starts, victims, planned, returns)
    if verify_starts(snapshot, policy, plan.starts, plan.preemptions, plan.reservations, plan.resizes):
        return None
    return candidate(Stage.EXACT, plan, snapshot, policy)


def _unsolved(listed: Sequence[Goal], outcome: Outcome, incumbent: Incumbent, least: int) -> int | None:
    """The level below which the greedy adds to the decision: of the first goal not well solved; None if there is none.

    Starts of that level stay only where they attain more than the incumbent's.
    """
    for number, (goal, mark) in enumerate(zip(listed, incumbent.values, strict=True)):
        result = outcome.results[number] if number < len(outcome.results) else None
        if goal.level is not None and (result is None or not result.solved or result.far):
            return goal.level + (result is None or not goal.name.startswith("start[") or result.value < mark)
    return least or None


def _filled(
    found: Candidate, best: Candidate, level: int, snapshot: Snapshot, policy: Policy, drains: Plans
) -> Candidate | None:
    """The exact decision's starts of that level and above, with what the plan at hand has below it.

    Where these do not go together, or are no better, with all that the greedy adds to them, which takes far longer.
    """
    both = beside(snapshot, policy, found.plan, best.plan, level)
    if both is not None:
        one = candidate(Stage.EXACT, both, snapshot, policy)
        if one.rank > best.rank:
            return one
    return _topped_up(found, level, snapshot, policy, drains)


def _topped_up(found: Candidate, level: int, snapshot: Snapshot, policy: Policy, drains: Plans) -> Candidate | None:
    """The exact decision's starts of that level and above, and all that the greedy adds to these.

    Beside these starts the greedy may find planned starts that the round does not try; such plans are passed over.
    """
    plans = [
        plan
        for plan in top_up(snapshot, policy, found.plan, level)
        if all(one.planned_start_s in drains.tried.get(one.job, ()) for one in plan.reservations)
    ]
    filled = [candidate(Stage.EXACT, plan, snapshot, policy) for plan in plans]
    return max(filled, key=lambda one: one.rank, default=None)


def _better(greedy_one: Candidate, exact_one: Candidate | None) -> Candidate:
    """The exact decision on a tie: its goals are the ones that were certified."""
    if exact_one is None or exact_one.rank < greedy_one.rank:
        return greedy_one
    return exact_one
