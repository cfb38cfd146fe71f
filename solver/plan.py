"""Starts and the preemptions that make room for them, tied together as a decision states them (docs/rounds.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..model.decision import Preemption, Resize, Start
from ..model.host import MILLI
from ..model.ids import JobId, ReservationId
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import JobRecord, Snapshot
from .demand import loss
from .drains import reservations_by_job
from .order import value_milli
from .sizes import settled
from .ties import Ties
from .verify_planned import Planned
from .verify_promise import Hindrance, Standing


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round would do: who starts, who leaves or returns elsewhere for them, and hosts set aside for others."""

    starts: tuple[Start, ...] = ()
    preemptions: tuple[Preemption, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    releases: tuple[ReservationId, ...] = ()
    resizes: tuple[Resize, ...] = ()


def assemble(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    victims: Iterable[JobId],
    plans: Sequence[Planned] = (),
    resizes: Iterable[Resize] = (),
) -> Plan:
    """The plan of these starts, victims, plans and returns: who waits for whom, at what cost, which promises stand."""
    snapshot = settled(snapshot)
    chosen = set(victims)
    leaving = [record for record in snapshot.jobs if record.id in chosen]
    position = {record.id: number for number, record in enumerate(snapshot.jobs)}
    back = tuple(sorted(resizes, key=lambda act: position[act.job]))
    # Where nobody leaves nothing is tied.
    ties = Ties(snapshot, policy, leaving, back) if leaving or back else None
    tied = []
    beneficiaries: dict[JobId, list[JobId]] = defaultdict(list)
    for start in sorted(starts, key=lambda start: position[start.job]):
        after = ties.before(start) if ties is not None else ()
        tied.append(replace(start, after=after))
        for victim in chosen.intersection(after):
            beneficiaries[victim].append(start.job)
    preemptions = tuple(
        Preemption(
            job=record.id,
            attempt=record.attempt,
            beneficiaries=tuple(beneficiaries[record.id]),
            loss_gpu_s=loss_gpu_s(record, snapshot.now_s, policy),
        )
        for record in leaving
    )
    reservations = _reservations(snapshot, policy, tied, preemptions, plans, back)
    staying = {plan.id for plan in reservations}
    starting = {start.job for start in starts}
    releases = (r.id for r in snapshot.reservations if r.id not in staying and r.job not in starting)
    return Plan(tuple(tied), preemptions, reservations, tuple(releases), back)


def _reservations(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    preemptions: Sequence[Preemption],
    plans: Sequence[Planned],
    resizes: Sequence[Resize],
) -> tuple[Reservation, ...]:
    """The reservations of these plans, in the order of the snapshot's jobs: earlier ones go on, with why they moved."""
    if not plans:
        return ()
    earlier = reservations_by_job(snapshot)
    planned = {plan.record.id: plan for plan in plans}
    fresh = {}
    for record in snapshot.jobs:
        if record.id in planned:
            plan = planned[record.id]
            old = earlier.get(record.id) or Reservation(
                id=ReservationId(record.id),
                job=record.id,
                placement=plan.placement,
                planned_start_s=plan.at_s,
                created_s=snapshot.now_s,
            )
            fresh[record.id] = replace(old, placement=plan.placement, planned_start_s=plan.at_s)
    standing = Standing(snapshot, policy, starts, preemptions, tuple(fresh.values()), resizes)
    for promise in standing.promises:
        if promise.record.id in fresh and not standing.kept(promise):
            why, moved = standing.hindrance(promise), fresh[promise.record.id]
            broken = moved.broken + (why is Hindrance.HIGHER)
            fresh[promise.record.id] = replace(moved, broken=broken, cause=why.value or NO_CAUSE)
    return tuple(fresh.values())


NO_CAUSE = "none"
"""Said of a plan that moved later although it need not; the verifier refuses it."""


def loss_gpu_s(record: JobRecord, now_s: int, policy: Policy) -> int:
    """The loss of preempting the job, in GPU-seconds, rounded up."""
    return -(-loss(record, value_milli(record, policy), now_s, policy) // MILLI)
