"""The greedy over a fleet that is run forward: its books are carried along, and only what changed is looked at."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..model.decision import Start
from ..model.host import Host
from ..model.ids import HostId, JobId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .books import Books
from .claims import Claims
from .demand import candidates, placeable, usable
from .greedy import in_order, worth
from .order import order
from .placing import Placer
from .pressure import Pressure

Shape = tuple[object, ...]


class Carried:
    """Decides as the greedy does in a very large round (one order), without reading the fleet anew each time.

    Reserved hosts take nothing else until their gang starts, at the latest when it is planned to. Must be told of all
    that leaves its hosts, in order; what it starts itself is booked already.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._policy = policy
        self._reserved: frozenset[HostId] = frozenset()
        self._placer = Placer(snapshot, policy, Books(snapshot, policy.reserved))
        # What windows close and what is held for who lost a host depend on the time: no view of these can be carried.
        held = any(record.replacing for record in snapshot.jobs)
        self._windowed = held or any(host.windows for host in snapshot.hosts)
        self._taking = [host.id for host in snapshot.hosts if placeable(host)]
        self._hosts: tuple[Host, ...] = ()
        self._heeded_s = -1
        self._heed(snapshot)

    def left(self, records: Iterable[JobRecord]) -> None:
        """These jobs have left their hosts."""
        for record in records:
            for worker in record.placement.workers if record.placement else ():
                self._placer.books.give(record.job, worker)

    def may_start(self, snapshot: Snapshot, waiting: Iterable[JobRecord]) -> bool:
        """Whether any of these gangs fits now: if none does alone, a round would start none."""
        self._heed(snapshot)
        if any(plan.planned_start_s <= snapshot.now_s for plan in snapshot.reservations):
            return True
        for record in {shape_of(record): record for record in waiting}.values():
            placement = self._placer.place(record)
            if placement is not None:
                self._placer.remove(record, placement)
                return True
        return False

    def decide(self, snapshot: Snapshot) -> tuple[Start, ...]:
        """The starts of a round over the snapshot, which must be what the books say."""
        due = self._due(snapshot)
        begun = {start.job for start in due}
        waiting = tuple(record for record in candidates(snapshot) if record.id not in begun)
        self._heed(snapshot, begun)
        placer = self._placer
        placer.pressure = Pressure((placer.books.hosts[name] for name in self._taking), waiting)
        full: set[Shape] = set()
        claims = Claims(snapshot)

        def place(record: JobRecord, inside: bool) -> Placement | None:
            placer.pressure.leaves(record)
            shape = shape_of(record)
            if shape in full:
                return None
            if inside:
                return placer.place(record, only=claims.covers(record.job))
            placement = placer.place(record)
            # Within a round room only shrinks, so a gang of one role that found none leaves none for its like.
            if placement is None and len(record.job.roles) == 1:
                full.add(shape)
            return placement

        return (*due, *in_order(waiting, order(snapshot, self._policy), worth, place, claims))

    def _due(self, snapshot: Snapshot) -> tuple[Start, ...]:
        """The gangs that are planned to start by now, where all hosts together have room for them."""
        due = [plan.job for plan in snapshot.reservations if plan.planned_start_s <= snapshot.now_s]
        waiting = {record.id: record for record in candidates(snapshot)} if due else {}
        placer = Placer(snapshot, self._policy, self._placer.books) if due else self._placer
        starts = []
        for record in (waiting[job] for job in due if job in waiting):
            placement = placer.place(record)
            if placement is not None:
                starts.append(Start(job=record.id, attempt=record.attempt + 1, placement=placement))
        return tuple(starts)

    def _heed(self, snapshot: Snapshot, begun: Collection[JobId] = ()) -> None:
        """Looks anew at what may be used where time has changed that: plans come to their end, windows close hosts."""
        plans = [plan for plan in snapshot.reservations if plan.job not in begun]
        reserved = frozenset(host for plan in plans for host in plan.placement.hosts)
        if reserved == self._reserved and (not self._windowed or snapshot.now_s == self._heeded_s):
            return
        self._reserved, self._heeded_s = reserved, snapshot.now_s
        hosts = tuple(host for host in usable(snapshot) if host.id not in reserved)
        # What lasts of some hosts is remembered for the very same tuple of them.
        self._hosts = self._hosts if hosts == self._hosts else hosts
        self._placer = Placer(snapshot, self._policy, self._placer.books, hosts=self._hosts)
        self._taking = [host.id for host in snapshot.hosts if placeable(host) and host.id not in reserved]


def shape_of(record: JobRecord) -> Shape:
    """What decides where a gang may go; gangs of equal shape fit in the same places."""
    job = record.job
    # A window closes hosts to gangs that last too long, so limits tell gangs apart.
    return (
        job.roles,
        job.topology,
        job.cross_site,
        job.off_premises,
        job.sites,
        job.tier <= 2,
        job.team,
        job.anti_affinity,
        record.level,
        job.walltime_limit_s,
    )
