"""`solve`: one scheduling round, pure. Reduce, greedy, exact stages, decode, reprieve, reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from ..model.decision import Certificate, Decision, Grain, Stage
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from . import symmetry
from .bound import judge, uppers
from .classes import Instance, TooLarge, reduce
from .collector import paused_collector
from .constraints import FAMILIES
from .decode import decode
from .decode_plans import decode_plans
from .demand import candidates
from .encode import encode
from .evict import greedy_plan
from .exchange import exchange
from .explain import reasons
from .goals import GoalValue, values
from .grow import grown
from .guard import Guard, Unlimited
from .kernel import WAITING, kernel
from .later import NO_PLANS, Plans, plans
from .lp_bound import lp_bounds
from .merge import merged
from .objective import Goal, goals_of_levels, goals_of_the_round
from .plan import Plan
from .prefetch import prefetches
from .reprieve import reprieve
from .sizes import settled
from .stages import Incumbent, Outcome, run
from .top_up import top_up
from .variables import Variables
from .verify import verify_starts


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A plan that keeps all rules, with the goals it reaches."""

    stage: Stage
    plan: Plan
    values: tuple[GoalValue, ...]

    @property
    def rank(self) -> tuple[int, ...]:
        """Goals in order: the larger tuple is the better decision."""
        return tuple(value.value for value in self.values)


_FEWEST_COLUMNS = 4_000
"""Exact models of at most this many columns are counted before they are called too large."""

_WRITTEN_S = 0.0003
"""Seconds in which a column is surely written into a model, with its rows."""

_PLACED_S = 0.004
"""Seconds in which the greedy surely places a gang or finds no place."""

_LARGE = 5_000
"""Columns above which gangs are merged, and only the goals of levels solved: one search each, no further than proven."""


@paused_collector()
def solve(
    snapshot: Snapshot, policy: Policy, *, guard: Guard | None = None, lap: Callable[[str], None] = lambda stage: None
) -> Decision:
    """Chooses which gangs start where.

    Pure: the same snapshot and policy give the same decision, unless `guard` (a wall-clock deadline from outside) cuts
    the search short; the certificate then says `deadline`. The best verified decision so far is returned at any rate.
    `lap` is told of the end of each stage: reduce, greedy, exact, bounds, reasons.
    """
    guard, snapshot = guard or Unlimited(), settled(snapshot)
    instance = _reduced(snapshot, policy)
    drains = NO_PLANS if instance is None else plans(instance)
    lap("reduce")
    best = _candidate(Stage.GREEDY, exchange(snapshot, policy, greedy_plan(snapshot, policy)), snapshot, policy)
    lap("greedy")
    starting = candidates(snapshot) if instance is None else [gang.record for gang in instance.gangs]
    startable = frozenset(record.id for record in starting)
    anything = bool(startable or drains.gangs or (instance is not None and instance.returns))
    known = None if instance is None else drains
    returning = None if instance is None else frozenset(gang.record.id for gang in instance.returns)
    limits = uppers(snapshot, policy, startable, known, returning)
    outcome, size, grain = Outcome(), (0, 0), Grain.SINGLETONS
    if anything and (instance is None or instance.columns + drains.columns > policy.solve.exact_columns):
        best, outcome, size = _in_kernel(snapshot, policy, best, limits, guard)
        grain = Grain.KERNEL if size[0] else grain
    elif instance is not None and anything:
        best, outcome, size = _whole(instance, drains, best, limits, guard)
        grain = Grain.MERGED if _large(instance, drains) and size[0] else grain
    lap("exact")
    bounds = _bounds(best, outcome, limits)
    if outcome.stopped and guard.remaining_s() > 0:
        bounds = lp_bounds(snapshot, policy, best.plan, best.values, bounds)
    lap("bounds")
    plan, resizes = best.plan, best.plan.resizes or grown(snapshot, policy)
    waiting = reasons(snapshot, policy, plan.starts, plan.preemptions, plan.reservations, plan.resizes)
    lap("reasons")
    return Decision(
        snapshot_version=snapshot.store_version,
        now_s=snapshot.now_s,
        starts=best.plan.starts,
        preemptions=best.plan.preemptions,
        resizes=resizes,
        reservations=best.plan.reservations,
        releases=best.plan.releases,
        prefetches=prefetches(snapshot, policy, best.plan.starts, best.plan.reservations, resizes),
        waiting=waiting,
        goals=judge(snapshot, policy, best.values, bounds),
        certificate=Certificate(
            stage=best.stage if anything else Stage.NOTHING_TO_DO,
            grain=grain,
            budget_ms=policy.solve.budget_ms,
            spent_ms=outcome.spent_ms,
            seed=policy.solve.seed,
            columns=size[0],
            rows=size[1],
            goals_solved=sum(result.solved for result in outcome.results),
            stopped=outcome.stopped,
        ),
    )


def _reduced(snapshot: Snapshot, policy: Policy) -> Instance | None:
    """The round at the singleton grain; None where it is too large for the exact model beyond doubt."""
    try:
        return reduce(snapshot, policy, most=max(_FEWEST_COLUMNS, policy.solve.exact_columns))
    except TooLarge:
        return None


def _large(instance: Instance, drains: Plans) -> bool:
    return instance.columns + drains.columns > _LARGE


def _affordable(columns: int, guard: Guard) -> bool:
    """Whether the model is surely written before the deadline."""
    return guard.remaining_s() > columns * _WRITTEN_S


def _whole(
    instance: Instance, drains: Plans, best: _Candidate, limits: Sequence[int], guard: Guard
) -> tuple[_Candidate, Outcome, tuple[int, int]]:
    """As `_search`; nothing where there is no time to write the model."""
    if not _affordable(instance.columns + drains.columns, guard):
        return best, Outcome(stopped="deadline"), (0, 0)
    return _search(instance, drains, best, limits, guard)


