"""The tables of a comparison, as text cells: the terminal, the HTML report and the documentation show the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from ..api.cli.tables import seconds
from .compare import Comparison
from .metrics import Metrics, Spread

MISSING_RULES = "Phalanx preempts lower levels; it has no drains or backfill rules yet. The rivals preempt nobody."


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A title, columns, rows of text, and notes below. All columns but the first are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


Results = dict[str, list[Metrics]]
"""Each scheduler's metrics, one per seed."""


def summary(results: Results, notes: Sequence[str]) -> Table:
    """One row a scheduler: means over seeds."""
    columns = (
        *("scheduler", "mean wait", "p50", "p90", "p99", "weighted", "JCT", "alloc.", "while waiting", "goodput"),
        *("idle GPUs", "gangs", "Jain"),
    )
    rows = tuple(
        (
            name,
            seconds(mean(each.wait.mean for each in found)),
            seconds(mean(each.wait.p50 for each in found)),
            seconds(mean(each.wait.p90 for each in found)),
            seconds(mean(each.wait.p99 for each in found)),
            seconds(mean(each.weighted_wait for each in found)),
            seconds(mean(each.completion.mean for each in found)),
            share(mean(each.allocation for each in found)),
            share(mean(each.allocation_waiting for each in found)),
            share(mean(each.goodput for each in found)),
            f"{mean(each.stranded_gpus for each in found):.1f}",
            f"{mean(each.standard_gangs for each in found):.1f}",
            f"{mean(each.fairness for each in found):.3f}",
        )
        for name, found in results.items()
    )
    seeds = len(next(iter(results.values())))
    told = (
        f"Means over {seeds} seed{'s' if seeds > 1 else ''}. Weighted: wait with levels 3..0 counting 8, 4, 2, 1. Idle "
        "GPUs and standard gangs that would still fit: means while jobs waited.",
        *((f"Synthetic: {'; '.join(notes)}.",) if notes else ()),
        MISSING_RULES,
    )
    return Table(title="Schedulers", columns=columns, rows=rows, notes=told)


def waits_by(title: str, key: str, results: Results) -> Table:
    """Mean wait by group (`wait_by_tier`, `wait_by_size`, `wait_by_team`), p90 behind the stroke; means over seeds."""
    groups = list(dict.fromkeys(group for found in results.values() for each in found for group in getattr(each, key)))
    rows = tuple(
        (
            name,
            *(_cell([getattr(each, key)[group] for each in found if group in getattr(each, key)]) for group in groups),
        )
        for name, found in results.items()
    )
    return Table(title=title, columns=("mean / p90", *groups), rows=rows)


def comparisons(found: Sequence[Comparison], ours: str = "phalanx") -> Table:
    """One row a measure and rival."""
    rows = tuple(
        (
            f"{each.measure} against {each.scheduler}",
            seconds(each.ours),
            seconds(each.theirs),
            percent(each.better),
            f"{percent(each.low)} .. {percent(each.high)}",
            each.over,
        )
        for each in found
    )
    return Table(
        title=f"{ours}, paired with each rival: the same jobs",
        columns=("measure", ours, "rival", "better by", "95 % interval", "resampled"),
        rows=rows,
        notes=("Positive: shorter waits than the rival. An interval that holds 0 shows no difference.",),
    )


def engine(results: Results) -> Table:
    """How the rounds went, and how fast the simulation was."""
    columns = (
        *("scheduler", "rounds", "round p50", "p95", "proven", "within a gang", "open", "violations", "failed jobs"),
        *("unstarted", "events/s", "rounds/s"),
    )
    rows = tuple(
        (
            name,
            f"{mean(each.rounds for each in found):,.0f}",
            f"{1000 * mean(each.round_p50_s for each in found):.0f} ms",
            f"{1000 * mean(each.round_p95_s for each in found):.0f} ms",
            share(mean(each.goals_proven for each in found)),
            share(mean(each.goals_within for each in found)),
            share(mean(each.goals_open for each in found)),
            str(sum(each.violations for each in found)),
            str(sum(each.failed for each in found)),
            str(sum(each.unstarted for each in found)),
            f"{sum(each.events for each in found) / max(1e-9, sum(each.wall_s for each in found)):,.0f}",
            f"{sum(each.rounds for each in found) / max(1e-9, sum(each.wall_s for each in found)):,.0f}",
        )
        for name, found in results.items()
    )
    return Table(
        title="Rounds", columns=columns, rows=rows, notes=("Rivals' goals are bounded, never proven, by search.",)
    )


def share(value: float) -> str:
    """A share of one as a percentage."""
    return f"{100 * value:.1f} %"


def percent(value: float | None) -> str:
    """A relative difference with its sign; "-" for None."""
    return "-" if value is None else f"{100 * value:+.1f} %"


def markdown(table: Table) -> str:
    """The table for a page of documentation."""
    head = f"| {' | '.join(table.columns)} |\n| {' | '.join(['---', *['---:'] * (len(table.columns) - 1)])} |\n"
    rows = "".join(f"| {' | '.join(row)} |\n" for row in table.rows)
    notes = "".join(f"\n{note}\n" for note in table.notes)
    return f"### {table.title}\n\n{head}{rows}{notes}"


def _cell(spreads: Sequence[Spread]) -> str:
    if not spreads:
        return "-"
    return f"{seconds(mean(each.mean for each in spreads))} / {seconds(mean(each.p90 for each in spreads))}"
