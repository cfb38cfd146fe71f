"""Preemption as greedy schedulers do it: gang by gang, running jobs of lower levels leave until the gang fits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ...model.ids import HostId
from ...model.placement import Placement, WorkerPlacement
from ...model.policy import Policy
from ...model.snapshot import JobRecord, Snapshot
from ...model.topology import Layer
from ...solver.demand import victims
from ...solver.evict_prices import Prices
from ...solver.placing import Placer
from ...solver.ranks import Placed, Ranks, rank
from ...solver.withheld import Hold, holds
from .claimed import Only

_HOSTS = 8
"""Hosts that are tried one by one for a gang that must stay on one host: those that look cheapest to clear."""

Accept = Callable[[JobRecord, Placement, Sequence[JobRecord]], bool]
"""Whether a gang may start there once these have left; a scheduler that holds reservations may say no."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to start a gang: where, and who leaves for it."""

    placement: Placement
    leaving: tuple[JobRecord, ...]


class Evictor:
    """Finds who leaves for a gang that does not fit, cheapest first; `begin` each level before its gangs.

    The rights are the rules': running jobs that the gang outranks (by a higher level, or inside its guarantee), that
    have run for the least time, were not evicted too often and may be preempted. That level 2 may stop inside work of
    its own guarantee is left out.

    Two ways are tried, as a careful engineer would write them: all jobs by rising price (their level, then GPU time
    lost) until the gang fits; and for a gang of one host the hosts that look cheapest to clear, as the Kubernetes
    scheduler does. In each, whoever is not needed goes back, the dearest first. The cheaper way wins.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, placer: Placer) -> None:
        possible = victims(snapshot, policy)
        self._placer, self._books = placer, placer.books
        self._prices = Prices(snapshot, policy, possible)
        self._possible = sorted(possible, key=self._price)
        self._ranks, self._rank = Ranks(snapshot), -1
        self._bars = {record.id: self._ranks.bar(record) for record in possible}
        self._only: Only = None
        self.chosen: list[JobRecord] = []
        self._starts: list[Placed] = []
        self._pool: list[JobRecord] = []
        self._held: dict[HostId, Hold] = {}
        self._hopeless: set[object] = set()

    def begin(self, level: int, inside: bool) -> None:
        """From now on gangs of that level come, inside guarantees or outside: what is not theirs is kept back."""
        if rank(level, inside=inside) == self._rank:
            return
        self._rank = rank(level, inside=inside)
        leaving = self._ranks.leaving(self.chosen)
        self._hold(-1)
        self._held = holds(self._rank, leaving, self._starts, self._books)
        self._hold(1)
        self._books.keep_back(self._rank, leaving, self._starts)
        gone = {record.id for record in self.chosen}
        self._pool = [r for r in self._possible if self._bars[r.id] < self._rank and r.id not in gone]
        self._hopeless = set()

    def started(self, record: JobRecord, placement: Placement) -> None:
        """A gang found room without anybody leaving."""
        self._starts.append((self._rank, record, placement))

    def start(self, record: JobRecord, only: Only = None, accept: Accept = lambda *_: True) -> Placement | None:
        """Books the gang where others leave for it; None, with nothing changed, where that is not possible.

        `only` says which GPU types it may take.
        """
        self._only = only
        key = (self._placer.shape(record), record.job.team)
        if not self._pool or key in self._hopeless:
            return None
        found = [way for pool in self._pools(record) if (way := self._way(record, pool)) is not None]
        for way in sorted(found, key=self._cost):
            self._release(way.leaving)
            for worker in way.placement.workers:
                self._books.take(record.job, worker)
            if accept(record, way.placement, way.leaving):
                self.chosen.extend(way.leaving)
                self._pool = [other for other in self._pool if other not in way.leaving]
                self._starts.append((self._rank, record, way.placement))
                return way.placement
            self._placer.remove(record, way.placement)
            self._restore(way.leaving)
        self._hopeless.add(key)
        return None

    def _price(self, victim: JobRecord) -> tuple[object, ...]:
        return self._prices.whole(victim)

    def _cost(self, way: Way) -> tuple[int, ...]:
        return self._prices.total(way.leaving)

    def _pools(self, record: JobRecord) -> Iterator[Sequence[JobRecord]]:
        """Sets of running jobs without which the gang may fit."""
        prefix = self._prefix(record, self._pool)
        if prefix:
            yield prefix
            if self._placer.confinement(record.job).required is Layer.HOST:
                yield from self._by_host(record)

    def _prefix(self, record: JobRecord, ranked: Sequence[JobRecord]) -> Sequence[JobRecord]:
        """The shortest beginning of the list without which the gang fits; empty where all of it would not do."""
        low, high = 0, len(ranked)
        if not self._fits_without(record, ranked):
            return ()
        while high - low > 1:
            middle = (low + high) // 2
            if self._fits_without(record, ranked[:middle]):
                high = middle
            else:
                low = middle
        return ranked[:high]

    def _by_host(self, record: JobRecord) -> Iterator[Sequence[JobRecord]]:
        """The jobs on each of the hosts that look cheapest to clear."""
        members: dict[HostId, list[JobRecord]] = defaultdict(list)
        for victim in self._pool:
            for name in victim.placement.hosts if victim.placement else ():
                members[name].append(victim)
        found = []
        for number, (name, there) in enumerate(members.items()):
            cards = self._books.hosts[name].cards.values()
            free = sum(max(0, card.milli) for card in cards if card.healthy)
            guess = self._prices.guess(there, record.job.gpu_milli - free)
            if guess is not None:
                found.append((guess, number, there))
        found.sort(key=lambda entry: entry[:2])
        yield from (there for _, _, there in found[:_HOSTS])

    def _fits_without(self, record: JobRecord, leaving: Sequence[JobRecord]) -> bool:
        self._release(leaving)
        placement = self._placer.place(record, only=self._only)
        if placement is not None:
            self._placer.remove(record, placement)
        self._restore(leaving)
        return placement is not None

    def _way(self, record: JobRecord, leaving: Sequence[JobRecord]) -> Way | None:
        """The gang started without these, of which all stay that can, the dearest first; nothing stays booked."""
        self._release(leaving)
        placement = self._placer.place(record, only=self._only)
        needed = list(leaving)
        if placement is not None:
            needed = [victim for victim in sorted(leaving, key=self._prices.whole)[::-1] if not self._returns(victim)]
            self._placer.remove(record, placement)
        self._restore(needed)
        return Way(placement, tuple(needed)) if placement is not None and needed else None

    def _release(self, leaving: Iterable[JobRecord]) -> None:
        for record in leaving:
            for worker in _workers(record):
                self._books.give(record.job, worker)

    def _restore(self, leaving: Iterable[JobRecord]) -> None:
        for record in leaving:
            for worker in _workers(record):
                self._books.take(record.job, worker)

    def _returns(self, record: JobRecord) -> bool:
        """Books the job back where it was if that is still free for it."""
        taken: list[WorkerPlacement] = []
        for worker in _workers(record):
            if not self._books.returns(record.job, worker):
                for other in taken:
                    self._books.give(record.job, other)
                return False
            self._books.take(record.job, worker)
            taken.append(worker)
        return True

    def _hold(self, sign: int) -> None:
        for name, hold in self._held.items():
            hold.book(self._books.own(name), sign)
            self._books.changed.append(name)


class SlurmEvictor(Evictor):
    """Slurm's choice of victims (manual pages "Preemption" and slurm.conf, PreemptType=preempt/qos).

    Candidates by rising priority of their QOS (the level), jobs on fewer nodes first, leave one after the other until
    the gang fits. Then the list is reordered as often as `reorder_count` (PreemptParameters, 1 by default) says: the
    one that made it fit goes to the front, to stop fewer jobs. What work they lose does not count.

    Deviation: who need not leave stays, as the rule of needless victims demands; Slurm stops all it took off the nodes
    that the gang gets.
    """

    reorder_count = 1

    def _price(self, victim: JobRecord) -> tuple[object, ...]:
        nodes = len(victim.placement.hosts) if victim.placement else 0
        return victim.level, nodes, victim.submitted_s, victim.id

    def _cost(self, way: Way) -> tuple[int, ...]:
        return (len(way.leaving),)

    def _pools(self, record: JobRecord) -> Iterator[Sequence[JobRecord]]:
        ranked = list(self._pool)
        for _ in range(self.reorder_count + 1):
            prefix = list(self._prefix(record, ranked))
            if not prefix:
                return
            yield prefix
            ranked = [prefix[-1], *prefix[:-1]]


def _workers(record: JobRecord) -> tuple[WorkerPlacement, ...]:
    return record.placement.workers if record.placement is not None else ()
