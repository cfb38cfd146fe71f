"""The verifier's half about drain reservations: plans that could start then, and promises that are kept (RULES 5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from ..model.decision import Decision, Preemption, Resize, Start
from ..model.ids import JobId
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import Snapshot
from .drains import Promise, named
from .verify_planned import Board, Planned, reservation_fault
from .verify_promise import Hindrance, Standing, placement_faults
from .verify_rights import returning
from .violation import Violation


def reservation(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    preemptions: Sequence[Preemption] = (),
    reservations: Sequence[Reservation] = (),
    resizes: Sequence[Resize] = (),
) -> Iterator[Violation]:
    """Only named gangs have plans, one each, with room at that time; a promise moves later for a true cause only."""
    if not reservations and not snapshot.reservations:
        return
    entitled = {record.id: record for record in named(snapshot, policy)}
    records = {record.id: record for record in snapshot.jobs}
    starting = {start.job for start in starts}
    yield from _whose(reservations, entitled, starting)
    plans = [
        Planned(entitled[plan.job], plan.placement, plan.planned_start_s)
        for plan in reservations
        if plan.job in entitled and plan.job not in starting
    ]
    coming = [(records[act.job], act.placement) for act in (*starts, *returning(resizes)) if act.job in records]
    board = Board(snapshot, policy, plans, coming, {*(act.job for act in preemptions), *(act.job for act in resizes)})
    for plan in plans:
        if plan.at_s < snapshot.now_s:
            text = f"job {plan.record.id} is planned to start {snapshot.now_s - plan.at_s} s ago"
            yield reservation_fault(plan.record.id, snapshot.now_s - plan.at_s, "s", text)
        yield from placement_faults(plan, snapshot, policy)
        yield from board.overfull(plan)
        yield from board.contested(plan)
    standing = Standing(snapshot, policy, starts, preemptions, reservations, resizes)
    yield from _promises(snapshot, policy, standing, reservations)


def _whose(
    reservations: Sequence[Reservation], entitled: Collection[JobId], starting: Collection[JobId]
) -> Iterator[Violation]:
    for job, number in Counter(plan.job for plan in reservations).items():
        if number > 1:
            yield reservation_fault(job, number - 1, "plans", f"hosts are reserved {number} times for job {job}")
        if job not in entitled:
            yield reservation_fault(job, 1, "plans", f"hosts are reserved for job {job}, which is not entitled to them")
        if job in starting:
            yield reservation_fault(job, 1, "plans", f"hosts are reserved for job {job}, which starts")


def _promises(
    snapshot: Snapshot, policy: Policy, standing: Standing, reservations: Sequence[Reservation]
) -> Iterator[Violation]:
    plans = {plan.job: plan for plan in reversed(reservations)}
    bound = {promise.record.id: promise for promise in standing.promises}
    for job, plan in plans.items():
        if job not in bound:
            yield from _new(plan, snapshot.now_s)
    for promise in standing.promises:
        later = plans.get(promise.record.id)
        if later is not None:
            yield from _same(promise, later)
        if standing.kept(promise):
            if later is not None:
                yield from _told(later, promise.reservation.broken, promise.reservation.cause)
            continue
        why = standing.hindrance(promise)
        job = promise.record.id
        if why is Hindrance.NOTHING:
            by = "gone" if later is None else f"{later.planned_start_s - promise.start_s} s later"
            text = f"the plan of job {job} is {by}, and nothing keeps it from starting when and where it was promised"
            amount = 1 if later is None else later.planned_start_s - promise.start_s
            yield reservation_fault(job, amount, "s", text)
        elif later is not None:
            yield from _told(later, promise.reservation.broken + (why is Hindrance.HIGHER), None)


def _new(plan: Reservation, now_s: int) -> Iterator[Violation]:
    told = (str(plan.id), plan.created_s, plan.version)
    right = (str(plan.job), now_s, 0)
    if told != right:
        text = f"the new plan of job {plan.job} has id, time and version {told}; right are {right}"
        yield reservation_fault(plan.job, sum(a != b for a, b in zip(told, right, strict=True)), "fields", text)
    yield from _told(plan, 0, "")


def _same(promise: Promise, plan: Reservation) -> Iterator[Violation]:
    earlier = promise.reservation
    told = (plan.id, plan.created_s, plan.version)
    right = (earlier.id, earlier.created_s, earlier.version)
    if told != right:
        text = f"the plan of job {plan.job} has id, time and version {told}; it had {right}"
        yield reservation_fault(plan.job, sum(a != b for a, b in zip(told, right, strict=True)), "fields", text)


def _told(plan: Reservation, broken: int, cause: str | None) -> Iterator[Violation]:
    """What the plan says of itself; `cause` None: some cause must be told."""
    if plan.broken != broken:
        text = f"the plan of job {plan.job} is said to be broken {plan.broken} times; it is {broken}"
        yield reservation_fault(plan.job, abs(plan.broken - broken), "times", text)
    if cause is None and not plan.cause:
        yield reservation_fault(plan.job, 1, "causes", f"the plan of job {plan.job} is moved later without a cause")
    if cause is not None and plan.cause != cause:
        text = f"the plan of job {plan.job} tells the cause {plan.cause!r}; it was not moved later, so {cause!r} stands"
        yield reservation_fault(plan.job, 1, "causes", text)


def releases(snapshot: Snapshot, decision: Decision) -> Iterator[Violation]:
    """Released are the earlier reservations that do not stay and whose gangs do not start, in their order."""
    staying = {plan.id for plan in decision.reservations}
    starting = {start.job for start in decision.starts}
    right = tuple(r.id for r in snapshot.reservations if r.id not in staying and r.job not in starting)
    for name in sorted(set(right) ^ set(decision.releases)):
        what = "is not released" if name in right else "is released"
        text = f"reservation {name} {what}; released are those whose gangs neither keep them nor start"
        yield reservation_fault(name, 1, "releases", text)
    if set(right) == set(decision.releases) and right != decision.releases:
        yield reservation_fault("releases", 1, "orders", f"the releases {list(decision.releases)} are in another order")
    place = {record.id: number for number, record in enumerate(snapshot.jobs)}
    order = [place.get(plan.job, -1) for plan in decision.reservations]
    if order != sorted(order):
        yield reservation_fault("reservations", 1, "orders", "the reservations are not in the order of the jobs")
