"""Whether one more gang could start beside a decision: every place is tried, and the verifier judges it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, product

from brute_force import Option, seats

from phalanx.model.decision import RuleFamily, Start
from phalanx.model.placement import Placement
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.books import Books
from phalanx.solver.layout import lay_out
from phalanx.solver.plan import Plan, assemble
from phalanx.solver.verify import verify_starts
from phalanx.solver.verify_planned import Planned


def accepted(
    snapshot: Snapshot,
    policy: Policy,
    plan: Plan,
    record: JobRecord,
    placement: Placement,
    aside: Collection[RuleFamily] = (),
) -> bool:
    """Whether the verifier lets the gang, as `record` says it, start there beside the plan; families `aside` or not."""
    jobs = tuple(record if other.id == record.id else other for other in snapshot.jobs)
    after = replace(snapshot, jobs=jobs)
    records = {other.id: other for other in jobs}
    planned = [Planned(records[r.job], r.placement, r.planned_start_s) for r in plan.reservations if r.job != record.id]
    for inside in (False, True):
        start = Start(job=record.id, attempt=record.attempt + 1, placement=placement, inside_guarantee=inside)
        victims = [act.job for act in plan.preemptions]
        more = assemble(after, policy, (*plan.starts, start), victims, planned)
        found = verify_starts(after, policy, more.starts, more.preemptions, more.reservations)
        if all(violation.family in aside for violation in found):
            return True
    return False


def could_start(snapshot: Snapshot, policy: Policy, plan: Plan, record: JobRecord, most: int = 400) -> bool:
    """Whether some place is accepted; False beyond `most` places."""
    places = (p for p in _places(snapshot, plan, record, most))
    return any(accepted(snapshot, policy, plan, record, placement) for placement in places)


def _places(snapshot: Snapshot, plan: Plan, record: JobRecord, most: int) -> Iterator[Placement]:
    books, jobs = Books(snapshot), {other.id: other.job for other in snapshot.jobs}
    for act in plan.preemptions:
        leaving = next(other for other in snapshot.jobs if other.id == act.job)
        for worker in leaving.placement.workers if leaving.placement else ():
            books.give(leaving.job, worker)
    for start in plan.starts:
        for worker in start.placement.workers:
            books.take(jobs[start.job], worker)
    ways, total = [], 1
    for role in record.job.roles:
        of_role = [(role.name, way) for way in combinations_with_replacement(list(seats(role, snapshot)), role.count)]
        ways.append(of_role)
        total *= len(of_role)
    for way in product(*ways) if total <= most else ():
        option = Option(record, way, False)
        try:
            yield lay_out(record, option.counts, books, option.cards)
        except ValueError:
            continue
