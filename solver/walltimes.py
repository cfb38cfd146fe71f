"""How long attempts will still hold their hosts: by estimates for forecasts, by limits for promises (RULES 5)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median_low

from ..model.job import Job
from ..model.job_state import JobState
from ..model.limits import grace_s, ran_s, walltime_limit_s
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot

LEAST_OVERRUN_S = 60
"""A job past its estimate is expected to run on for this long at least, unless its limit comes first."""

LEAST_RATIOS, LEAST_LONGER = 20, 3
"""Estimates are corrected once the runs of so many are known, and so many of these ran longer, by their estimates."""

Learned = Callable[[Job], int | None]
"""Seconds that a job is likely to run, known from jobs like it; None where nothing is known."""


class Basis(StrEnum):
    """What a forecast rests on: nothing that is yet to end, an estimate, or limits alone."""

    NOW = "now"
    ESTIMATE = "estimate"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Span:
    """An expected duration in seconds and what it rests on."""

    seconds: int
    basis: Basis


class Walltimes:
    """Expected durations of the jobs of one snapshot; with `by_limits` every job runs to its limit.

    `ratios` are how long jobs that have ended ran, in thousandths of the estimates that were given for them.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        *,
        learned: Learned | None = None,
        by_limits: bool = False,
        ratios: Sequence[int] = (),
    ) -> None:
        self._policy, self._learned, self._by_limits = policy, learned, by_limits
        self._ratios = () if by_limits or len(ratios) < LEAST_RATIOS else tuple(sorted(ratios))
        self._guaranteed = {team.id for team in snapshot.teams if team.guarantee}

    def limit_s(self, record: JobRecord) -> int:
        """The job's own limit, else its pool's: preemptible, team with a guarantee, or shared."""
        return walltime_limit_s(record, record.job.team in self._guaranteed, self._policy)

    def whole(self, record: JobRecord) -> Span:
        """All work of the run, from its first attempt on: the estimate given, else learned, else the limit."""
        limit = self.limit_s(record)
        estimate = None if self._by_limits else record.job.walltime_estimate_s
        if estimate is None and not self._by_limits and self._learned is not None:
            estimate = self._learned(record.job)
        if estimate is None or estimate >= limit:
            return Span(limit, Basis.LIMIT)
        return Span(max(1, estimate), Basis.ESTIMATE)

    def left(self, record: JobRecord, now_s: int) -> Span:
        """Work that is left of the run at `now_s`; 0 where the limit is reached.

        Where estimates have been judged, it is what was left, in the median, to those that had run as long by theirs.
        Else, past its estimate nothing is known but that it runs on: it is expected to go on for as long as it has
        overrun, at least a tenth of the estimate and a minute, and not beyond its limit. Expecting the end at every
        instant instead would promise a start that keeps not coming.
        """
        whole, ran = self.whole(record), ran_s(record, now_s)
        usual = self._usual_s(record, ran)
        if usual is not None:
            return Span(max(0, min(usual, self.limit_s(record)) - ran), Basis.ESTIMATE)
        if ran < whole.seconds:
            return Span(whole.seconds - ran, whole.basis)
        to_limit = max(0, self.limit_s(record) - ran)
        on = max(ran - whole.seconds, whole.seconds // 10, LEAST_OVERRUN_S)
        return Span(min(on, to_limit), Basis.LIMIT if to_limit <= on else whole.basis)

    def _usual_s(self, record: JobRecord, ran: int) -> int | None:
        """All work of the run by what has become of estimates like its own; None where too little is known."""
        estimate = record.job.walltime_estimate_s
        if estimate is None or estimate >= self.limit_s(record):
            return None
        longer = self._ratios[bisect_right(self._ratios, 1000 * ran // estimate) :]
        return None if len(longer) < LEAST_LONGER else median_low(longer) * estimate // 1000

    def held(self, record: JobRecord, now_s: int) -> Span:
        """How long from `now_s` on the job's hosts are not free for others: work, exit and cleaning, and its launch."""
        limits = self._policy.eviction
        if record.state is JobState.STOPPING:
            gone_s = max(now_s, record.state_since_s + grace_s(record.job))
            return Span(gone_s - now_s + limits.clean_s, Basis.ESTIMATE)
        left = self.left(record, now_s)
        launch = 0 if record.state is JobState.RUNNING else limits.launch_s
        return Span(launch + left.seconds + limits.clean_s, left.basis)


def saved_s(record: JobRecord, now_s: int) -> int:
    """Work that is still there when the job is preempted at `now_s`: all where its grace fits a checkpoint."""
    checkpoint = record.job.checkpoint
    if checkpoint is not None and checkpoint.grace_s >= checkpoint.write_s:
        return ran_s(record, now_s)
    return record.progress.saved_work_s
