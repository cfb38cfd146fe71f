"""Which running jobs should leave for one gang: a bounded search for those whose eviction costs least."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from ..model.ids import HostId, JobId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import allowed_sites
from .evict_prices import Prices, Way, steps
from .evict_world import World
from .options import Types
from .ranks import Placed, Ranks, rank
from .rooms import Path, depth
from .verify_allowed import Key
from .withheld import Hold, holds

_MOST_WORK = 400_000
"""Hosts x placings tried in one pass; beyond it the first way that is found is taken."""

_MOVED = 20
"""Work of moving one job out and back, in hosts looked at."""

_FEW = 12
"""Victims, or domains, of which each is tried alone."""

_MANY = 64
"""Possible victims up to which the search for a price limit is exact."""


class Search:
    """Places gangs level by level and remembers who leaves. `begin` a level before its gangs are placed."""

    def __init__(
        self, snapshot: Snapshot, policy: Policy, waiting: tuple[JobRecord, ...], possible: tuple[JobRecord, ...]
    ) -> None:
        self._snapshot, self._policy = snapshot, policy
        self.real = World(snapshot, policy, waiting)
        self.chosen: list[JobRecord] = []
        self._prices = Prices(snapshot, policy, possible)
        self._ranked = sorted(possible, key=self._prices.whole)
        self._steps = steps([record.level for record in self._ranked])
        self._pool: dict[JobId, JobRecord] = {}
        self._bearers: dict[object, list[JobRecord]] = {}
        self._ranks, self._rank = Ranks(snapshot), 0
        self._bars = {record.id: self._ranks.bar(record) for record in possible}
        self._marked: dict[JobId, set[object]] = {}
        self._worlds: dict[int, World] = {}
        self._starts: list[Placed] = []
        self._held: dict[HostId, Hold] = {}
        self._only: Callable[[Types], bool] | None = None
        self._reserved: dict[HostId, Hold] = {}
        self._withheld: dict[Key, int] = {}
        self._work_left = _MOST_WORK

    def begin(self, level: int, inside: bool) -> None:
        """From now on gangs of that level are placed: what victims left over that they may not evict is not theirs."""
        self._rank = rank(level, inside=inside)
        self.real.hold(self._held, -1)
        leaving = self._ranks.leaving(self.chosen)
        self._held = holds(self._rank, leaving, self._starts, self.real.books)
        self.real.hold(self._held, 1)
        self.real.books.keep_back(self._rank, leaving, self._starts)
        gone = {record.id for record in self.chosen}
        self._pool = {r.id: r for r in self._ranked if self._bars[r.id] < self._rank and r.id not in gone}
        self._bearers = {}
        for record in self._pool.values():
            for mark in self._marks(record):
                self._bearers.setdefault(mark, []).append(record)
        self._worlds = {}

    def reserve(self, kept: dict[HostId, Hold], limits: dict[Key, int]) -> None:
        """What is kept back for plans, of hosts and of limits, from the gangs placed now on; replaces what was."""
        if limits != self._withheld:
            self._withheld = limits
            for world in (self.real, *self._worlds.values()):
                world.books.ledger.withhold(limits)
        if kept is not self._reserved and (kept or self._reserved):
            for world in (self.real, *self._worlds.values()):
                world.hold(self._reserved, -1)
                world.hold(kept, 1)
            self._reserved = kept

    def place(self, record: JobRecord, only: Callable[[Types], bool] | None = None) -> Placement | None:
        """Starts the gang where there is room, or where those leave whose eviction costs least.

        `only` says which GPU types it may take.
        """
        self._only = only
        placement = self.real.placer.place(record, only=only)
        way = self._cheapest(record) if placement is None and self._pool else None
        if way is not None:
            self._evict(way.victims)
            self.real.take(record, way.placement)
            placement = way.placement
        if placement is not None:
            self._starts.append((self._rank, record, placement))
            for world in self._worlds.values():
                world.take(record, placement)
        return placement

    def _evict(self, leaving: Iterable[JobRecord]) -> None:
        for victim in leaving:
            self.chosen.append(victim)
            del self._pool[victim.id]
            for mark in self._marks(victim):
                self._bearers[mark] = [other for other in self._bearers[mark] if other.id != victim.id]
            for world in (self.real, *self._worlds.values()):
                world.release(victim)

    def _cheapest(self, record: JobRecord) -> Way | None:
        """The cheapest way found to start the gang; None where it would not fit without all who may leave."""
        self._work_left -= len(self._snapshot.hosts)
        if not self._world(len(self._ranked)).placer.could(record, only=self._only):
            return None
        best: Way | None = None
        for pool in self._pools(record):
            way = self._way(record, pool)
            if way is not None and (best is None or way.cost < best.cost):
                best = self._fewer(record, way)
            if best is not None and self._work_left < 0:
                break
        return best

    def _pools(self, record: JobRecord) -> Iterator[list[JobRecord]]:
        """Sets of running jobs without which the gang may fit."""
        yield from self._price_limits(record)
        everybody = self._among(self._world(len(self._ranked)), record)
        if everybody is not None:
            yield everybody
        if len(self._pool) <= _MANY:
            yield from self._thinned(record)
        # One that holds less than half of what the gang asks is seldom enough.
        large = (victim for victim in self._pool.values() if 2 * victim.job.gpu_milli >= record.job.gpu_milli)
        yield from islice(([victim] for victim in large), _FEW)
        yield from self._domains(record)

    def _price_limits(self, record: JobRecord) -> Iterator[list[JobRecord]]:
        """What the gang would take if all below some price had left, with as few such as possible."""
        if len(self._ranked) > _MANY:
            pools = (self._seen_in(size, record) for size in self._steps)
            yield from islice((pool for pool in pools if pool is not None), 1)
            return
        low, high = 0, len(self._ranked)
        while high - low > 1:
            size = (low + high) // 2
            pool = self._seen_in(size, record)
            if pool is None:
                low = size
            else:
                high = size
                yield pool

    def _thinned(self, record: JobRecord) -> Iterator[list[JobRecord]]:
        """All who may leave, less whom the gang can do without: the dearest first, or the dearest for a GPU."""
        real = self.real
        for key in (self._prices.whole, self._prices.per_gpu):
            pool = sorted(self._pool.values(), key=key, reverse=True)
            for victim in pool:
                real.release(victim)
            for victim in pool:
                real.restore(victim)
                self._work_left -= len(self._snapshot.hosts)
                if self._work_left < 0 or not real.fits(record, self._only):
                    real.release(victim)
            left = [victim for victim in pool if victim.id in real.gone]
            for victim in left:
                real.restore(victim)
            yield left

    def _seen_in(self, size: int, record: JobRecord) -> list[JobRecord] | None:
        """Who is on the hosts that the gang would take if the `size` cheapest had left; None where it would not fit."""
        self._work_left -= len(self._snapshot.hosts)
        return self._among(self._world(size), record)

    def _world(self, size: int) -> World:
        """The fleet without the `size` cheapest of those who may leave now."""
        world = self._worlds.get(size)
        if world is None:
            world = self._worlds[size] = World(self._snapshot, self._policy)
            for victim in (*self.chosen, *(r for r in self._ranked[:size] if r.id in self._pool)):
                world.release(victim)
            for _, other, taken in self._starts:
                world.take(other, taken)
            world.hold(self._held, 1)
            world.hold(self._reserved, 1)
            world.books.ledger.withhold(self._withheld)
            world.books.keep_back(self._rank, self._ranks.leaving(self.chosen), self._starts)
        return world

    def _among(self, world: World, record: JobRecord) -> list[JobRecord] | None:
        """Who has left that world of those on the hosts that the gang would take there; None where it would not fit."""
        marks = self._taken_in(world, record)
        if marks is None:
            return None
        marks |= self.real.books.ledger.tight_limits(record.job)
        return self._near(marks, lambda victim: victim.id in world.gone)

    def _taken_in(self, world: World, record: JobRecord) -> set[object] | None:
        """The hosts, and the domains of its labels, that the gang would take there; None where it would not fit."""
        if len(record.job.roles) == 1 and not record.job.anti_affinity:
            spot = world.placer.spot(record, only=self._only)
            return None if spot is None else {*spot[1]}
        placement = world.placer.place(record, only=self._only)
        if placement is None:
            return None
        world.placer.remove(record, placement)
        return {*placement.hosts, *self.real.books.ledger.places(record.job, placement)}

    def _marks(self, record: JobRecord) -> set[object]:
        """The hosts, limits and domains of its labels in which the running job may be in a gang's way."""
        known = self._marked.get(record.id)
        if known is None:
            job, placement, ledger = record.job, record.placement, self.real.books.ledger
            known = self._marked[record.id] = (
                set()
                if placement is None
                else {*placement.hosts, *ledger.limits(job, placement), *ledger.places(job, placement)}
            )
        return known

    def _near(self, marks: Iterable[object], wanted: Callable[[JobRecord], bool] = lambda _: True) -> list[JobRecord]:
        """Who may leave of those in the way there."""
        found = {r.id: r for mark in marks for r in self._bearers.get(mark, ()) if wanted(r)}
        return [found[name] for name in sorted(found)]

    def _domains(self, record: JobRecord) -> Iterator[list[JobRecord]]:
        """The jobs in each of the domains that look cheapest to clear."""
        self._work_left -= len(self._snapshot.hosts)
        placer = self.real.placer
        tree = placer.tree(allowed_sites(record.job, self._snapshot, self._policy))
        end = depth(placer.confinement(record.job).required)
        members: dict[Path, list[HostId]] = {}
        for name, path in tree.path.items():
            members.setdefault(path[:end], []).append(name)
        elsewhere = self.real.books.ledger.tight_limits(record.job)
        found = []
        for node, hosts in members.items():
            pool = self._near((*hosts, *elsewhere))
            if not pool:
                continue
            need = record.job.gpu_milli - sum(self._free_milli(name) for name in hosts)
            guess = self._prices.guess(pool, need)
            if guess is not None:
                found.append((guess, tree.rank[node], pool))
        found.sort(key=lambda entry: entry[:2])
        yield from (pool for _, _, pool in found[:_FEW])

    def _free_milli(self, name: HostId) -> int:
        book = self.real.books.hosts[name]
        return sum(max(0, card.milli) for card in book.cards.values() if card.healthy)

    def _way(self, record: JobRecord, pool: list[JobRecord]) -> Way | None:
        """The gang started without these jobs, of which all return that can, the dearest first; nothing is booked."""
        real = self.real
        self._work_left -= len(self._snapshot.hosts) + _MOVED * len(pool)
        for victim in pool:
            real.release(victim)
        placement = real.placer.place(record, only=self._only)
        kept = pool
        if placement is not None:
            dearest = sorted(pool, key=self._prices.whole, reverse=True)
            kept = [victim for victim in dearest if not real.returns(victim)]
            real.placer.remove(record, placement)
        for victim in kept:
            real.restore(victim)
        return None if placement is None else Way(self._prices.total(kept), placement, tuple(kept))

    def _fewer(self, record: JobRecord, way: Way) -> Way:
        """The way improved: the gang placed anew without one of its victims, the dearest first, while that works."""
        if len(way.victims) > _FEW:
            return way
        for victim in way.victims:
            if self._work_left > 0 and len(way.victims) > 1 and victim in way.victims:
                other = self._way(record, [v for v in way.victims if v.id != victim.id])
                if other is not None and other.cost < way.cost:
                    way = other
        return way
