"""`phalanx-bench growth`: the time of each stage as hosts, jobs, racks, shapes, or the rules in use grow."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import click

from ..api.cli.options import FILE, json_option, print_json
from ..api.cli.tables import console, table
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .growth_rules import RULES, ruled
from .html_report import html_page
from .large import Size
from .machine import machine_facts
from .made_up import MadeUp
from .stages import STAGES, Course, Measured, World
from .svg import lines

BASE = Size(name="growth", hosts=200, pending=200)
SMALLEST_S = 0.001
"""Stages that take less than this everywhere are not drawn, and have no exponent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One thing that grows: `steps` in rising order, and the world of a step; `size_of` counts it in a snapshot."""

    name: str
    steps: tuple[int, ...]
    make: Callable[[int, int], World]
    size_of: Callable[[int, Snapshot], int]


def _shapes_of(snapshot: Snapshot) -> int:
    return len({record.job.roles for record in snapshot.jobs})


def _as_shape(kinds: int) -> Callable[[JobRecord], JobRecord]:
    """Each job asks for a few milli-cores more, a different amount for each of so many kinds."""

    def changed(record: JobRecord) -> JobRecord:
        extra = int(record.id[1:]) % kinds
        roles = tuple(
            replace(role, request=replace(role.request, cpu_milli=role.request.cpu_milli + extra))
            for role in record.job.roles
        )
        return replace(record, job=replace(record.job, roles=roles))

    return changed


DIMENSIONS = {
    each.name: each
    for each in (
        Dimension(
            name="hosts",
            steps=(50, 100, 200, 400, 800),
            make=lambda step, seed: MadeUp(replace(BASE, hosts=step), seed, Policy()),
            size_of=lambda step, snapshot: len(snapshot.hosts),
        ),
        Dimension(
            name="jobs",
            steps=(50, 100, 200, 400, 800),
            make=lambda step, seed: MadeUp(replace(BASE, pending=step), seed, Policy()),
            size_of=lambda step, snapshot: sum(record.placement is None for record in snapshot.jobs),
        ),
        Dimension(
            name="racks",
            steps=(32, 16, 8, 4, 2),
            make=lambda step, seed: MadeUp(replace(BASE, rack=step), seed, Policy()),
            size_of=lambda step, snapshot: len({host.path.rack for host in snapshot.hosts}),
        ),
        Dimension(
            name="shapes",
            steps=(1, 2, 4, 8, 16),
            make=lambda step, seed: MadeUp(BASE, seed, Policy(), change=_as_shape(step)),
            size_of=lambda step, snapshot: _shapes_of(snapshot),
        ),
        Dimension(
            name="rules",
            steps=tuple(range(len(RULES) + 1)),
            make=lambda step, seed: ruled(replace(BASE, full=True), seed, step),
            size_of=lambda step, snapshot: step,
        ),
    )
}


@click.command("growth")
@click.option("--of", "names", multiple=True, type=click.Choice(tuple(DIMENSIONS)), default=tuple(DIMENSIONS))
@click.option("--steps", type=click.IntRange(2), help="Only so many steps, from the smallest on.")
@click.option("--rounds", type=click.IntRange(1, 100), default=3, show_default=True, help="Rounds a step and seed.")
@click.option("--seed", "seeds", multiple=True, type=click.IntRange(0), default=(0, 1), show_default=True)
@click.option("--html", "html_file", type=FILE, help="Write plots to this file.")
@json_option
def growth_command(
    names: tuple[str, ...],
    steps: int | None,
    rounds: int,
    seeds: tuple[int, ...],
    html_file: Path | None,
    as_json: bool,
) -> int:
    """Times steady rounds stage by stage as hosts, jobs, racks, shapes or rules grow, one of them at a time.

    Around 200 hosts with 200 waiting jobs; CPU seconds, medians. Exponents are those of time ~ size^exponent.
    Exit code 1 if a decision broke a rule.
    """
    found = [grow(DIMENSIONS[name], steps, rounds, seeds) for name in dict.fromkeys(names)]
    if html_file is not None:
        html_file.write_text(_html(found), encoding="utf-8")
    if as_json:
        print_json({"machine": machine_facts(), "growth": found})
    else:
        _show(found)
    return int(any(each["violations"] for each in found))


def grow(dimension: Dimension, steps: int | None, rounds: int, seeds: Sequence[int]) -> dict[str, Any]:
    """The sizes, the median CPU seconds of each stage and of the round at each, and the exponents of their growth."""
    sizes, rows, violations = [], [], 0
    for step in dimension.steps[:steps]:
        measured: list[Measured] = []
        counted = []
        for seed in seeds:
            size, its = _course(dimension, step, seed, rounds)
            counted.append(size)
            measured.extend(its)
        sizes.append(round(median(counted)))
        rows.append(measured)
        violations += sum(each.violations for each in measured)
        click.echo(f"{dimension.name} {sizes[-1]}: {median(each.cpu for each in measured):.3f} s CPU", err=True)
    told = dict.fromkeys((*STAGES, *(stage for row in rows for each in row for stage in each.cpu_s)))
    times = {stage: [round(median(e.cpu_s.get(stage, 0.0) for e in row), 4) for row in rows] for stage in told}
    times = {stage: values for stage, values in times.items() if max(values) >= SMALLEST_S}
    times["whole round"] = [round(median(each.cpu for each in row), 4) for row in rows]
    return {
        "of": dimension.name,
        "sizes": sizes,
        "cpu_s": times,
        "exponents": {stage: exponent(sizes, values) for stage, values in times.items()},
        "violations": violations,
    }


def _course(dimension: Dimension, step: int, seed: int, rounds: int) -> tuple[int, list[Measured]]:
    world = dimension.make(step, seed)
    with tempfile.TemporaryDirectory() as folder:
        course = Course(world, Path(folder))
        try:
            for searched in (False, True):
                course.round(searched=searched)
            size = dimension.size_of(step, course.store.snapshot(course.now_s))
            return size, [course.round() for _ in range(rounds)]
        finally:
            course.close()


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float | None:
    """The slope of a straight line through log(time) over log(size), by least squares; None for a size of 0."""
    points = [(math.log(size), math.log(max(spent, 1e-6))) for size, spent in zip(sizes, times, strict=True) if size]
    if len(points) < len(sizes) or len(points) < 2:
        return None
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return round(sum((x - mean_x) * (y - mean_y) for x, y in points) / spread, 2) if spread else None


def _show(found: Sequence[dict[str, Any]]) -> None:
    out = console()
    out.print(", ".join(f"{name} {value}" for name, value in machine_facts().items()), markup=False)
    for each in found:
        columns = (each["of"], *map(str, each["sizes"]), "exponent")
        cells = [
            (stage, *(f"{spent:.3f}" for spent in times), "" if (e := each["exponents"][stage]) is None else f"{e:.2f}")
            for stage, times in each["cpu_s"].items()
        ]
        out.print(table(f"CPU seconds of a steady round by {each['of']}", columns, cells, right=columns[1:]))
        if each["of"] == "rules":
            out.print("rules: " + ", ".join(f"{n} {rule}" for n, rule in enumerate(RULES, 1)), markup=False)


def _html(found: Sequence[dict[str, Any]]) -> str:
    body = ["<h1>Growth of a round</h1>"]
    for each in found:
        series = [(stage, list(zip(each["sizes"], times, strict=True))) for stage, times in each["cpu_s"].items()]
        body += [f"<h2>By {each['of']}</h2>", lines(series, x_label=each["of"], y_label="CPU s a round")]
    return html_page("Growth of a round", body)
