"""`phalanx-bench why`: how long `phalanx why JOB` takes on a large fleet, and how often it has an answer."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import click

from ..adapters.ports import RoundRecord
from ..api.cli.options import json_option, print_json
from ..api.cli.tables import console, table
from ..api.whys import Whys
from ..model.decision import ReasonKind
from ..model.policy import Policy
from ..solver.solve import solve
from ..solver.wording import left_open
from .machine import machine_facts
from .rows import ROWS, percentile, settle
from .simulate import FOLDER
from .stages import Course, unsearched

WITHIN_S = 2.0
"""Seconds within which an answer is asked for."""


@dataclass(slots=True, kw_only=True)
class Asked:
    """Jobs asked about, one by one, as if each were the first: CPU and wall seconds, and the kinds of their reasons.

    `open_before`: those that their round had left open for want of work.
    """

    open_before: int = 0
    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)


@click.command("why")
@click.option("--row", type=click.Choice(tuple(ROWS)), default="1250", show_default=True)
@click.option("--seed", "seeds", multiple=True, type=click.IntRange(0), default=(0, 1), show_default=True)
@click.option("--rounds", type=click.IntRange(1, 100), default=2, show_default=True, help="Rounds a seed.")
@click.option("--jobs", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Jobs a round, by chance.")
@click.option("--traces", "folder", type=FOLDER, envvar="PHALANX_TRACES", default=Path("../shared/traces"))
@json_option
def why_command(row: str, seeds: tuple[int, ...], rounds: int, jobs: int, folder: Path, as_json: bool) -> None:
    """Asks of waiting jobs why they wait: the newest round is read from the store for each, with its snapshot.

    The rounds are decided by the greedy alone, which leaves as many reasons open as any.
    """
    asked = Asked()
    for seed in seeds:
        _ask_in_rounds(row, seed, rounds, jobs, folder, asked, lambda text: click.echo(text, err=True))
    told = {"row": row, "seeds": list(seeds), "rounds": rounds * len(seeds), **summary(asked)}
    if as_json:
        print_json({"machine": machine_facts(), "why": told})
    else:
        _show(told)


def _ask_in_rounds(
    row: str, seed: int, rounds: int, jobs: int, folder: Path, asked: Asked, said: Callable[[str], None]
) -> None:
    draw = random.Random(f"why/{row}/{seed}")
    world = ROWS[row].make(seed, folder, Policy())
    with tempfile.TemporaryDirectory() as scratch:
        course = Course(world, Path(scratch))
        try:
            settle(course, ROWS[row])
            for number in range(rounds):
                said(f"{row} seed {seed} round {number}")
                _ask(course, draw, jobs, asked)
                course.round(searched=False)
        finally:
            course.close()


def _ask(course: Course, draw: random.Random, jobs: int, asked: Asked) -> None:
    """One round, stored with its snapshot, and questions about some of the jobs that wait after it."""
    store, policy = course.store, unsearched(course.policy)
    snapshot = store.snapshot(course.now_s)
    decision = solve(snapshot, policy)
    store.record_round(
        RoundRecord(number=0, at_s=course.now_s, outcome="nothing", decision=decision, snapshot=snapshot)
    )
    for told in draw.sample(decision.waiting, min(jobs, len(decision.waiting))):
        asked.open_before += left_open(told)
        cpu, wall = time.process_time(), time.perf_counter()
        reason = Whys(store, policy).reason(store.rounds(limit=1)[0], told.job)
        asked.cpu_s.append(time.process_time() - cpu)
        asked.wall_s.append(time.perf_counter() - wall)
        asked.kinds["none" if reason is None else reason.kind.value] += 1


def summary(asked: Asked) -> dict[str, Any]:
    """Shares in percent of the jobs asked about, and seconds: median, 90th percentile, most."""
    number = len(asked.cpu_s)
    decided = number - asked.kinds[ReasonKind.UNDECIDED.value] - asked.kinds["none"]
    return {
        "jobs": number,
        "open_in_the_round": asked.open_before,
        "decided": decided,
        "decided_percent": round(100 * decided / number, 1) if number else None,
        "within_s": WITHIN_S,
        "within": sum(seconds <= WITHIN_S for seconds in asked.wall_s),
        "within_cpu": sum(seconds <= WITHIN_S for seconds in asked.cpu_s),
        "cpu_s": _spread(asked.cpu_s),
        "wall_s": _spread(asked.wall_s),
        "kinds": dict(sorted(asked.kinds.items())),
    }


def _spread(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    return {
        "median": round(median(seconds), 3),
        "p90": round(percentile(seconds, 90), 3),
        "max": round(max(seconds), 3),
    }


def _show(told: dict[str, Any]) -> None:
    out = console()
    out.print(", ".join(f"{name} {value}" for name, value in machine_facts().items()), markup=False)
    columns = ("row", "jobs", "open in the round", "decided", "within 2 s", "median s", "p90 s", "most s")
    cells = [
        (
            *(f"{told['row']}, {clock}", str(told["jobs"]), str(told["open_in_the_round"]), str(told["decided"])),
            *(str(told[within]), *(f"{told[spread][name]:.2f}" for name in ("median", "p90", "max"))),
        )
        for clock, within, spread in (("CPU", "within_cpu", "cpu_s"), ("wall", "within", "wall_s"))
        if told["jobs"]
    ]
    out.print(table("phalanx why", columns, cells, right=columns[1:]))
    out.print(", ".join(f"{kind} {number}" for kind, number in told["kinds"].items()), markup=False)