def _in_kernel(
    snapshot: Snapshot, policy: Policy, best: _Candidate, limits: Sequence[int], guard: Guard
) -> tuple[_Candidate, Outcome, tuple[int, int]]:
    """The better of the plan at hand and the kernel's; what was spent, and the size of its model. It bounds nothing."""
    nothing = best, Outcome(stopped="columns"), (0, 0)
    if not policy.solve.exact_columns or not _affordable(WAITING * len(candidates(snapshot)), guard):
        return nothing
    instance, drains = kernel(snapshot, policy, best.plan, policy.solve.exact_columns)
    columns = instance.columns + drains.columns
    if columns > policy.solve.exact_columns or not _affordable(columns, guard):
        return nothing
    best, outcome, size = _search(instance, drains, best, limits, guard, alike=False)
    return best, Outcome(stopped="columns", spent_ms=outcome.spent_ms), size


def _search(
    instance: Instance, drains: Plans, best: _Candidate, limits: Sequence[int], guard: Guard, *, alike: bool = True
) -> tuple[_Candidate, Outcome, tuple[int, int]]:
    """The better of the plan at hand and the exact stage's; what that reached, and the size of its model."""
    policy, model = instance.policy, cp_model.CpModel()
    large = _large(instance, drains)
    if large:
        instance = merged(instance, drains)
    variables, listed = build(model, instance, drains, alike=alike, whole=not large)
    # In a kernel nobody of some level may leave: what its goals are is then known, and they are not listed.
    attained = {value.name: (value.value, limit) for value, limit in zip(best.values, limits, strict=True)}
    limits = [attained[goal.name][1] for goal in listed]
    incumbent = Incumbent([attained[goal.name][0] for goal in listed], encode(variables, best.plan))
    budget_ms, seed = policy.solve.budget_ms, policy.solve.seed
    outcome = run(
        model,
        listed,
        incumbent,
        limits,
        budget_ms=budget_ms,
        seed=seed,
        guard=guard,
        starts=_starts(variables),
        thorough=not large,
    )
    found = _exact(variables, outcome, instance.snapshot, policy)
    if found is not None and guard.remaining_s() > len(candidates(instance.snapshot)) * _PLACED_S:
        best = _better(best, _topped_up(found, listed, outcome, incumbent, instance.snapshot, policy))
    best = _better(best, found)
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


def _starts(variables: Variables) -> list[tuple[int, cp_model.IntVar]]:
    """For each start and plan the highest level with a goal that it may help: its own, or its promise's."""
    promised = {promise.record.id: promise.level for promise in variables.plans.promises}
    starts = [start for gang in variables.instance.gangs for start in variables.starts(gang)]
    starts += [(gang.record, variables.started(gang)) for gang in variables.plans.gangs]
    return [(max(record.level, promised.get(record.id, 0)), started) for record, started in starts]


def _candidate(stage: Stage, plan: Plan, snapshot: Snapshot, policy: Policy) -> _Candidate:
    reached = values(snapshot, policy, plan.starts, plan.preemptions, plan.reservations, plan.resizes)
    return _Candidate(stage, plan, reached)


def _exact(variables: Variables, outcome: Outcome, snapshot: Snapshot, policy: Policy) -> _Candidate | None:
    """The exact stage's decision; None where it has none or the verifier finds it at fault."""
    if outcome.solution is None:
        return None
    starts, victims, returns = decode(variables, outcome.solution)
    planned = decode_plans(variables, outcome.solution, (*starts, *returns), victims)
    plan = reprieve(snapshot, policy, starts, victims, planned, returns)
    if verify_starts(snapshot, policy, plan.starts, plan.preemptions, plan.reservations, plan.resizes):
        return None
    return _candidate(Stage.EXACT, plan, snapshot, policy)


def _topped_up(
    found: _Candidate,
    listed: Sequence[Goal],
    outcome: Outcome,
    incumbent: Incumbent,
    snapshot: Snapshot,
    policy: Policy,
) -> _Candidate | None:
    """The exact decision down to the first goal of a level left unsolved, and all that the greedy adds to that.

    Starts of that level stay only where they attain more than the incumbent's.
    """
    for number, (goal, mark) in enumerate(zip(listed, incumbent.values, strict=True)):
        result = outcome.results[number] if number < len(outcome.results) else None
        if goal.level is not None and (result is None or not result.solved):
            above = result is None or not goal.name.startswith("start[") or result.value < mark
            plans = top_up(snapshot, policy, found.plan, goal.level + above)
            filled = [_candidate(Stage.EXACT, plan, snapshot, policy) for plan in plans]
            return max(filled, key=lambda one: one.rank, default=None)
    return None


def _better(greedy_one: _Candidate, exact_one: _Candidate | None) -> _Candidate:
    """The exact decision on a tie: its goals are the ones that were certified."""
    if exact_one is None or exact_one.rank < greedy_one.rank:
        return greedy_one
    return exact_one


def _bounds(best: _Candidate, outcome: Outcome, limits: Sequence[int]) -> list[int]:
    """A valid bound for each goal of the decision.

    The exact stage bounds goal k given the values it froze for the goals before; these bounds hold for the decision
    up to and including the first goal on which the decision differs from what was frozen. Behind that, and where no
    stage came, only what no decision can exceed holds.
    """
    bounds = list(limits)
    for number, (result, value) in enumerate(zip(outcome.results, best.values, strict=False)):
        bounds[number] = min(limits[number], result.bound)
        if result.value != value.value:
            break
    return bounds
