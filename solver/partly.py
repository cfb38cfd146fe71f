"""Rounds too large to be solved whole: their highest levels are, or a kernel of hosts; the greedy adds to it.

No goal of a level gets better by who starts at lower levels, and leaving these out breaks no rule. So what is proven of
the highest levels alone is proven of the round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..model.decision import Grain
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from .bound import level_of, one_gang
from .classes import Instance
from .demand import candidates
from .drains import Promise, promises
from .exact import Candidate, Lap, affordable, is_large, search
from .guard import Guard
from .kernel import WAITING, kernel
from .later import LaterGang, Plans, plans
from .merge import merged
from .narrow import narrowed
from .outcome import Outcome

Result = tuple[Candidate, Outcome, tuple[int, int], Grain]
"""The better plan, what the search reached and bounds, the size of its model, and how the round was told apart."""

LEVEL = 2
"""The highest levels are solved alone where this is among them: those above the usual one, for whom others leave."""


def in_part(
    snapshot: Snapshot,
    policy: Policy,
    upper: tuple[Instance, int] | None,
    best: Candidate,
    limits: Sequence[int],
    guard: Guard,
    lap: Lap,
) -> Result:
    """The better of the plan at hand and what is found in part of the round; without columns or time nothing is sought.

    `upper`: the round with the gangs of its highest levels, and the lowest of these.
    """
    waiting = candidates(snapshot)
    if not policy.solve.exact_columns or not affordable(WAITING * len(waiting), guard):
        return best, Outcome(stopped="columns"), (0, 0), Grain.SINGLETONS
    highest_wait = any(record.level >= LEVEL for record in waiting)
    if highest_wait and _attained(snapshot, policy, best, limits):
        # Of these levels there is no more to be had, at hardly less, and the round is too large for the others.
        return best, Outcome(stopped="columns"), (0, 0), Grain.SINGLETONS
    if upper is not None and upper[1] <= max(LEVEL, min((record.level for record in waiting), default=0)):
        instance, level = upper
        if highest_wait:
            # With those below them too the search would end at its budget.
            level, gangs = LEVEL, (gang for gang in instance.gangs if gang.record.level >= LEVEL)
            instance = replace(instance, gangs=tuple(gangs))
        narrow, left = narrowed(instance, plans(instance), best.values, limits, limits)
        found = highest(narrow, left, level, best, limits, guard, lap)
        if found is not None:
            return found
    return around(snapshot, policy, best, limits, guard, lap)


def _attained(snapshot: Snapshot, policy: Policy, best: Candidate, limits: Sequence[int]) -> bool:
    """Whether the plan has all there is to have for the highest levels, and at most a gang below leaves for it."""
    for value, limit in zip(best.values, limits, strict=True):
        level = level_of(value) if "[" in value.name else 0
        if level >= LEVEL and value.value < limit:
            return False
        if value.name == f"spare[{LEVEL - 1}]":
            # A milli-GPU that leaves is worth at least the horizon, as in `judge`.
            return limit - value.value <= policy.objective.horizon_s * one_gang(snapshot, policy, level)
    return True


def highest(
    instance: Instance, drains: Plans, level: int, best: Candidate, limits: Sequence[int], guard: Guard, lap: Lap
) -> Result | None:
    """The gangs of that level and above alone; None where they are too many, or promises bind lower ones to them."""
    if any(_binds(promise, level) for promise in drains.promises):
        return None
    drains = replace(drains, gangs=tuple(gang for gang in drains.gangs if _helps(gang, level)))
    model = merged(instance, drains)
    columns = model.columns + drains.columns
    if columns > instance.policy.solve.exact_columns or not affordable(columns, guard):
        return None
    result = search(model, drains, best, limits, guard, lap, large=True, least=level)
    return *result, Grain.UPPER_LEVELS


def _helps(gang: LaterGang, level: int) -> bool:
    """Whether the plan counts in a goal of the level or above."""
    return max(gang.record.level, gang.promise.level if gang.promise is not None else 0) >= level


def around(
    snapshot: Snapshot, policy: Policy, best: Candidate, limits: Sequence[int], guard: Guard, lap: Lap
) -> Result:
    """A kernel of hosts, which bounds nothing, for the highest levels; for all where nobody of these waits."""
    nothing = best, Outcome(stopped="columns"), (0, 0), Grain.SINGLETONS
    least = LEVEL if any(record.level >= LEVEL for record in candidates(snapshot)) else 0
    if any(_binds(promise, least) for promise in promises(snapshot, policy)):
        least = 0
    instance, drains = kernel(snapshot, policy, best.plan, policy.solve.exact_columns, least)
    drains = replace(drains, gangs=tuple(gang for gang in drains.gangs if _helps(gang, least)))
    columns = instance.columns + drains.columns
    if columns > policy.solve.exact_columns or not affordable(columns, guard):
        return nothing
    # Where lower levels are left out the plan at hand is no solution: nobody may leave for their starts.
    large = least > 0 or is_large(columns)
    instance = merged(instance, drains) if large else instance
    best, outcome, size = search(instance, drains, best, limits, guard, lap, large=large, alike=False, least=least)
    return best, Outcome(stopped="columns", spent_ms=outcome.spent_ms), size, Grain.KERNEL


def _binds(promise: Promise, level: int) -> bool:
    """Whether a goal of the level or above depends on a gang of a lower one."""
    return promise.level >= level > promise.record.level
