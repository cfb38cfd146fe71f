"""Where a job's steps spend their time, and which ranks hold the others up: from the reports of its ranks."""

from __future__ import annotations

from pathlib import Path
from statistics import median_low

from ..adapters.reports import REPORTS, RankSteps, read_steps
from ..model.snapshot import JobRecord
from . import schemas

SLOW_MILLI = 1_200
"""A rank is slow if its own time in a step is at least so many thousandths of the median rank's."""

MOST_NAMED = 16
"""Slow ranks that are named; the slowest first."""


def steps_of(log_dir: Path, record: JobRecord) -> schemas.StepsView | None:
    """The latest steps of the job's newest attempt; None where its ranks report none."""
    ranks = read_steps(log_dir / record.id / str(record.attempt) / REPORTS)
    return _view(ranks) if ranks else None


def _view(ranks: tuple[RankSteps, ...]) -> schemas.StepsView:
    parts = {
        "wait": sum(rank.wait_us for rank in ranks),
        "compute": sum(rank.compute_us for rank in ranks),
        "checkpoint": sum(rank.checkpoint_us for rank in ranks),
        "peers": sum(rank.peers_us for rank in ranks),
    }
    total = sum(parts.values())
    middle = median_low([rank.own_us for rank in ranks])
    by_time = sorted(ranks, key=lambda rank: (-rank.own_us, rank.rank))
    slow = [rank for rank in by_time if len(ranks) > 1 and middle and rank.own_us * 1000 >= SLOW_MILLI * middle]
    return schemas.StepsView(
        **{f"{name}_milli": round(1000 * spent / total) if total else 0 for name, spent in parts.items()},
        step_us=total // sum(rank.steps for rank in ranks),
        longest_us=max(rank.longest_us for rank in ranks),
        last_step=max(rank.last_step for rank in ranks),
        at_s=max(rank.at_s for rank in ranks),
        ranks=len(ranks),
        slow=[
            schemas.SlowRankView(
                rank=rank.rank, host=rank.host, own_us=rank.own_us, times_milli=round(1000 * rank.own_us / middle)
            )
            for rank in slow[:MOST_NAMED]
        ],
    )
