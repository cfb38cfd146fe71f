"""Paired comparisons: the same jobs under two schedulers, with 95 % intervals by bootstrap over seeds or jobs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .metrics import LARGE_GPUS, LEVEL_WEIGHTS, measured, percentile, queued_s, waited_s, weighted_wait
from .run import Outcome, Run

RESAMPLES = 2_000
BLOCKS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """By how much `ours` is below `theirs`, as a share of `theirs`: 0.1 is 10 % better, negative is worse.

    `low` and `high` are the 95 % interval; `over` says what was resampled. None where theirs is 0.
    """

    measure: str
    scheduler: str
    ours: float
    theirs: float
    better: float | None
    low: float | None
    high: float | None
    over: str


Time = Callable[[Outcome, Run], int]
"""A time of one job, in seconds."""


def compare(ours: Sequence[Run], theirs: Sequence[Run]) -> list[Comparison]:
    """Waits: mean, re-queueing included, level-weighted, p90, p90 of large gangs; runs are paired by their position."""
    found = [
        _paired("mean wait", ours, theirs, _mean_wait),
        _paired("mean wait, re-queueing included", ours, theirs, _mean_queued, time=queued_s),
        _paired("level-weighted wait", ours, theirs, weighted_wait, weights=True),
        _paired("p90 wait", ours, theirs, lambda run: _p90(run, 0)),
    ]
    if any(job.gpu_milli >= LARGE_GPUS * 1000 for job in measured(ours[0])):
        found.append(
            _paired(
                f"p90 wait, >= {LARGE_GPUS} GPUs", ours, theirs, lambda run: _p90(run, LARGE_GPUS), least=LARGE_GPUS
            )
        )
    return found


def _mean_wait(run: Run) -> float:
    jobs = measured(run)
    return sum(waited_s(job, run) for job in jobs) / max(1, len(jobs))


def _mean_queued(run: Run) -> float:
    jobs = measured(run)
    return sum(queued_s(job, run) for job in jobs) / max(1, len(jobs))


def _p90(run: Run, least_gpus: int) -> float:
    waits = sorted(waited_s(job, run) for job in measured(run) if job.gpu_milli >= least_gpus * 1000)
    return percentile(waits, 0.9) if waits else 0.0


def _paired(
    name: str,
    ours: Sequence[Run],
    theirs: Sequence[Run],
    value: Callable[[Run], float],
    *,
    weights: bool = False,
    least: int = 0,
    time: Time = waited_s,
) -> Comparison:
    a, b = [value(run) for run in ours], [value(run) for run in theirs]
    mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
    if len(a) > 1:
        draws = _over_seeds(a, b)
        over = f"{len(a)} seeds"
    else:
        tail = "p90" in name
        draws = _over_blocks(ours[0], theirs[0], time, weights=weights, least=least, tail=tail)
        over = f"{_blocks(sum(job.gpu_milli >= least * 1000 for job in measured(ours[0])))} blocks of jobs, one seed"
    low, high = (percentile(draws, 0.025), percentile(draws, 0.975)) if draws else (None, None)
    return Comparison(
        measure=name,
        scheduler=theirs[0].scheduler,
        ours=mean_a,
        theirs=mean_b,
        better=_better(mean_a, mean_b),
        low=low,
        high=high,
        over=over,
    )


def _blocks(jobs: int) -> int:
    return min(BLOCKS, jobs)


def _better(ours: float, theirs: float) -> float | None:
    return None if theirs <= 0 else 1 - ours / theirs


def _over_seeds(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Resampled relative improvements, rising; each draw takes whole seeds."""
    draw, found = random.Random(1), []
    for _ in range(RESAMPLES):
        picked = [draw.randrange(len(ours)) for _ in ours]
        better = _better(sum(ours[i] for i in picked), sum(theirs[i] for i in picked))
        if better is not None:
            found.append(better)
    return sorted(found)


def _over_blocks(ours: Run, theirs: Run, time: Time, *, weights: bool, least: int, tail: bool) -> list[float]:
    """As over seeds, with blocks of consecutive jobs: neighbours wait for the same reasons, so they stay together."""
    pairs = [
        (time(a, ours), time(b, theirs), LEVEL_WEIGHTS[a.level] if weights else 1)
        for a, b in zip(measured(ours), measured(theirs), strict=True)
        if a.gpu_milli >= least * 1000
    ]
    count = _blocks(len(pairs))
    blocks = [pairs[len(pairs) * i // count : len(pairs) * (i + 1) // count] for i in range(count)]
    sums = [(sum(w * a for a, _, w in block), sum(w * b for _, b, w in block)) for block in blocks]
    draw, found = random.Random(1), []
    for _ in range(RESAMPLES if not tail else RESAMPLES // 10):
        picked = [draw.randrange(count) for _ in blocks]
        if tail:
            jobs = [pair for i in picked for pair in blocks[i]]
            better = _better(*(percentile(sorted(pair[side] for pair in jobs), 0.9) for side in (0, 1)))
        else:
            better = _better(sum(sums[i][0] for i in picked), sum(sums[i][1] for i in picked))
        if better is not None:
            found.append(better)
    return sorted(found)
