"""The table of large rounds: four rows, each over several seeds, its stages in percentiles and its goals in shares."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..model.decision import GoalStatus
from ..model.policy import Policy
from .large import Size
from .stages import STAGES, Course, Measured

WARM_UP = 2
"""Rounds after the shock that are not counted: what they start was waiting for places that the shock freed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A size and a state: `shock`, in which all that waits arrived at once, or steady with 1 % of churn a round."""

    size: Size
    shock: bool


SMALL = Size(name="7", hosts=7, pending=46, rack=2, fewer=6, full=True)
"""50 GPUs with every rule; about 40 wait once the first round is over."""

ROWS = {
    "7": Row(size=SMALL, shock=False),
    "7-shock": Row(size=SMALL, shock=True),
    "100": Row(size=Size(name="100", hosts=100, pending=100), shock=False),
    "1250": Row(size=Size(name="1250", hosts=1_250, pending=1_000), shock=False),
    "1250-shock": Row(size=Size(name="1250", hosts=1_250, pending=1_000), shock=True),
    "5000": Row(size=Size(name="5000", hosts=5_000, pending=4_000), shock=False),
}


def measure_row(
    name: str, seeds: Sequence[int], rounds: int, policy: Policy, told: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """The row measured: `rounds` a seed in the steady state, one a seed in the shock. `told` hears of each round."""
    row = ROWS[name]
    by_seed = {seed: _course(row, seed, 1 if row.shock else rounds, policy, told) for seed in seeds}
    measured = [each for many in by_seed.values() for each in many]
    return {
        "row": name,
        "hosts": row.size.hosts,
        "state": "shock" if row.shock else "steady",
        "rounds": len(measured),
        "seeds": list(seeds),
        **{field: _middle(getattr(each, field) for each in measured) for field in ("pending", "running", "starts")},
        "cpu_s": _spread([each.cpu for each in measured]),
        "wall_s": _spread([each.wall for each in measured]),
        "cpu_p95_by_seed": {seed: percentile([each.cpu for each in many], 95) for seed, many in by_seed.items()},
        "stages_cpu_s": {stage: _spread([each.cpu_s.get(stage, 0.0) for each in measured]) for stage in STAGES},
        "peak_mib": max(each.peak_mib for each in measured),
        "violations": sum(each.violations for each in measured),
        "undecided": _middle(each.undecided for each in measured),
        "goals": _shares(measured),
    }


def _course(row: Row, seed: int, rounds: int, policy: Policy, told: Callable[[str], None]) -> list[Measured]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        course = Course(row.size, seed, Path(folder), policy)
        try:
            for number in range(rounds if row.shock else rounds + 1 + WARM_UP):
                measured = course.round()
                told(f"{row.size.name} seed {seed} round {number}: {measured.cpu:.2f} s CPU, {measured.wall:.2f} s")
                found.append(measured)
        finally:
            course.close()
    return found if row.shock else found[1 + WARM_UP :]


def _shares(measured: Sequence[Measured]) -> dict[str, dict[str, int]]:
    """For each goal in how many rounds it was proven, within a gang, open; rounds without the goal are not counted."""
    shares: dict[str, Counter[str]] = {}
    for each in measured:
        for goal, status in each.goals.items():
            shares.setdefault(goal, Counter())[status.value] += 1
    return {goal: {status.value: shares[goal][status.value] for status in GoalStatus} for goal in sorted(shares)}


def percentile(values: Iterable[float], percent: int) -> float:
    """The smallest value that `percent` % of the values do not exceed, in milliseconds' precision."""
    ranked = sorted(values)
    return round(ranked[max(0, -(-len(ranked) * percent // 100) - 1)], 3)


def _middle(values: Iterable[int]) -> int:
    return round(median(values))


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"min": round(min(values), 3), "median": round(median(values), 3), "p95": percentile(values, 95)}
