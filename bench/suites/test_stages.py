"""What each stage of a round costs, in CPU seconds: rounds are measured once a row, and each stage reads its own laps.

A clock stands in for the timer of pytest-benchmark: it goes on by what the stage took in the round that is looked at.
Only some rows: `pytest bench/suites/test_stages.py --benchmark-only -k "100-"`.
"""

from __future__ import annotations

import tempfile
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from phalanx.bench.rows import ROWS, WARM_UP
from phalanx.bench.stages import STAGES, Course, Measured
from phalanx.model.policy import Policy

ROUNDS = {"7": 10, "100": 5, "1250": 2}


class Clock:
    """Seconds that have been measured; `add` lets some more pass."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s

    def add(self, seconds: float) -> None:
        """So much later."""
        self.now_s += seconds


CLOCK = Clock()


@cache
def measured(row: str) -> tuple[Measured, ...]:
    """Steady rounds of the row with seed 0, the warm-up left out."""
    with tempfile.TemporaryDirectory() as folder:
        course = Course(ROWS[row].make(0, Path(), Policy()), Path(folder))
        try:
            for _ in range(1 + WARM_UP):
                course.round(searched=False)
            return tuple(course.round() for _ in range(ROUNDS[row]))
        finally:
            course.close()


@pytest.mark.parametrize("stage", [*STAGES, "whole"])
@pytest.mark.parametrize("row", ROUNDS)
@pytest.mark.benchmark(group="stages of a steady round", timer=CLOCK)
def test_stage(benchmark: Any, row: str, stage: str) -> None:
    """One stage of the row's rounds; `whole` is all of them."""
    rounds = measured(row)
    spent = cycle(each.cpu if stage == "whole" else each.cpu_s.get(stage, 0.0) for each in rounds)
    benchmark.pedantic(lambda: CLOCK.add(next(spent)), rounds=len(rounds))
    assert sum(each.violations for each in rounds) == 0
