"""The goals about plans, recomputed: promises kept, how early the starving start, hosts that plans keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..model.placement import Placement
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import JobRecord, Snapshot
from .drains import named, promises
from .order import value_milli


@dataclass(frozen=True, slots=True)
class PlannedGoals:
    """`keep` [mGPU] and `plan` [mGPU*s] by level, as far as they are listed, and `calm` [workers], None unlisted."""

    keep: dict[int, int]
    plan: dict[int, int]
    calm: int | None


def planned_goals(
    snapshot: Snapshot, policy: Policy, starting: Iterable[JobRecord], reservations: Sequence[Reservation]
) -> PlannedGoals:
    """What starts and plans attain for the gangs for which hosts may be reserved."""
    begins = {record.id: snapshot.now_s for record in starting}
    plans = {plan.job: plan for plan in reversed(reservations)}
    starts = {**{job: plan.planned_start_s for job, plan in plans.items()}, **begins}
    plan: Counter[int] = Counter()
    for record in named(snapshot, policy):
        plan[record.level] += 0
        if record.id in starts:
            ahead_s = starts[record.id] - snapshot.now_s
            plan[record.level] += value_milli(record, policy) * (policy.time.plan_horizon_s - ahead_s)
    keep: Counter[int] = Counter()
    calm: int | None = None
    for promise in promises(snapshot, policy):
        job = promise.record.id
        calm = calm or 0
        keep[promise.level] += 0
        if job in starts and starts[job] <= promise.start_s:
            keep[promise.level] += value_milli(promise.record, policy)
        if job in plans and job not in begins:
            calm -= (_seats(plans[job].placement) - _seats(promise.reservation.placement)).total()
    return PlannedGoals(dict(keep), dict(plan), calm)


def _seats(placement: Placement) -> Counter[tuple[str, str]]:
    """How many workers of each role are on each host."""
    return Counter((worker.role, worker.host) for worker in placement.workers)
