"""Certified bounds for rounds that are too large for the exact model: one linear program a goal (DESIGN 3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..model.ids import TeamId
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from .goals import GoalValue, shrink_cost, victim_cost
from .lp_model import LpSolver, certified
from .lp_relaxation import Relaxation
from .order import Curve, Order, order, value_milli
from .plan import Plan

EFFORT = 4.0
"""GLOP's deterministic time for one goal, about seconds."""


@dataclass(slots=True)
class _Objective:
    """A goal over the columns of the relaxation; `reached` is what the plan attains of it there."""

    terms: dict[int, int] = field(default_factory=dict)
    reached: int = 0


def lp_bounds(
    snapshot: Snapshot, policy: Policy, plan: Plan, values: Sequence[GoalValue], uppers: Sequence[int]
) -> list[int]:
    """For each goal what no decision can exceed while the goals before it keep the plan's values; at most `uppers`.

    Only `spare` and `start` goals are looked at. A goal that this relaxation states otherwise than `values` does keeps
    its upper bound, and so do goals for which no linear program ends in its deterministic time.
    """
    bounds = list(uppers)
    if all(value.value >= upper for value, upper in zip(values, uppers, strict=True) if _level(value) is not None):
        return bounds
    relaxation = Relaxation(snapshot, policy)
    ranks = order(snapshot, policy)
    stated = [_stated(value, relaxation, ranks, plan, snapshot, policy) for value in values]
    solver = LpSolver(relaxation.model, EFFORT)
    for number, (value, objective) in enumerate(zip(values, stated, strict=True)):
        if objective is None:
            continue
        if value.value < uppers[number]:
            duals = solver.duals(objective.terms)
            if duals is not None:
                bound = certified(relaxation.model, objective.terms, duals)
                bounds[number] = min(uppers[number], bound)
        relaxation.model.at_most({column: -amount for column, amount in objective.terms.items()}, -value.value)
    return bounds


def _level(goal: GoalValue) -> int | None:
    name, _, rest = goal.name.partition("[")
    return int(rest[:-1]) if name in ("spare", "start") else None


def _stated(
    value: GoalValue, relaxation: Relaxation, ranks: Order, plan: Plan, snapshot: Snapshot, policy: Policy
) -> _Objective | None:
    """The goal over the columns; None for other goals, and where the plan's value is not the one stated."""
    level = _level(value)
    if level is None:
        return None
    if value.name.startswith("spare"):
        objective = _spare(level, relaxation, plan, snapshot, policy)
    else:
        objective = _start(level, relaxation, ranks, plan, policy)
    return objective if objective.reached == value.value else None


def _spare(level: int, relaxation: Relaxation, plan: Plan, snapshot: Snapshot, policy: Policy) -> _Objective:
    stopped, objective = {act.job for act in plan.preemptions}, _Objective()
    back = {act.job: len(act.placement.workers) for act in plan.resizes}
    for record in relaxation.possible:
        if record.level == level:
            cost = victim_cost(record, snapshot, policy)
            objective.terms[relaxation.evicted[record.id]] = -cost
            objective.reached -= cost if record.id in stopped else 0
    for each in relaxation.returns:
        if each.now.level == level and each.now is not each.then:
            cost = shrink_cost(each.now, each.then, snapshot, policy)
            objective.terms[each.column] = -cost
            objective.reached -= cost if back.get(each.now.id) == each.then.job.workers else 0
    return objective


def _start(level: int, relaxation: Relaxation, ranks: Order, plan: Plan, policy: Policy) -> _Objective:
    """Weighted milli-GPU, and each team's falling credit in portions for all it starts at the level and above."""
    scale = policy.objective.horizon_s // 100
    started, objective = {start.job: len(start.placement.workers) for start in plan.starts}, _Objective()
    teams: dict[TeamId, dict[int, int]] = defaultdict(dict)
    reached: Counter[TeamId] = Counter()
    for record, column in relaxation.starts:
        milli, starts = value_milli(record, policy), started.get(record.id) == record.job.workers
        if record.level == level:
            objective.terms[column] = scale * milli * ranks.weight[record.id]
            objective.reached += objective.terms[column] if starts else 0
        if record.level >= level:
            teams[record.job.team][column] = milli
            reached[record.job.team] += milli if starts else 0
    for team, milli_of in sorted(teams.items()):
        objective.reached += scale * ranks.curve[team].credit(reached[team])
        _credit(ranks.curve[team], milli_of, relaxation, scale, objective)
    return objective


def _credit(curve: Curve, milli_of: dict[int, int], relaxation: Relaxation, scale: int, objective: _Objective) -> None:
    low, portions = curve.base, {}
    for end, weight in zip(curve.ends, curve.weights, strict=True):
        if end > low and weight:
            column = relaxation.model.column(end - low)
            portions[column] = 1
            objective.terms[column] = scale * weight
        low = max(low, end)
    relaxation.model.at_most({**portions, **{column: -milli for column, milli in milli_of.items()}}, 0)
