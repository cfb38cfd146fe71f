"""The tables of a comparison, as text cells: the terminal, the HTML report and the documentation show the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

from ..api.cli.tables import seconds
from .compare import Comparison
from .metrics import Metrics, Spread
from .preemption import Forecasts

MISSING_RULES = (
    "Phalanx and the rivals named _preempt stop jobs of lower levels for higher ones, by the same rules; the others "
    "preempt nobody."
)


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
        *(
            "scheduler",
            "mean wait",
            "p50",
            "p90",
            "p99",
            "queued",
            "weighted",
            "JCT",
            "alloc.",
            "while waiting",
            "goodput",
        ),
        *("idle GPUs", "gangs", "Jain"),
    )
    rows = tuple(
        (
            name,
            seconds(mean(each.wait.mean for each in found)),
            seconds(mean(each.wait.p50 for each in found)),
            seconds(mean(each.wait.p90 for each in found)),
            seconds(mean(each.wait.p99 for each in found)),
            seconds(mean(each.queued.mean for each in found)),
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
        f"Means over {seeds} seed{'s' if seeds > 1 else ''}. Queued: mean wait and all "
        "later time in the queue, after evictions and restarts. Weighted: wait with levels 3..0 counting 8, 4, 2, 1. "
        "Idle GPUs and standard gangs that would still fit: means while jobs waited.",
        *((f"Synthetic: {'; '.join(notes)}.",) if notes else ()),
        MISSING_RULES,
    )
    return Table(title="Schedulers", columns=columns, rows=rows, notes=told)


def preemption(results: Results) -> Table | None:
    """What preemption took; None where nobody was preempted."""
    if not any(each.preempted.evictions for found in results.values() for each in found):
        return None
    columns = (
        *("scheduler", "evictions", "jobs", "most of one", "unserved", "avoidable", "GPU-h preempted", "work lost"),
        *("restarts", "handover", "share of held"),
    )
    rows = tuple(
        (
            name,
            *(f"{mean(getattr(each.preempted, key) for each in found):,.1f}" for key in ("evictions", "jobs", "most")),
            *(f"{mean(getattr(each.preempted, key) for each in found):,.1f}" for key in ("unserved", "avoidable")),
            *(
                f"{mean(getattr(each.preempted, key) for each in found):,.1f}"
                for key in ("gpu_h", "lost_gpu_h", "restart_gpu_h", "handover_gpu_h")
            ),
            share(mean(each.preempted.gpu_h / max(1e-9, each.held_gpu_h) for each in found)),
        )
        for name, found in results.items()
    )
    told = (
        "Unserved: no beneficiary came to run. Avoidable: all its beneficiaries would have fitted in that round with "
        "the victim left alone, found by placing them anew and asking the verifier. GPU-hours preempted: work that no "
        "checkpoint held, restarts (launch, fetch, reading the checkpoint) and handover (warning to clean hosts).",
    )
    return Table(title="Preemption", columns=columns, rows=rows, notes=told)


def promises(results: Results) -> Table | None:
    """Forecasts, planned starts and guarantees; None where there were none of them."""
    every = [each for found in results.values() for each in found]
    if not any(e.forecast_waits.asked or e.slips.planned for e in every) and all(
        each.guarantee_met is None for each in every
    ):
        return None
    columns = (
        *("scheduler", "forecasts", "error / wait", "late", "at submission", "error / time left"),
        *("while waiting", "error / time left", "plans", "moved, cause told", "without", "given up", "guarantee met"),
    )
    rows = tuple(
        (
            name,
            *_forecasts([each.forecast_waits for each in found]),
            _mean_share([each.forecast_waits.late for each in found]),
            *_forecasts([each.forecast_new for each in found]),
            *_forecasts([each.forecast_later for each in found]),
            *(
                f"{mean(getattr(each.slips, key) for each in found):,.1f}"
                for key in ("planned", "moved_with_cause", "moved_without", "given_up")
            ),
            _mean_share([each.guarantee_met for each in found]),
        )
        for name, found in results.items()
    )
    told = (
        "Forecasts: the service's own, all that were made for jobs that waited 10 min or more, while they waited; the "
        "median error over the actual wait, and the share of starts that came later than told. Stricter: of starts "
        "that were then 10 min away or more, at submission and later, the error over the time that was really left. "
        "'n of m': a start was told in n of m. Medians are means over seeds. Guarantee met: of the GPU time that teams "
        "were guaranteed and wanted.",
    )
    return Table(title="Promises", columns=columns, rows=rows, notes=told)


def _forecasts(found: Sequence[Forecasts]) -> tuple[str, str]:
    told = f"{sum(each.told for each in found):,} of {sum(each.asked for each in found):,}"
    return told, _mean_share([each.median for each in found])


def _mean_share(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return share(mean(known)) if known else "-"


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
        *(
            "scheduler",
            "rounds",
            "CPU of one, p50",
            "p95",
            "proven",
            "within a gang",
            "open",
            "violations",
            "failed jobs",
        ),
        *("unstarted", "events per CPU s", "rounds", "CPU s a run"),
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
            f"{sum(each.events for each in found) / max(1e-9, sum(each.cpu_s for each in found)):,.0f}",
            f"{sum(each.rounds for each in found) / max(1e-9, sum(each.cpu_s for each in found)):,.0f}",
            f"{mean(each.cpu_s for each in found):,.0f}",
        )
        for name, found in results.items()
    )
    return Table(
        title="Rounds",
        columns=columns,
        rows=rows,
        notes=("Rivals' goals are bounded, never proven, by search. Times are CPU times.",),
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
