"""The greedy's last step about victims: an elastic one gives up only the workers that are in a start's way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..model.decision import Resize
from ..model.ids import JobId
from ..model.placement import Placement, WorkerPlacement
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import JobRecord, Snapshot
from .books import Books
from .goals import values
from .guard import UNLIMITED, Guard
from .plan import Plan, assemble
from .returning import returners, smaller
from .sizes import settled
from .unchecked import unchecked
from .verify import verify_starts
from .verify_planned import Planned


def shrunk(snapshot: Snapshot, policy: Policy, plan: Plan, guard: Guard = UNLIMITED) -> Plan:
    """The plan with each victim shrunk in place that may be, where that keeps all rules and is worth more.

    When the guard's time is over the rest of them leaves.
    """
    snapshot = settled(snapshot)
    leaving = {act.job for act in plan.preemptions}
    if not leaving:
        return plan
    for record in returners(snapshot, policy).shrinkers:
        if record.id in leaving and guard.remaining_s() > 0:
            plan = _shrunk(record, snapshot, policy, plan)
    return plan


def _shrunk(record: JobRecord, snapshot: Snapshot, policy: Policy, plan: Plan) -> Plan:
    """The plan with the job shrunk instead of stopped; as it was where that cannot be, or is not better."""
    act = _return(record, snapshot, plan)
    if act is None:
        return plan
    victims = [each.job for each in plan.preemptions if each.job != record.id]
    fresh = assemble(snapshot, policy, plan.starts, victims, _plans(snapshot, plan.reservations), (*plan.resizes, act))
    if _attained(snapshot, policy, fresh) <= _attained(snapshot, policy, plan):
        return plan
    faults = verify_starts(snapshot, policy, fresh.starts, fresh.preemptions, fresh.reservations, fresh.resizes)
    return plan if faults else fresh


def _return(record: JobRecord, snapshot: Snapshot, plan: Plan) -> Resize | None:
    """The job on as many of its seats as are still free, whole replicas together; None where no size fits there."""
    elastic, placement = record.job.elastic, record.placement
    role = record.job.role(elastic.role) if elastic is not None else None
    if role is None or placement is None:
        return None
    books = _after(snapshot, plan)
    fixed: list[WorkerPlacement] = []
    for worker in placement.workers:
        if worker.role != role.name:
            if not books.fits(record.job, worker):
                return None
            books.take(record.job, worker)
            fixed.append(worker)
    seats = [worker for worker in placement.workers if worker.role == role.name]
    each = role.parallelism.tensor * role.parallelism.pipeline if role.parallelism is not None else 1
    kept: list[WorkerPlacement] = []
    for first in range(0, len(seats), each):
        replica = seats[first : first + each]
        if _take_all(record, replica, books):
            kept.extend(replica)
    size = max((size for size in smaller(record) if size <= len(kept)), default=None)
    if size is None:
        return None
    ranked = [replace(worker, index=number) for number, worker in enumerate(kept[:size])]
    by_role = {other.name: [worker for worker in fixed if worker.role == other.name] for other in record.job.roles}
    by_role[role.name] = ranked
    workers = tuple(worker for other in record.job.roles for worker in by_role[other.name])
    return Resize(job=record.id, attempt=record.attempt + 1, placement=Placement(workers=workers))


def _take_all(record: JobRecord, replica: Sequence[WorkerPlacement], books: Books) -> bool:
    """Books the workers where they were, all or none."""
    taken: list[WorkerPlacement] = []
    for worker in replica:
        if not books.fits(record.job, worker):
            for other in taken:
                books.give(record.job, other)
            return False
        books.take(record.job, worker)
        taken.append(worker)
    return True


def _after(snapshot: Snapshot, plan: Plan) -> Books:
    """What is free once the plan is carried out."""
    back = {act.job: act.placement for act in plan.resizes}
    gone: set[JobId] = {*back, *(act.job for act in plan.preemptions)}
    books = Books(unchecked(snapshot, jobs=tuple(record for record in snapshot.jobs if record.id not in gone)))
    there = {**back, **{start.job: start.placement for start in plan.starts}}
    for record in snapshot.jobs:
        for worker in there[record.id].workers if record.id in there else ():
            books.take(record.job, worker)
    return books


def _plans(snapshot: Snapshot, reservations: Sequence[Reservation]) -> list[Planned]:
    records = {record.id: record for record in snapshot.jobs if reservations}
    return [Planned(records[plan.job], plan.placement, plan.planned_start_s) for plan in reservations]


def _attained(snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[int, ...]:
    reached = values(snapshot, policy, plan.starts, plan.preemptions, plan.reservations, plan.resizes)
    return tuple(goal.value for goal in reached)
