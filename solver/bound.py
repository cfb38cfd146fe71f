"""How near a goal's value is to its bound: proven, within a gang, or open (DESIGN 3)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from ..model.decision import GoalResult, GoalStatus
from ..model.ids import JobId, TeamId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import candidates, victims
from .drains import named
from .goals import GoalValue, usable_left, values
from .goals_planned import planned_goals
from .later import Plans
from .order import Order, order, value_milli
from .returning import returners
from .rights import Key, Rights, rights_of
from .sizes import ways
from .spread_now import spread_now


def uppers(
    snapshot: Snapshot,
    policy: Policy,
    startable: frozenset[JobId],
    plans: Plans | None = None,
    returning: frozenset[JobId] | None = None,
) -> list[int]:
    """What no decision can exceed, one a goal, if only the `startable` gangs can start, and only `plans` made.

    Only the `returning` jobs can return; all that are named where that is not told.
    `keep`, `plan`: every named gang starts, or is planned as early as it can be alone; without `plans` they all start.
    `guarantee`: each is claimed as far as it is left and asked. `calm`: no plan changes. `spare`: nobody leaves.
    `start`: all of them start, at their largest sizes. `economy`: nothing is lost, no room taken, no GPU stranded,
    everybody gone who may leave. `order`: all of them start.
    """
    ranks = order(snapshot, policy)
    gangs = [record for record in candidates(snapshot) if record.id in startable]
    empty = values(snapshot, policy, ())
    ideal = ideal_plans(snapshot, policy) if plans is None else _earliest(snapshot.now_s, policy, startable, plans)
    bounds = []
    for value in empty:
        if value.name == "order":
            bounds.append(sum(len(ranks.place) - ranks.place[record.id] for record in gangs))
        elif value.name == "economy":
            bounds.append(_all_room(snapshot, policy, value, returning, leaves=bool(gangs)))
        elif value.name == "calm" or value.name.startswith("spare["):
            bounds.append(0)
        elif value.name.startswith("guarantee["):
            bounds.append(_all_claimed(level_of(value), gangs, rights_of(snapshot)))
        elif value.name in ideal:
            bounds.append(ideal[value.name])
        else:
            bounds.append(_all_started(level_of(value), gangs, ranks, policy))
    return bounds


def ideal_plans(snapshot: Snapshot, policy: Policy) -> dict[str, int]:
    """The values of `keep` and `plan` if every gang for which hosts may be reserved started."""
    ideal = planned_goals(snapshot, policy, named(snapshot, policy), ())
    keep = {f"keep[{level}]": value for level, value in ideal.keep.items()}
    return keep | {f"plan[{level}]": value for level, value in ideal.plan.items()}


def _earliest(now_s: int, policy: Policy, startable: frozenset[JobId], plans: Plans) -> dict[str, int]:
    """The same where gangs that cannot start now are planned at their first candidate start."""
    first = {gang.record.id: gang.starts[0] for gang in plans.gangs} | dict.fromkeys(startable, now_s)
    most: Counter[str] = Counter()
    for promise in plans.promises:
        in_time = first.get(promise.record.id, promise.start_s + 1) <= promise.start_s
        most[f"keep[{promise.level}]"] += value_milli(promise.record, policy) if in_time else 0
    for record in plans.named:
        left_s = policy.time.plan_horizon_s - (first[record.id] - now_s) if record.id in first else 0
        most[f"plan[{record.level}]"] += value_milli(record, policy) * left_s
    return dict(most)


def level_of(goal: GoalValue) -> int:
    """The level of a goal that is named for one, as `start[2]` is."""
    return int(goal.name.partition("[")[2][:-1])


def _all_claimed(level: int, gangs: Sequence[JobRecord], rights: Rights) -> int:
    """milli-GPU that the level's gangs could start inside: no team more than what is left where it may claim."""
    asked: Counter[TeamId] = Counter()
    for record in gangs:
        if record.level == level and rights.can_be_inside(record):
            asked[record.job.team] += max(sized.job.gpu_milli for sized in ways(record))
    claims: dict[frozenset[Key], int] = defaultdict(int)
    for team, milli in asked.items():
        claims[frozenset(key for key in rights.left if rights.holder(team, key[1]) == key[0])] += milli
    total = sum(min(milli, sum(rights.left[key] for key in keys)) for keys, milli in claims.items())
    return min(total, sum(rights.left[key] for key in frozenset[Key]().union(*claims)))


