"""The greedy where hosts may be reserved: promises first, then the starving, then all others around their plans."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence

from ..model.decision import Start
from ..model.ids import HostId, JobId
from ..model.placement import Placement, WorkerPlacement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .claims import Claims
from .demand import CardKind, candidates
from .drain_starts import candidate_starts
from .drains import Promise, named, promises
from .evict_search import Search
from .greedy import Rank, in_order
from .guard import UNLIMITED, Guard
from .later_books import LaterBooks
from .order import Order
from .plan import Plan, assemble
from .reprieve import reprieve
from .reserved import Reserved
from .sizes import ways
from .verify_planned import Board, Placed, Planned
from .verify_promise import placement_faults


def standing_plan(snapshot: Snapshot, policy: Policy) -> Plan:
    """Nothing starts, and every promise stands that still can."""
    return assemble(snapshot, policy, (), (), standing(snapshot, policy))


def standing(snapshot: Snapshot, policy: Policy) -> list[Planned]:
    """The promises that can stand side by side as they were made, those of higher levels first."""
    plans: list[Planned] = []
    for promise in sorted(promises(snapshot, policy), key=lambda promise: -promise.level):
        plan = stand(promise, promise.start_s, snapshot, policy, plans)
        if plan is not None:
            plans.append(plan)
    return plans


def stand(
    promise: Promise,
    at_s: int,
    snapshot: Snapshot,
    policy: Policy,
    plans: list[Planned],
    coming: Collection[Placed] = (),
    gone: Collection[JobId] = (),
) -> Planned | None:
    """The promise's earlier placement at that time, on other cards of its hosts if need be; None where it cannot be."""
    plan = Planned(promise.record, promise.reservation.placement, at_s)
    if any(True for _ in placement_faults(plan, snapshot, policy)):
        return None
    board = Board(snapshot, policy, [plan, *plans], coming, gone)
    if any(True for each in (plan, *board.later(plan)) for _ in board.overfull(each)):
        return None
    placement = _on_free_cards(plan, board)
    return None if placement is None else Planned(plan.record, placement, at_s)


def _on_free_cards(plan: Planned, board: Board) -> Placement | None:
    """The placement with each card that others hold exchanged for a free one of its kind; None where there is none."""
    free = {name: board.free_cards(plan, name) for name in plan.placement.hosts}
    workers = list[WorkerPlacement]()
    kept: set[tuple[HostId, int]] = set()
    for worker in plan.placement.workers:
        for cards in free[worker.host].values():
            kept.update((worker.host, index) for index in worker.gpus if index in cards)
    for name, index in kept:
        for cards in free[name].values():
            if index in cards:
                cards.remove(index)
    for worker in plan.placement.workers:
        gpus = []
        for index in worker.gpus:
            if (worker.host, index) not in kept:
                gpu = board.hosts[worker.host].gpu(index)
                left = free[worker.host].get(CardKind.of(gpu), []) if gpu is not None else []
                if not left:
                    return None
                index = left.pop(0)
            gpus.append(index)
        workers.append(
            WorkerPlacement(role=worker.role, index=worker.index, host=worker.host, gpus=tuple(sorted(gpus)))
        )
    return Placement(workers=tuple(workers))


Known = dict[Hashable, tuple[int, Placement] | None]
"""The earliest start of a gang beside the same plans, starts and victims, which several searches of a round ask for."""


def drained_plan(
    snapshot: Snapshot,
    policy: Policy,
    possible: tuple[JobRecord, ...],
    numbers: Order,
    rank: Rank,
    known: Known,
    guard: Guard = UNLIMITED,
) -> tuple[Plan, bool]:
    """A plan with reservations: level by level what was promised, the starving, then all others by that rank.

    `possible` are the running jobs that may leave; whether the search had any leave is told too.
    """
    waiting = candidates(snapshot)
    search = Search(snapshot, policy, waiting, possible)
    drains = _Drains(snapshot, policy, search, known)
    starts = in_order(waiting, numbers, rank, drains.place, Claims(snapshot), drains.begin, guard=guard)
    chosen = [record.id for record in search.chosen]
    return reprieve(snapshot, policy, starts, chosen, drains.reserved.plans), bool(chosen)


def planned_around(snapshot: Snapshot, policy: Policy, starts: Sequence[Start], known: Known) -> Plan:
    """These starts, and plans for the named gangs beside them; promises that they break are planned anew."""
    drains = _Drains(snapshot, policy, Search(snapshot, policy, (), ()), known)
    drains.started(starts)
    return assemble(snapshot, policy, starts, (), drains.reserved.plans)


