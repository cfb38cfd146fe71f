"""The numbers of a run about preemption, promises and guarantees."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..model.host import MILLI
from .foresight import Told
from .run import Run

SHORT_S = 600
"""Shorter waits, in seconds, are not judged: any forecast of them is right to within a few minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted:
    """What preemption took, in GPU-hours, and from how many; `unserved` had no beneficiary that came to run,
    `avoidable` one that would have fitted without it. `most` is how often the job that suffered most was evicted.
    """

    evictions: int
    jobs: int
    most: int
    unserved: int
    avoidable: int
    lost_gpu_h: float
    restart_gpu_h: float
    handover_gpu_h: float

    @property
    def gpu_h(self) -> float:
        """All of it together."""
        return self.lost_gpu_h + self.restart_gpu_h + self.handover_gpu_h


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecasts:
    """Forecasts of starts and their median error as a share, None where there are none.

    `told` of `asked` forecasts named a start. `late` is the share of starts that came later than told.
    """

    asked: int
    told: int
    median: float | None
    late: float | None


def preempted(run: Run) -> Preempted:
    """Over the whole run, jobs carried in included."""
    each = Counter(eviction.job for eviction in run.evictions)
    return Preempted(
        evictions=len(run.evictions),
        jobs=len(each),
        most=max(each.values(), default=0),
        unserved=sum(not eviction.served for eviction in run.evictions),
        avoidable=sum(eviction.avoidable for eviction in run.evictions),
        lost_gpu_h=sum(eviction.lost_gpu_s for eviction in run.evictions) / 3600,
        restart_gpu_h=sum(eviction.restart_gpu_s for eviction in run.evictions) / 3600,
        handover_gpu_h=sum(eviction.handover_gpu_s for eviction in run.evictions) / 3600,
    )


def forecasts(run: Run, *, new: bool) -> Forecasts:
    """Those of starts that were then at least 10 min away, made when a job was submitted (`new`) or later while it
    waited: the error over the time that was really left.
    """
    return _judged(
        (told, start_s, start_s - told.at_s)
        for told, start_s in _started(run)
        if told.new == new and start_s - told.at_s >= SHORT_S
    )


def forecasts_of_waits(run: Run) -> Forecasts:
    """All that were made for jobs that waited at least 10 min, while they waited: the error over their actual wait."""
    return _judged(
        (told, start_s, start_s - told.submitted_s)
        for told, start_s in _started(run)
        if start_s - told.submitted_s >= SHORT_S
    )


def _started(run: Run) -> Iterable[tuple[Told, int]]:
    """What was told, with the start that came; jobs that never started are in no table of forecasts."""
    starts = {outcome.job: outcome.start_s for outcome in run.outcomes}
    for told in run.told:
        start_s = starts[told.job]
        if start_s is not None:
            yield told, start_s


def _judged(found: Iterable[tuple[Told, int, int]]) -> Forecasts:
    """The errors over the third number."""
    errors, asked, late = [], 0, 0
    for told, start_s, over_s in found:
        asked += 1
        if told.start_s is not None:
            errors.append(abs(told.start_s - start_s) / over_s)
            late += start_s > told.start_s
    errors.sort()
    return Forecasts(
        asked=asked,
        told=len(errors),
        median=errors[(len(errors) - 1) // 2] if errors else None,
        late=late / len(errors) if errors else None,
    )


def guarantee_met(run: Run) -> float | None:
    """The share of guaranteed and wanted GPU time that teams got in the window; None where nobody is guaranteed any.

    At each moment a team is owed the smaller of its guarantee and what its jobs of level 1 and above, submitted and not
    ended, ask; and gets what they hold, as far as that. All GPU types together.
    """
    owed = got = 0.0
    for team, milli in run.guaranteed_milli.items():
        jobs = {job.job: job for job in run.outcomes if job.team == team and job.level > 0}
        wanted = [(job.submit_s, run.end_s if job.end_s is None else job.end_s, job.gpu_milli) for job in jobs.values()]
        spans = {(s.job, s.attempt): (s.start_s, s.end_s, jobs[s.job].gpu_milli) for s in run.spans if s.job in jobs}
        for lasts_s, (asked, held) in _steps((wanted, list(spans.values())), run.window_s):
            owed += min(milli, asked) / MILLI * lasts_s
            got += min(milli, asked, held) / MILLI * lasts_s
    return got / owed if owed else None


def _steps(groups: Sequence[Iterable[tuple[int, int, int]]], until_s: int) -> Iterable[tuple[int, tuple[int, ...]]]:
    """Between any two ends of intervals (from, to, amount): how long that lasts, and each group's sum of amounts."""
    moves: dict[int, list[int]] = defaultdict(lambda: [0] * len(groups))
    for number, intervals in enumerate(groups):
        for start_s, end_s, amount in intervals:
            moves[min(start_s, until_s)][number] += amount
            moves[min(end_s, until_s)][number] -= amount
    sums, last_s = [0] * len(groups), 0
    for at_s in sorted(moves):
        yield at_s - last_s, tuple(sums)
        last_s = at_s
        sums = [total + change for total, change in zip(sums, moves[at_s], strict=True)]
