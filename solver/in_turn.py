"""Large rounds, solved in two turns: their highest levels alone, and then the round with what these leave possible.

For gangs of the highest levels nearly every host is a place, as others may leave for them. Alone they are few, and
quickly solved; once it is known what they attain, and whom it costs, most of these places are out of the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..model.decision import Grain
from .bound import level_of
from .classes import Instance
from .exact import Candidate, Lap, search
from .goals import GoalValue
from .guard import Guard
from .later import Plans
from .merge import merged
from .narrow import narrowed
from .outcome import Outcome, StageResult
from .partly import LEVEL, Result, around, highest

_TURNS = 2
"""How often the lower levels are searched at most: again where the first time left out what a plan came to need."""


def in_turn(instance: Instance, plans: Plans, best: Candidate, limits: Sequence[int], guard: Guard, lap: Lap) -> Result:
    """A large round: the better of the plan at hand and the exact stage's, what that reached, its size and grain."""
    ideal, spent_ms, size = limits, 0, (0, 0)
    if any(value.value < limit for value, limit in _upper(best.values, limits)):
        uppermost = replace(instance, gangs=tuple(gang for gang in instance.gangs if gang.record.level >= LEVEL))
        found = highest(uppermost, plans, LEVEL, best, limits, guard, lap)
        if found is not None:
            best, outcome, size, _ = found
            if outcome.stopped in ("budget", "deadline"):
                return found
            limits, spent_ms = _tightened(best.values, outcome.results, limits), outcome.spent_ms
    for _ in range(_TURNS):
        narrow, left = narrowed(instance, plans, best.values, limits, ideal)
        model, marks = merged(narrow, left), best.values
        if model.columns + left.columns > instance.policy.solve.exact_columns:
            return around(instance.snapshot, instance.policy, best, limits, guard, lap)
        best, outcome, now = search(model, left, best, limits, guard, lap, large=True, spent_ms=spent_ms)
        size, spent_ms = (max(size[0], now[0]), max(size[1], now[1])), outcome.spent_ms
        short = _reopened(outcome, marks, ideal)
        if short is None or 2 * spent_ms > instance.policy.solve.budget_ms:
            break
        limits = _tightened(best.values, outcome.results[:short], limits)
    return best, outcome, size, Grain.MERGED


def at_once(instance: Instance, plans: Plans, best: Candidate, limits: Sequence[int], guard: Guard, lap: Lap) -> Result:
    """The same of a round that is not large, all of its goals sought as far as can be."""
    ideal, spent_ms = limits, 0
    for _ in range(_TURNS):
        narrow, left = narrowed(instance, plans, best.values, limits, ideal)
        marks = best.values
        best, outcome, size = search(narrow, left, best, limits, guard, lap, large=False, spent_ms=spent_ms)
        short, spent_ms = _reopened(outcome, marks, ideal), outcome.spent_ms
        if short is None:
            break
        limits = _tightened(best.values, outcome.results[:short], limits)
    return best, outcome, size, Grain.SINGLETONS


def _upper(values: Sequence[GoalValue], limits: Sequence[int]) -> list[tuple[GoalValue, int]]:
    """The goals of the highest levels, which come first, with their limits."""
    pairs = zip(values, limits, strict=True)
    return [(value, limit) for value, limit in pairs if "[" in value.name and level_of(value) >= LEVEL]


def _reopened(outcome: Outcome, marks: Sequence[GoalValue], ideal: Sequence[int]) -> int | None:
    """Gives a `plan` its ideal as bound where a goal before it came to exceed the plan at hand; the first such one.

    Starts were left out that it could need then. None where there is no such goal, or no budget to do better.
    """
    better, first = False, None
    for number, result in enumerate(outcome.results):
        if better and marks[number].name.startswith("plan[") and result.value < ideal[number]:
            outcome.results[number] = replace(result, bound=ideal[number])
            first = number if first is None else first
        better = better or result.value != marks[number].value
    return None if outcome.stopped in ("budget", "deadline") else first


def _tightened(values: Sequence[GoalValue], results: Sequence[StageResult], limits: Sequence[int]) -> list[int]:
    """The limits with the bounds of these goals, which hold up to the first one of which the decision has less."""
    bounds = list(limits)
    for number, (value, result) in enumerate(zip(values, results, strict=False)):
        bounds[number] = min(limits[number], result.bound)
        if value.value < result.value:
            break
    return bounds