class _Drains:
    """Starts or plans the named gangs of a level when it begins, and places the others beside what is reserved."""

    def __init__(self, snapshot: Snapshot, policy: Policy, search: Search, known: Known) -> None:
        self._snapshot, self._policy, self._search, self._known = snapshot, policy, search, known
        self._named = named(snapshot, policy)
        self._promises = {promise.record.id: promise for promise in promises(snapshot, policy)}
        self._coming: list[Placed] = []
        self._claims = Claims(snapshot)
        self._started: dict[tuple[JobId, bool], Placement | None] = {}
        self._gone = 0
        self.reserved = Reserved(snapshot, policy)
        for plan in standing(snapshot, policy):
            self.reserved.add(plan)

    def begin(self, level: int, inside: bool) -> None:
        """The named gangs of the level start if they can, in their order; else they are planned as early as they can.

        First come starts inside guarantees; what these leave is planned with those outside.
        """
        self._search.begin(level, inside)
        for record in self._named:
            if record.level == level and inside in self._claims.ways(record) and not self._starts(record):
                own = self.reserved.drop(record.id)
                self._search.real.placer.pressure.leaves(record)
                self._started[record.id, inside] = self._start(record, inside)
                if not self._starts(record) and inside and own is not None:
                    self.reserved.add(own)
                elif not self._starts(record) and not inside:
                    self._plan(record, own)

    def _starts(self, record: JobRecord) -> bool:
        return any(self._started.get((record.id, inside)) is not None for inside in (True, False))

    def started(self, starts: Sequence[Start]) -> None:
        """These gangs start, and the named ones of all others are planned."""
        records = {record.id: record for record in self._snapshot.jobs}
        for start in starts:
            self.reserved.drop(start.job)
            everybody = [plan.record.id for plan in self.reserved.plans]
            self._took(records[start.job], start.placement, everybody)
        starting = {start.job for start in starts}
        for record in self._named:
            if record.id not in starting:
                self._plan(record, self.reserved.drop(record.id))

    def place(self, record: JobRecord, inside: bool) -> Placement | None:
        """Where the gang starts, inside its guarantee or outside; None where it waits."""
        if (record.id, inside) in self._started:
            return self._started[record.id, inside]
        self._search.real.placer.pressure.leaves(record)
        return self._start(record, inside)

    def _start(self, record: JobRecord, inside: bool) -> Placement | None:
        """First beside all plans, then, where it has to be, in place of plans of lower levels."""
        lower = frozenset(plan.record.id for plan in self.reserved.plans if self._rank(plan) < record.level)
        for without in (frozenset[JobId](), lower) if lower else (lower,):
            self._search.reserve(self.reserved.holds(record, without), self.reserved.limits(record, without))
            sized = ((way, self._claims.covers(way.job) if inside else None) for way in ways(record))
            found = (self._search.place(way, only) for way, only in sized)
            placement = next((there for there in found if there is not None), None)
            if placement is not None:
                if inside:
                    self._claims.take(record.job, placement)
                self._took(record, placement, without)
                return placement
        return None

    def _rank(self, plan: Planned) -> int:
        promise = self._promises.get(plan.record.id)
        return plan.record.level if promise is None else promise.level

    def _took(self, record: JobRecord, placement: Placement, without: Collection[JobId]) -> None:
        self._coming.append((record, placement))
        self._search.reserve({}, {})
        self.reserved.starts(record, placement)
        for victim in self._search.chosen[self._gone :]:
            self.reserved.leaves(victim)
        self._gone = len(self._search.chosen)
        taken = [plan for plan in self.reserved.plans if plan.record.id in without]
        for plan in sorted(taken, key=self._rank):
            board = Board(self._snapshot, self._policy, self.reserved.plans, self._coming, self._leaving)
            if any(True for family in (board.overfull, board.contested) for _ in family(plan)):
                self.reserved.drop(plan.record.id)

    @property
    def _leaving(self) -> list[JobId]:
        return [victim.id for victim in self._search.chosen]

    def _plan(self, record: JobRecord, own: Planned | None) -> None:
        """The earliest start that is found; on the hosts of the earlier plan where that is as early."""
        plans, promise = self.reserved.plans, self._promises.get(record.id)
        found = self._earliest(record)
        plan = None if found is None else Planned(record, found[1], found[0])
        if promise is not None:
            at_s = promise.start_s if plan is None else min(plan.at_s, promise.start_s)
            same = stand(promise, at_s, self._snapshot, self._policy, plans, self._coming, self._leaving)
            plan = same or plan
            if own is not None and (plan is None or plan.at_s > own.at_s):
                plan = own
        if plan is not None and self._fits(plan):
            self.reserved.add(plan)
        elif own is not None:
            self.reserved.add(own)

    def _earliest(self, record: JobRecord) -> tuple[int, Placement] | None:
        """The earliest start beside all that is decided so far."""
        plans = self.reserved.plans
        key = (
            record.id,
            frozenset(self._leaving),
            frozenset((other.id, placement) for other, placement in self._coming),
            frozenset((plan.record.id, plan.placement, plan.at_s) for plan in plans),
        )
        if key not in self._known:
            later = LaterBooks(
                self._snapshot, self._policy, record, gone=self._leaving, coming=self._coming, plans=plans
            )
            self._known[key] = later.earliest(candidate_starts(record, self._snapshot, self._policy))
        return self._known[key]

    def _fits(self, plan: Planned) -> bool:
        """Whether the plan leaves the others room, and keeps the rules itself."""
        board = Board(self._snapshot, self._policy, [plan, *self.reserved.plans], self._coming, self._leaving)
        crowded = any(True for each in (plan, *board.later(plan)) for _ in board.overfull(each))
        return not crowded and not any(True for _ in board.contested(plan))
