"""`what_if`: a changed fleet, queue or policy side by side with today's, by the same rules (docs/forecast.md)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from ..model.change import Change
from ..model.ids import JobId
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from .apply_change import apply_change
from .forecast import HORIZON_S, Decide, Forecast
from .greedy import greedy
from .outlook import Outlook, look
from .walltimes import Learned


class Verdict(StrEnum):
    """How a waiting job fares under the change."""

    SAME = "same"
    SOONER = "sooner"
    LATER = "later"
    NOW_TOLD = "now_told"
    NO_LONGER_TOLD = "no_longer_told"
    NEW = "new"
    GONE = "gone"
    DRIVEN_OUT = "driven_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobChange:
    """One job that waits on either side: its expected start today and then."""

    job: JobId
    verdict: Verdict
    today: Forecast | None = None
    then: Forecast | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Today beside the changed world, and what becomes of each job that waits in one of them."""

    now_s: int
    today: Outlook
    then: Outlook
    jobs: tuple[JobChange, ...]

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """How many jobs fare how."""
        return dict(Counter(entry.verdict for entry in self.jobs))


def what_if(
    snapshot: Snapshot,
    change: Change,
    policy: Policy,
    *,
    decide: Decide = greedy,
    horizon_s: int = HORIZON_S,
    learned: Learned | None = None,
) -> Comparison:
    """Compares today with the changed world; pure and deterministic.

    Raises InvalidInput for a change of what does not exist.
    """
    then, then_policy = apply_change(snapshot, policy, change)
    prices = {price.gpu_type: price.milli_per_hour for price in change.prices}
    view = partial(look, decide=decide, horizon_s=horizon_s, learned=learned, prices=prices)
    before, told = view(snapshot, policy)
    if (then, then_policy) == (snapshot, policy):
        after, told_then = before, told
    else:
        after, told_then = view(then, then_policy)
    known = {record.id for record in snapshot.jobs}
    kept = {record.id for record in then.jobs}
    jobs = []
    for name in dict.fromkeys([*told, *told_then]):
        today, later = told.get(name), told_then.get(name)
        jobs.append(JobChange(job=name, verdict=_verdict(today, later, name in known), today=today, then=later))
    gone = [record.id for record in snapshot.jobs if record.id not in kept and record.id not in told]
    jobs.extend(JobChange(job=name, verdict=Verdict.GONE) for name in gone)
    return Comparison(now_s=snapshot.now_s, today=before, then=after, jobs=tuple(jobs))


def _verdict(today: Forecast | None, then: Forecast | None, known: bool) -> Verdict:
    if then is None:
        return Verdict.GONE
    if today is None:
        return Verdict.DRIVEN_OUT if known else Verdict.NEW
    if today.start_s == then.start_s:
        return Verdict.SAME
    if today.start_s is None:
        return Verdict.NOW_TOLD
    if then.start_s is None:
        return Verdict.NO_LONGER_TOLD
    return Verdict.SOONER if then.start_s < today.start_s else Verdict.LATER
