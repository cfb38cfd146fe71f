"""What the exact stages start from and what they reach: a decision at hand, and a result for each goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ortools.sat.python import cp_model


@dataclass(frozen=True, slots=True)
class StageResult:
    """The outcome of one goal.

    `solved` is False where the solver was not asked or found nothing in its budget; `far` is True where what it found
    is more than a gang from its bound.
    """

    value: int
    bound: int
    solved: bool
    far: bool = False


@dataclass(frozen=True, slots=True)
class Incumbent:
    """A decision known to keep all rules (the greedy's): its goals, and the placing variables' values."""

    values: Sequence[int]
    assignment: Sequence[tuple[cp_model.IntVar, int]]


@dataclass(slots=True)
class Outcome:
    """What the exact stage reached: one result a goal, the last solution (values by variable index), what it spent."""

    results: list[StageResult] = field(default_factory=list)
    solution: Sequence[int] | None = None
    spent_ms: int = 0
    stopped: str = ""
