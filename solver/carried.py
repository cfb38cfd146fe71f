"""The greedy over a fleet that is run forward: its books are carried along, and only what changed is looked at."""

from __future__ import annotations

from collections.abc import Iterable

from ..model.decision import Start
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .books import Books
from .claims import Claims
from .demand import candidates, placeable
from .greedy import in_order, worth
from .order import order
from .placing import Placer
from .pressure import Pressure

Shape = tuple[object, ...]


class Carried:
    """Decides as the greedy does in a very large round (one order), without reading the fleet anew each time.

    Must be told of all that leaves its hosts, in order; what it starts itself is booked already.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._policy = policy
        self._placer = Placer(snapshot, policy, Books(snapshot, policy.reserved))
        # What a maintenance window closes depends on the time, so there the placer's view cannot be carried along.
        self._windowed = any(host.windows for host in snapshot.hosts)
        self._taking = [host.id for host in snapshot.hosts if placeable(host)]

    def left(self, records: Iterable[JobRecord]) -> None:
        """These jobs have left their hosts."""
        for record in records:
            for worker in record.placement.workers if record.placement else ():
                self._placer.books.give(record.job, worker)

    def may_start(self, snapshot: Snapshot, waiting: Iterable[JobRecord]) -> bool:
        """Whether any of these gangs fits now: if none does alone, a round would start none."""
        if self._windowed:
            self._placer = Placer(snapshot, self._policy, self._placer.books)
        for record in {shape_of(record): record for record in waiting}.values():
            placement = self._placer.place(record)
            if placement is not None:
                self._placer.remove(record, placement)
                return True
        return False

    def decide(self, snapshot: Snapshot) -> tuple[Start, ...]:
        """The starts of a round over the snapshot, which must be what the books say."""
        waiting = candidates(snapshot)
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

        return in_order(waiting, order(snapshot, self._policy), worth, place, claims)


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
