"""Fills up what the exact stage decided before its budget ended: the greedy goes on beside the upper levels' starts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..model.decision import Resize, Start
from ..model.ids import HostId, JobId
from ..model.job_state import JobState
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import JobRecord, Snapshot
from .evict import greedy_plan
from .plan import Plan
from .reprieve import reprieve
from .sizes import as_started
from .verify import verify_starts
from .verify_planned import Planned

_TRIES = 3
"""Times that starts are dropped which the rules forbid beside the others."""


def top_up(snapshot: Snapshot, policy: Policy, plan: Plan, level: int) -> Iterator[Plan]:
    """Plans with the given one's starts of that level and above, and what the greedy adds to them; all keep the rules.

    What the victims leave beside these starts is for those that may evict them, as far as cards tell.
    One plan has the hosts set aside that the given one has, one those of the greedy.
    """
    records = {record.id: record for record in snapshot.jobs}
    kept = [start for start in plan.starts if records[start.job].level >= level]
    base = reprieve(snapshot, policy, kept, [act.job for act in plan.preemptions], (), plan.resizes)
    more = greedy_plan(_after(snapshot, base, plan.reservations), policy)
    victims = {act.job for act in (*base.preemptions, *more.preemptions)}
    # Of a victim the greedy may have shrunk what its world has left of it: it leaves whole.
    back = (*base.resizes, *(act for act in more.resizes if act.job not in victims))
    for reservations in dict.fromkeys((plan.reservations, more.reservations)):
        plans = [Planned(records[r.job], r.placement, r.planned_start_s) for r in reservations]
        added = list(more.starts)
        for _ in range(_TRIES):
            topped = reprieve(snapshot, policy, (*base.starts, *added), victims, plans, back)
            acts = (topped.starts, topped.preemptions, topped.reservations, topped.resizes)
            faults = verify_starts(snapshot, policy, *acts)
            if not faults:
                yield topped
                break
            added = _without(added, {fault.subject for fault in faults}, records)


def beside(snapshot: Snapshot, policy: Policy, plan: Plan, other: Plan, level: int) -> Plan | None:
    """The first plan's starts of that level and above with the other's below it, whose hosts are set aside, too.

    None where they take each other's cards, or keep some rule only without one another.
    """
    if plan.resizes or other.resizes:
        return None
    records = {record.id: record for record in snapshot.jobs}
    above = [start for start in plan.starts if records[start.job].level >= level]
    below = [start for start in other.starts if records[start.job].level < level]
    if not _cards(above).isdisjoint(_cards(below)):
        return None
    starts, victims = (*above, *below), {act.job for act in (*plan.preemptions, *other.preemptions)}
    begun = {start.job for start in starts}
    kept = (reservation for reservation in other.reservations if reservation.job not in begun)
    plans = [Planned(records[r.job], r.placement, r.planned_start_s) for r in kept]
    both = reprieve(snapshot, policy, starts, victims, plans)
    faults = verify_starts(snapshot, policy, both.starts, both.preemptions, both.reservations, both.resizes)
    return None if faults else both


def _cards(starts: Sequence[Start]) -> set[tuple[HostId, int]]:
    return {(worker.host, gpu) for start in starts for worker in start.placement.workers for gpu in worker.gpus}


def _without(starts: list[Start], subjects: set[str], records: dict[JobId, JobRecord]) -> list[Start]:
    """Without the starts at fault, and the lowest on each host at fault, of which one card may be told."""
    gone = {start.job for start in starts if start.job in subjects}
    for subject in subjects:
        there = [s for s in starts if any(subject == h or subject.startswith(f"{h}/") for h in s.placement.hosts)]
        gone.update(start.job for start in sorted(there, key=lambda s: records[s.job].level)[:1])
    return [start for start in starts if start.job not in gone]


def _after(snapshot: Snapshot, plan: Plan, reservations: Sequence[Reservation]) -> Snapshot:
    """The world in which the plan's starts and returns are planned, its victims keep the rest, and this is promised."""
    taken: dict[HostId, set[int]] = defaultdict(set)
    acts: tuple[Start | Resize, ...] = (*plan.starts, *plan.resizes)
    for act in acts:
        for worker in act.placement.workers:
            taken[worker.host].update(worker.gpus)
    starts = {start.job: start for start in plan.starts}
    back = {act.job: act for act in plan.resizes}
    stopped = {act.job for act in plan.preemptions}
    jobs = []
    for record in snapshot.jobs:
        if record.id in starts:
            start = starts[record.id]
            jobs.append(replace(_planned(record, start, snapshot.now_s), inside_guarantee=start.inside_guarantee))
        elif record.id in back:
            jobs.append(_planned(record, back[record.id], snapshot.now_s))
        elif record.id in stopped:
            jobs.append(_rest(record, taken))
        else:
            jobs.append(record)
    return replace(snapshot, jobs=tuple(jobs), reservations=tuple(r for r in reservations if r.job not in starts))


def _planned(record: JobRecord, act: Start | Resize, now_s: int) -> JobRecord:
    """The job at the size that it has there."""
    return replace(
        record,
        job=as_started(record, act.placement),
        state=JobState.PLANNED,
        attempt=act.attempt,
        placement=act.placement,
        planned_s=now_s,
    )


def _rest(record: JobRecord, taken: dict[HostId, set[int]]) -> JobRecord:
    """The victim on the cards that no start takes: those that may evict it may still do so, for it leaves anyhow."""
    workers = []
    for worker in record.placement.workers if record.placement is not None else ():
        left = tuple(index for index in worker.gpus if index not in taken.get(worker.host, ()))
        # Beside cards the host's amounts are the starts' now.
        if left:
            workers.append(replace(worker, gpus=left))
    return replace(record, placement=Placement(workers=tuple(workers)))
