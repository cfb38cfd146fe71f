"""The table of large rounds: rows over several seeds, their stages in percentiles and their goals in shares."""

from __future__ import annotations

import random
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ..model.decision import GoalStatus
from ..model.policy import Policy
from .large import Size
from .made_up import MadeUp
from .queued import Queued
from .real import Busiest, Packed
from .stages import STAGES, Course, Measured, World

WARM_UP = 2
"""Rounds after the shock that are not counted: what they start was waiting for places that the shock freed."""

SEEDS = (0, 1, 2)
HELD_OUT = tuple(sorted(random.Random("held out").sample(range(100, 100_000), 3)))
"""Seeds drawn by name, on which nothing was ever tuned."""

QUARTER = frozenset({"read", "encode", "decode", "verify", "pack", "commit"})
"""The stages of which none may exceed a quarter of the round."""

_WORST = {GoalStatus.PROVEN: 0, GoalStatus.WITHIN_A_GANG: 1, GoalStatus.OPEN: 2}

Make = Callable[[int, Path, Policy], World]
"""The world of a seed, from a folder of traces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A world a seed, and which of its rounds count.

    `shock`: the first alone, in which all that waits arrived at once. `real`: from the first on, as a trace goes on.
    Else those after the shock and the warm-up, with 1 % of churn each. `must_s` and `moonshot_s` are the aims of p95.
    """

    make: Make
    shock: bool = False
    real: bool = False
    must_s: float | None = None
    moonshot_s: float | None = None

    @property
    def state(self) -> str:
        """In a word."""
        return "shock" if self.shock else "trace" if self.real else "steady"


def made_up(size: Size) -> Make:
    """Fleets of that size, which need no trace."""
    return lambda seed, _folder, policy: MadeUp(size, seed, policy)


_TINY = made_up(Size(name="7", hosts=7, pending=46, rack=2, fewer=6, full=True))
_LARGE = made_up(Size(name="1250", hosts=1_250, pending=1_000))

ROWS = {
    "7": Row(make=_TINY, must_s=0.1, moonshot_s=0.025),
    "7-shock": Row(make=_TINY, shock=True),
    "100": Row(make=made_up(Size(name="100", hosts=100, pending=100)), must_s=0.2, moonshot_s=0.05),
    "1250": Row(make=_LARGE, must_s=1.5, moonshot_s=0.3),
    "1250-shock": Row(make=_LARGE, shock=True, must_s=4.0, moonshot_s=1.0),
    "5000": Row(make=made_up(Size(name="5000", hosts=5_000, pending=4_000)), must_s=4.0, moonshot_s=1.0),
    "lingjun-128": Row(make=Queued(trace="lingjun", hosts=128), real=True),
    "lingjun-256": Row(make=Queued(trace="lingjun"), real=True),
    "openb-1523": Row(make=Packed(), real=True),
    "philly-peak": Row(make=Busiest(trace="philly", days=1), real=True),
}
"""7 hosts: 50 GPUs with every rule; about 40 wait once the first round is over."""


def measure_row(
    name: str,
    seeds: Sequence[int],
    rounds: int,
    policy: Policy,
    told: Callable[[str], None] = lambda text: None,
    *,
    traces: Path = Path(),
) -> dict[str, Any]:
    """The row measured: `rounds` a seed, one a seed in the shock. `told` hears of each round.

    Raises InvalidInput where the row needs a trace that is not in the folder `traces`.
    """
    row = ROWS[name]
    by_seed = {seed: _course(name, row.make(seed, traces, policy), rounds, told) for seed in seeds}
    measured = [each for many in by_seed.values() for each in many]
    return {
        "row": name,
        "state": row.state,
        "rounds": len(measured),
        "seeds": list(seeds),
        "held_out": sorted(set(seeds)) == list(HELD_OUT),
        **{field: _middle(getattr(each, field) for each in measured) for field in ("hosts", "pending", "running")},
        "starts": _middle(each.starts for each in measured),
        "must_s": row.must_s,
        "moonshot_s": row.moonshot_s,
        "cpu_s": _spread([each.cpu for each in measured]),
        "wall_s": _spread([each.wall for each in measured]),
        "cpu_p95_by_seed": {seed: percentile([each.cpu for each in many], 95) for seed, many in by_seed.items()},
        "stages_cpu_s": {stage: _spread([e.cpu_s.get(stage, 0.0) for e in measured]) for stage in _stages(measured)},
        "shares": _shares_of_round(measured),
        "peak_mib": max(each.peak_mib for each in measured),
        "violations": sum(each.violations for each in measured),
        "undecided": _middle(each.undecided for each in measured),
        "goals": _shares(measured),
        "levels": levels([each.goals for each in measured]),
    }


