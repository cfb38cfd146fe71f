"""`phalanx-bench deadline`: is a wall-clock deadline kept by a whole round, and what is decided by then?"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from ..adapters.store.packing import pack
from ..adapters.store.sql import open_store
from ..api.cli.options import json_option, print_json
from ..api.cli.tables import console, table
from ..model.policy import Policy
from ..solver.collector import paused_collector
from ..solver.solve import solve
from ..solver.verify import verify
from .machine import machine_facts
from .rows import ROWS, settle
from .simulate import FOLDER
from .stages import Course

GUARDS_S = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One round with `guard_s` seconds given (None: no deadline): the seconds until it was committed, its outcome."""

    row: str
    guard_s: float | None
    took_s: float
    stage: str
    stopped: str
    starts: int
    proven: int
    goals: int
    violations: int

    @property
    def over_s(self) -> float | None:
        """Seconds beyond the deadline; None without one."""
        return None if self.guard_s is None else max(0.0, self.took_s - self.guard_s)


@dataclass(frozen=True, slots=True)
class Until:
    """The solver's guard: seconds left on `clock` until `at`."""

    at: float
    clock: Callable[[], float]

    def remaining_s(self) -> float:
        """Seconds left."""
        return self.at - self.clock()


@click.command("deadline")
@click.option("--row", "rows", multiple=True, type=click.Choice(tuple(ROWS)), default=("1250-shock", "1250"))
@click.option("--guard", "guards", multiple=True, type=click.FloatRange(0.001), default=GUARDS_S, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--cpu", is_flag=True, help="Deadlines in CPU seconds of this process, for machines that do other work.")
@click.option("--free", is_flag=True, help="Solve each state without a deadline as well.")
@click.option("--traces", "folder", type=FOLDER, envvar="PHALANX_TRACES", default=Path("../shared/traces"))
@json_option
def deadline_command(
    rows: tuple[str, ...], guards: tuple[float, ...], seed: int, cpu: bool, free: bool, folder: Path, as_json: bool
) -> int:
    """Takes the same state through a round under several deadlines and tells by how much each is passed, in wall time.

    A round is read, decided, verified, packed and committed. Exit code 1 if a decision broke a rule.
    """
    found, clock = [], time.process_time if cpu else time.monotonic
    for name in dict.fromkeys(rows):
        with tempfile.TemporaryDirectory() as scratch:
            given = state(name, seed, folder, Path(scratch))
            for guard_s in (*guards, *((None,) if free else ())):
                found.append(kept(name, given, guard_s, clock))
                click.echo(f"{name}, {guard_s} s: took {found[-1].took_s:.2f} s", err=True)
    if as_json:
        print_json(
            {"machine": machine_facts(), "deadlines": [asdict(each) | {"over_s": each.over_s} for each in found]}
        )
    else:
        _show(found, "CPU time" if cpu else "wall time")
    return int(any(each.violations for each in found))


@dataclass(frozen=True, slots=True)
class Given:
    """A state in a store at rest: its file, the policy and time of its next round, and the lease's term."""

    file: Path
    policy: Policy
    now_s: int
    term: int


def state(row: str, seed: int, folder: Path, scratch: Path) -> Given:
    """The state in which the row's first counted round begins, as far as the greedy alone brings it there."""
    world = ROWS[row].make(seed, folder, Policy())
    course = Course(world, scratch)
    try:
        settle(course, ROWS[row])
        return Given(scratch / f"{world.name}.db", course.policy, course.now_s, course.term)
    finally:
        course.close()


@paused_collector()
def kept(row: str, given: Given, guard_s: float | None, clock: Callable[[], float]) -> Kept:
    """A round over a copy of the state, with that much time on the clock from its reading to its commit."""
    copy = given.file.with_suffix(".copy")
    shutil.copy(given.file, copy)
    store = open_store(f"sqlite:///{copy}", given.policy)
    try:
        # A service has long parsed most of its rows.
        store.snapshot(given.now_s)
        begun = clock()
        snapshot = store.snapshot(given.now_s)
        guard = None if guard_s is None else Until(begun + guard_s, clock)
        decision = solve(snapshot, given.policy, guard=guard)
        violations = verify(snapshot, given.policy, decision)
        pack(snapshot)
        outcome = store.commit(decision, snapshot, term=given.term, now_s=given.now_s)
        took_s = clock() - begun
    finally:
        store.close()
    return Kept(
        row=row,
        guard_s=guard_s,
        took_s=round(took_s, 3),
        stage=decision.certificate.stage.value,
        stopped=decision.certificate.stopped,
        starts=len(decision.starts),
        proven=sum(goal.status.value == "proven" for goal in decision.goals),
        goals=len(decision.goals),
        violations=len(violations) + len(outcome.conflicts),
    )


def _show(found: list[Kept], clock: str) -> None:
    out = console()
    out.print(", ".join(f"{name} {value}" for name, value in machine_facts().items()), markup=False)
    columns = ("row", "deadline s", "took s", "over s", "decided by", "stopped", "starts", "proven", "broken rules")
    cells = [
        (
            *(each.row, "none" if each.guard_s is None else f"{each.guard_s:g}", f"{each.took_s:.2f}"),
            *("" if each.over_s is None else f"{each.over_s:.2f}", each.stage, each.stopped, str(each.starts)),
            *(f"{each.proven} of {each.goals}", str(each.violations)),
        )
        for each in found
    ]
    out.print(table(f"Deadlines in {clock}", columns, cells, right=(*columns[1:4], *columns[6:])))
