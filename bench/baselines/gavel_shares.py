"""Gavel's allocation: the share of time that each class of jobs should get on each GPU type, by linear programming."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ortools.linear_solver import pywraplp

_MOST_LEVELS = 16
"""Levels of water that are filled; those left after the last share what is left by throughput."""

_NEAR = 1e-6


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs that nothing tells apart: speed on each type (0 where it cannot run), milli-GPU of the gang, weight."""

    speeds: tuple[int, ...]
    milli: int
    weight: int

    def normal(self, capacity: Sequence[int]) -> tuple[float, ...]:
        """Speed on each type over the speed on an equal share of every type; all 0 where there is none."""
        total = sum(capacity)
        equal = sum(speed * cards for speed, cards in zip(self.speeds, capacity, strict=True)) / total if total else 0
        return tuple(speed / equal if equal else 0.0 for speed in self.speeds)


def shares(number: Mapping[JobClass, int], capacity: Sequence[int]) -> dict[JobClass, tuple[float, ...]]:
    """The share of its time that a job of each class runs on each type; `capacity` is in milli-GPU, by type.

    Max-min fair over weighted normalised throughput x size (Narayanan et al., OSDI 2020, section 4.1), water-filled: a
    class that runs all the time on its best type is full, and the level rises for the others.
    """
    classes = [each for each in number if any(each.normal(capacity))]
    full: set[JobClass] = set()
    found = dict.fromkeys(number, (0.0,) * len(capacity))
    level = 0.0
    for _ in range(_MOST_LEVELS):
        if len(full) == len(classes):
            break
        solved = _solve(classes, number, capacity, full, None)
        if solved is None:
            break
        level = solved[0]
        more = {each for each in classes if each not in full and _most(each, capacity) <= level * (1 + _NEAR)}
        if not more:
            break
        full |= more
    solved = _solve(classes, number, capacity, full, level * (1 - _NEAR)) if classes else None
    if solved is not None:
        found.update(solved[1])
    return found


def _most(each: JobClass, capacity: Sequence[int]) -> float:
    """What the class attains on its best type all the time."""
    return max(each.normal(capacity)) * each.milli / each.weight


def _solve(
    classes: Sequence[JobClass],
    number: Mapping[JobClass, int],
    capacity: Sequence[int],
    full: set[JobClass],
    level: float | None,
) -> tuple[float, dict[JobClass, tuple[float, ...]]] | None:
    """The highest level that all classes reach that are not full; with `level` given, the most throughput beside it."""
    solver = pywraplp.Solver.CreateSolver("GLOP")
    time = {each: [solver.NumVar(0, 1 if speed else 0, "") for speed in each.speeds] for each in classes}
    water = solver.NumVar(0, solver.infinity(), "") if level is None else level
    for each in classes:
        solver.Add(solver.Sum(time[each]) <= 1)
        reached = solver.Sum(
            [x * (speed * each.milli / each.weight) for x, speed in zip(time[each], each.normal(capacity), strict=True)]
        )
        if each in full:
            solver.Add(reached >= _most(each, capacity) * (1 - _NEAR))
        else:
            solver.Add(reached >= water)
    for number_of_type, cards in enumerate(capacity):
        used = [time[each][number_of_type] * (number[each] * each.milli) for each in classes]
        solver.Add(solver.Sum(used) <= cards)
    if level is None:
        solver.Maximize(water)
    else:
        gain = [
            x * (speed * each.milli * number[each])
            for each in classes
            for x, speed in zip(time[each], each.normal(capacity), strict=True)
        ]
        solver.Maximize(solver.Sum(gain))
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return None
    values = {each: tuple(max(0.0, x.solution_value()) for x in time[each]) for each in classes}
    return solver.Objective().Value(), values