def settle(course: Course, row: Row) -> None:
    """The rounds that go uncounted, decided by the greedy alone; none of a row that begins with its state."""
    for _ in range(0 if row.shock or row.real else WARM_UP):
        course.round(searched=False)


def _course(name: str, world: World, rounds: int, told: Callable[[str], None]) -> list[Measured]:
    row, found = ROWS[name], []
    skipped = 0 if row.shock or row.real else 1 + WARM_UP
    with tempfile.TemporaryDirectory() as folder:
        course = Course(world, Path(folder))
        try:
            for number in range(skipped + (1 if row.shock else rounds)):
                measured = course.round()
                told(f"{name}, {world.name}, round {number}: {measured.cpu:.2f} s CPU, {measured.wall:.2f} s")
                found.append(measured)
        finally:
            course.close()
    return found[skipped:]


def _stages(measured: Sequence[Measured]) -> list[str]:
    """The known stages, and what else was told, in the order first told."""
    return list(dict.fromkeys((*STAGES, *(stage for each in measured for stage in each.cpu_s))))


def _shares_of_round(measured: Sequence[Measured]) -> dict[str, int]:
    """Percent of the CPU time of all rounds together, by stage."""
    whole = sum(each.cpu for each in measured) or 1.0
    return {
        stage: round(100 * sum(each.cpu_s.get(stage, 0.0) for each in measured) / whole) for stage in _stages(measured)
    }


def _shares(measured: Sequence[Measured]) -> dict[str, dict[str, int]]:
    """For each goal in how many rounds it was proven, within a gang, open; rounds without the goal are not counted."""
    shares: dict[str, Counter[str]] = {}
    for each in measured:
        for goal, status in each.goals.items():
            shares.setdefault(goal, Counter())[status.value] += 1
    return {goal: {status.value: shares[goal][status.value] for status in GoalStatus} for goal in sorted(shares)}


def levels(rounds: Sequence[Mapping[str, GoalStatus]]) -> dict[str, dict[str, dict[str, int]]]:
    """For each level, from the highest: in how many rounds `start`, and the worst of all its goals, ended how."""
    found: dict[str, dict[str, Counter[str]]] = {}
    for goals in rounds:
        by_level: dict[str, dict[str, GoalStatus]] = {}
        for goal, status in goals.items():
            if matched := re.fullmatch(r"(\w+)\[(\d)\]", goal):
                by_level.setdefault(matched[2], {})[matched[1]] = status
        for level, its in by_level.items():
            counts = found.setdefault(level, {"start": Counter(), "all": Counter()})
            counts["all"][max(its.values(), key=_WORST.__getitem__).value] += 1
            if "start" in its:
                counts["start"][its["start"].value] += 1
    return {
        level: {which: {s.value: counts[s.value] for s in GoalStatus} for which, counts in found[level].items()}
        for level in sorted(found, reverse=True)
    }


def percentile(values: Iterable[float], percent: int) -> float:
    """The smallest value that `percent` % of the values do not exceed, in milliseconds' precision."""
    ranked = sorted(values)
    return round(ranked[max(0, -(-len(ranked) * percent // 100) - 1)], 3)


def _middle(values: Iterable[int]) -> int:
    return round(median(values))


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"min": round(min(values), 3), "median": round(median(values), 3), "p95": percentile(values, 95)}
