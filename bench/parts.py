"""`phalanx-bench parts`: what lies beside the rounds of a large fleet: forecast, why, JSON, the store."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import click

from ..adapters.store.packing import pack
from ..api import engine
from ..api.cli.options import json_option, print_json
from ..api.cli.tables import console, table
from ..model import codec
from ..model.job_state import WAITING
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from ..solver.explain import reasons
from ..solver.forecast import Unforecast, forecast
from ..solver.solve import solve
from .large import Size
from .machine import machine_facts
from .made_up import MadeUp
from .rows import percentile
from .stages import Course, unsearched

HOSTS, JOBS = 1_250, 5_000
FORECAST_JOBS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """CPU seconds of one thing done several times; `told` says of what, `asked_s` what nine of ten may take."""

    name: str
    asked_s: float | None = None
    cpu_s: tuple[float, ...]
    told: str = ""


@click.command("parts")
@click.option("--hosts", type=click.IntRange(1), default=HOSTS, show_default=True, help="Hosts of 8 GPUs.")
@click.option("--jobs", type=click.IntRange(1), default=JOBS, show_default=True, help="Jobs in the store, about.")
@click.option("--waiting", type=click.IntRange(1), default=FORECAST_JOBS, show_default=True, help="Jobs to forecast.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--repeat", type=click.IntRange(1, 100), default=3, show_default=True, help="Times each is done.")
@json_option
def parts_command(hosts: int, jobs: int, waiting: int, seed: int, repeat: int, as_json: bool) -> int:
    """Times what a service does beside its rounds, on a made-up fleet after its first round; CPU seconds."""
    found = measure_parts(hosts, jobs, waiting, seed, repeat)
    if as_json:
        rows = [{"part": each.name, "asked_s": each.asked_s, "cpu_s": each.cpu_s, "told": each.told} for each in found]
        print_json({"machine": machine_facts(), "parts": rows})
    else:
        _show(found)
    return 0


def measure_parts(hosts: int, jobs: int, waiting: int, seed: int, repeat: int) -> list[Part]:
    """Forecast and reasons of a fleet where about `waiting` jobs wait; codec and store of one of about `jobs` jobs."""
    size = Size(name=f"beside-{hosts}", hosts=hosts, pending=waiting + waiting // 6)
    world = MadeUp(size, seed, Policy())
    running = sum(record.placement is not None for record in world.start.jobs)
    busy = _after_a_round(world)
    found = [_forecast(busy[0], repeat), _reasons(*busy, repeat)]
    size = replace(size, pending=max(1, jobs - running))
    with tempfile.TemporaryDirectory() as folder:
        course = Course(MadeUp(size, seed, Policy()), Path(folder))
        try:
            return [*found, *_stored(course, repeat)]
        finally:
            course.close()


def _after_a_round(world: MadeUp) -> tuple[Snapshot, Policy]:
    with tempfile.TemporaryDirectory() as folder:
        course = Course(world, Path(folder))
        try:
            course.round(searched=False)
            return course.store.snapshot(course.now_s), course.policy
        finally:
            course.close()


def _forecast(snapshot: Snapshot, repeat: int) -> Part:
    told = forecast(snapshot, Policy(), decide=engine.decide)
    waits = sum(record.state in WAITING for record in snapshot.jobs)
    known = sum(each.start_s is not None for each in told)
    cut = sum(each.why is Unforecast.STEPS for each in told)
    cpu_s = _times(lambda: forecast(snapshot, Policy(), decide=engine.decide), repeat)
    words = f"{waits:,} jobs wait; a start told for {known:,}, {cut:,} beyond the last round run forward"
    return Part(name="forecast, with its bounds", asked_s=10.0, cpu_s=cpu_s, told=words)


def _reasons(snapshot: Snapshot, policy: Policy, repeat: int) -> Part:
    decision = solve(snapshot, unsearched(policy))
    starts, victims, plans = decision.starts, decision.preemptions, decision.reservations
    undecided = sum(reason.kind == "undecided" for reason in decision.waiting)
    return Part(
        name="reasons of a round",
        cpu_s=_times(lambda: reasons(snapshot, policy, starts, victims, plans), repeat),
        told=f"{len(decision.waiting):,} jobs wait, {undecided:,} undecided",
    )


def _stored(course: Course, repeat: int) -> list[Part]:
    # The first read of a process finds nothing in the cache of parsed rows.
    first = _times(lambda: course.store.snapshot(course.now_s), 1)
    snapshot = course.store.snapshot(course.now_s)
    text = codec.dumps(snapshot)
    told = f"{len(snapshot.hosts):,} hosts, {len(snapshot.jobs):,} jobs, {len(text) / 2**20:.1f} MiB"
    acts: dict[str, Callable[[], object]] = {
        "snapshot to JSON": lambda: codec.dumps(snapshot),
        "snapshot from JSON": lambda: codec.loads(text, Snapshot),
        "snapshot packed for keeping": lambda: pack(snapshot),
        "snapshot from SQLite": lambda: course.store.snapshot(course.now_s),
    }
    return [
        Part(name="snapshot from SQLite, the first of a process", cpu_s=first, told=told),
        *(Part(name=name, cpu_s=_times(act, repeat), told=told) for name, act in acts.items()),
    ]


def _times(act: Callable[[], object], repeat: int) -> tuple[float, ...]:
    found = []
    for _ in range(repeat):
        begun = time.process_time()
        act()
        found.append(round(time.process_time() - begun, 4))
    return tuple(found)


def _show(found: list[Part]) -> None:
    out = console()
    out.print(", ".join(f"{name} {value}" for name, value in machine_facts().items()), markup=False)
    columns = ("part", "asked s", "min s", "median s", "p90 s", "max s", "of what")
    cells = [
        (
            *(each.name, "" if each.asked_s is None else f"{each.asked_s:g}"),
            *(f"{value:.3f}" for value in _ranks(each.cpu_s)),
            each.told,
        )
        for each in found
    ]
    out.print(table("CPU seconds", columns, cells, right=columns[1:6]))


def _ranks(values: Sequence[float]) -> tuple[float, ...]:
    return min(values), median(values), percentile(values, 90), max(values)