def _all_started(level: int, gangs: Sequence[JobRecord], ranks: Order, policy: Policy) -> int:
    total, upward = 0, Counter[TeamId]()
    for record in gangs:
        milli = max(value_milli(sized, policy) for sized in ways(record)) if record.level >= level else 0
        if record.level == level:
            total += milli * ranks.weight[record.id]
        upward[record.job.team] += milli
    total += sum(ranks.curve[team].credit(milli) for team, milli in upward.items())
    return policy.objective.horizon_s // 100 * total


def _all_room(
    snapshot: Snapshot, policy: Policy, empty: GoalValue, returning: frozenset[JobId] | None, *, leaves: bool
) -> int:
    """`economy` where nothing is lost: all gone who may leave or move, no GPU stranded, no gang that returns spread."""
    named = returners(snapshot, policy)
    able = {r.id for r in (*named.shrinkers, *named.movers)} if returning is None else returning
    movers = [record for record in named.movers if record.id in able]
    shrinkers = [record for record in named.shrinkers if record.id in able and leaves]
    if not movers and not shrinkers and not leaves:
        return empty.value
    gone = (*movers, *(victims(snapshot, policy) if leaves else ()))
    back = {record.id: record for record in (*movers, *shrinkers)}.values()
    return usable_left(snapshot, policy, gone) + sum(spread_now(record, snapshot, policy) for record in back)


def judge(
    snapshot: Snapshot, policy: Policy, reached: Sequence[GoalValue], bounds: Sequence[int]
) -> tuple[GoalResult, ...]:
    """The goals of a decision with their bounds and statuses.

    A bound is valid only while all goals before it keep the values it was computed for; `bounds` must hold that.
    """
    results = []
    for value, bound in zip(reached, bounds, strict=True):
        top = max(value.value, bound)
        status = GoalStatus.PROVEN if top == value.value else GoalStatus.OPEN
        if status is GoalStatus.OPEN and value.name.startswith(("guarantee[", "start[", "spare[")):
            # A milli-GPU is worth at least H in `start` and `spare`, and one in `guarantee`; this rounds the gap up.
            worth = 1 if value.name.startswith("guarantee[") else policy.objective.horizon_s
            short = -(-(top - value.value) // worth)
            one_more = value.name.startswith("start[") and top - value.value <= _worth(
                snapshot, policy, level_of(value)
            )
            if one_more or short <= one_gang(snapshot, policy, level_of(value)):
                status = GoalStatus.WITHIN_A_GANG
        results.append(
            GoalResult(name=value.name, unit=value.unit, value=value.value, bound=top, status=status, parts=value.parts)
        )
    return tuple(results)


def one_gang(snapshot: Snapshot, policy: Policy, level: int) -> int:
    """milli-GPU that a gap may have and still be within a gang.

    The larger of a share of what the level runs and the largest gang that waits at the level.
    """
    running = sum(r.job.gpu_milli for r in snapshot.jobs if r.level == level and r.state.holds_capacity)
    waiting = [value_milli(record, policy) for record in candidates(snapshot) if record.level == level]
    return max(running * policy.solve.within_a_gang_milli // 1000, max(waiting, default=0))


def _worth(snapshot: Snapshot, policy: Policy, level: int) -> int:
    """What `start` of the level gains at least by the waiting gang that is worth most there [mGPU*s]."""
    ranks = order(snapshot, policy)
    waiting = (record.id for record in candidates(snapshot) if record.level == level)
    return policy.objective.horizon_s // 100 * max((ranks.milli[job] * ranks.weight[job] for job in waiting), default=0)
