"""Whether the earlier plan of a gang could still stand, and if not, whether a higher level is what takes it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum

from ..model.decision import Preemption, Resize, RuleFamily, Start
from ..model.ids import JobId
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import Snapshot
from .drains import Promise, promises
from .unchecked import unchecked
from .verify_gang import complete, gang, topology
from .verify_hosts import card_counts, eligibility
from .verify_planned import Board, Placed, Planned
from .violation import Violation


class Hindrance(StrEnum):
    """What keeps an earlier plan from standing: nothing, hosts or work, or only what higher levels take."""

    NOTHING = ""
    FLEET = "hosts lost, work overrunning or a limit lowered"
    HIGHER = "a higher level"


class Standing:
    """How the promises of a round stand beside its starts, preemptions and reservations."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        starts: Sequence[Start],
        preemptions: Sequence[Preemption],
        reservations: Sequence[Reservation],
        resizes: Sequence[Resize] = (),
    ) -> None:
        self._snapshot, self._policy = snapshot, policy
        records = self._records = {record.id: record for record in snapshot.jobs}
        self._starting: list[Placed] = [(records[s.job], s.placement) for s in starts if s.job in records]
        self._plans = {r.job: r for r in reversed(reservations) if r.job in records}
        self._served = {act.job: act.beneficiaries for act in preemptions}
        for back in resizes:
            self._served[back.job] = tuple(start.job for start in starts if back.job in start.after)
        self.promises = promises(snapshot, policy)

    def kept(self, promise: Promise) -> bool:
        """Whether the gang starts, or is planned not later than promised."""
        if any(record.id == promise.record.id for record, _ in self._starting):
            return True
        plan = self._plans.get(promise.record.id)
        return plan is not None and plan.planned_start_s <= promise.start_s

    def hindrance(self, promise: Promise) -> Hindrance:
        """What makes the earlier placement break a rule at the promised time; starts of its level and below do not."""
        earlier = Planned(promise.record, promise.reservation.placement, promise.start_s)
        if any(True for _ in placement_faults(earlier, self._snapshot, self._policy)):
            return Hindrance.FLEET
        level, own = promise.record.level, promise.record.id
        kept = {other.record.id for other in self.promises if other.record.level <= level and self.kept(other)} - {own}
        if self._collides(earlier, kept):
            return Hindrance.FLEET
        acting = {record.id for record, _ in self._starting} | set(self._plans)
        above = {job for job in acting if self._records[job].level > level}
        return Hindrance.HIGHER if self._collides(earlier, kept | above) else Hindrance.NOTHING

    def _collides(self, earlier: Planned, beside: Collection[JobId]) -> bool:
        """Whether the earlier plan, on whichever cards of its kinds, does not fit, or makes a later plan not fit.

        Of the decision counts what it starts and plans for the jobs `beside`, and who leaves for these starts.
        """
        coming = [(record, placement) for record, placement in self._starting if record.id in beside]
        starting = {record.id for record, _ in coming}
        gone = [job for job, served in self._served.items() if starting.intersection(served)]
        others = [
            Planned(self._records[plan.job], plan.placement, plan.planned_start_s)
            for plan in self._plans.values()
            if plan.job in beside
        ]
        board = Board(self._snapshot, self._policy, [earlier, *others], coming, gone)
        crowded = any(True for plan in (earlier, *board.later(earlier)) for _ in board.overfull(plan))
        return crowded or board.lacks_cards(earlier)


def placement_faults(plan: Planned, snapshot: Snapshot, policy: Policy) -> Iterator[Violation]:
    """What is wrong with a planned placement itself: of the gang, its hosts and cards, their windows, its domains."""
    # Spares, and hosts held for gangs that lost one, are a matter of now.
    record = replace(plan.record, replacing=(), replacing_until_s=0)
    later = unchecked(snapshot, now_s=plan.at_s, jobs=(record,), reservations=())
    start = Start(job=plan.record.id, attempt=plan.record.attempt + 1, placement=plan.placement)
    for family in (gang, eligibility, topology):
        for fault in family(later, policy, (start,)):
            yield replace(fault, family=RuleFamily.RESERVATION, message=f"in the plan for it, {fault.message}")
    for fault in complete(plan.record.job, plan.placement) if plan.record.job.elastic else ():
        yield replace(fault, family=RuleFamily.RESERVATION, message=f"in the plan for it, {fault.message}")
    for fault in card_counts(plan.record.job, plan.placement):
        yield replace(fault, family=RuleFamily.RESERVATION, message=f"in the plan for it, {fault.message}")
