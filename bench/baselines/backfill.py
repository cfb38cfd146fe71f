"""Backfilling: short work goes ahead where it delays no promise. EASY makes one, conservative one to each."""

from __future__ import annotations

from itertools import groupby

from ...model.decision import Decision, Start
from ...model.ids import JobId
from ...model.policy import Policy
from ...model.snapshot import JobRecord, Snapshot
from ...solver.claims import Claims
from .claimed import by_rights, outside_first, types_of
from .decision import decision_of, preempting, start_of
from .evictor import Evictor
from .fifo import by_level
from .planner import Planner
from .profile import Reservation


def easy(snapshot: Snapshot, policy: Policy) -> Decision:
    """EASY backfill (Lifka 1995; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001).

    The queue is served in order until its head does not fit. The head gets a reservation at the earliest time that the
    walltime limits of running work promise it room (the shadow time); any later job may start now if it has left by
    then or uses only what the head leaves over (the extra nodes).

    Deviations: the queue is by priority level, then submission, where the originals are pure FCFS. Nodes are hosts with
    cards, CPU, memory, sites and a topology, so the reservation names hosts, and what is left over is counted on each.
    Limits include launch, grace and cleaning, which the originals neglect.
    """
    starts = backfill(Planner(snapshot, policy), by_level(snapshot, policy), 1)
    return decision_of(snapshot, policy, starts)


def easy_preempt(snapshot: Snapshot, policy: Policy) -> Decision:
    """As `easy`, and a gang that does not fit first takes the place of running jobs of lower levels, cheapest first.

    Only where that cannot be, or would harm the head's reservation, it waits: as head with a reservation of its own.
    """
    planner = Planner(snapshot, policy)
    evictor = Evictor(snapshot, policy, planner.placer)
    starts = backfill(planner, by_level(snapshot, policy), 1, evictor)
    return preempting(snapshot, policy, starts, (victim.id for victim in evictor.chosen))


def backfill(planner: Planner, queue: list[JobRecord], depth: int, evictor: Evictor | None = None) -> list[Start]:
    """Starts in the order of the queue; the first `depth` gangs that do not fit are promised their earliest time.

    A gang that has no time at all, even when all running work has left, is promised nothing and blocks nobody. With an
    `evictor`, which needs a queue by falling level, running jobs leave for what does not fit.
    """
    starts, claims, promised = dict[JobId, Start](), Claims(planner.snapshot), 0
    for record, inside in outside_first(queue, claims) if evictor is None else by_rights(queue, claims):
        if record.id in starts:
            continue
        only = types_of(record, inside, claims)
        if evictor is not None:
            evictor.begin(record.level, inside)
        placement = planner.start(record, only)
        if placement is not None and evictor is not None:
            evictor.started(record, placement)
        elif evictor is not None:
            placement = evictor.start(record, only, planner.start_without)
        if placement is not None:
            starts[record.id] = start_of(record, placement, inside)
            if inside:
                claims.take(record.job, placement)
        elif promised < depth and inside is (False not in claims.ways(record)):
            # The last way in which the gang may start has failed too.
            promise = planner.earliest(record)
            promised += promise is not None and planner.keep(promise) is not None
    return list(starts.values())


class Conservative:
    """Conservative backfill (Mu'alem and Feitelson, IEEE TPDS 12(6), 2001; Feitelson and Weil, IPPS 1998).

    Each waiting job has a reservation from the round it is first seen in, and a job starts early only where it delays
    none. When work ends before its limit the schedule is compressed: in the order of the queue each job is taken out
    and put back at the earliest time, which is never later than the one it had.

    Deviations: a level's promises hold against its own and lower levels; a job of a higher level may break them, as
    one that arrives first would have. Limits include launch, grace and cleaning. Times are exact while the schedule
    has at most about a hundred different ones, and else rounded up to a grid of 1 min near now to 12 h far ahead, so a
    promise may then slip within a step. At most `depth` jobs hold a reservation, the others only backfill. A promise
    is dropped and made anew where hosts were lost or work ran past its limit.
    """

    def __init__(self, depth: int = 1_000) -> None:
        self._depth = depth
        self._promises: dict[JobId, Reservation] = {}
        self._kinds: tuple[object, ...] = ()

    def __call__(self, snapshot: Snapshot, policy: Policy) -> Decision:
        """One round."""
        planner = Planner(snapshot, policy, monotone=False)
        if planner.profile.kinds != self._kinds:
            self._promises, self._kinds = {}, planner.profile.kinds
        starts, made = list[Start](), dict[JobId, Reservation]()
        claims = Claims(snapshot)
        for _, level in groupby(by_level(snapshot, policy), key=lambda record: record.level):
            starts.extend(self._level(planner, list(level), claims, made))
        self._promises = made
        return decision_of(snapshot, policy, starts)

    @property
    def promises(self) -> dict[JobId, int]:
        """The promised start of each waiting job after the last round, in seconds since the epoch."""
        return {name: promise.start_s for name, promise in self._promises.items()}

    def _level(
        self, planner: Planner, queue: list[JobRecord], claims: Claims, made: dict[JobId, Reservation]
    ) -> list[Start]:
        """Serves the gangs of one level, given that those above hold their reservations."""
        held = {}
        for record in queue:
            promise = self._promises.get(record.id)
            kept = None if promise is None else planner.keep(promise)
            if kept is not None:
                held[record.id] = kept
        starts = []
        for record, inside in outside_first(queue, claims):
            old = held.get(record.id)
            if old is not None:
                planner.release(old)
            placement = planner.start(record, types_of(record, inside, claims))
            if placement is not None:
                starts.append(start_of(record, placement, inside))
                if inside:
                    claims.take(record.job, placement)
                continue
            new = old
            if old is not None or len(made) < self._depth:
                new = planner.earliest(record, None if old is None else old.start_s) or old
            kept = None if new is None else planner.keep(new)
            if kept is not None:
                made[record.id] = kept
        return starts
