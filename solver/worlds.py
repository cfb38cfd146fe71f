"""What-if worlds around a decision: without this round's starts, without running work, with all hosts ready.

A trial asks whether one waiting gang, changed or not, would be placed in such a world; nothing stays booked. What
victims free is free only to those who may use it; a gang that a guarantee may cover is tried inside it where it must
be, or where that gives it rights.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..model.decision import Preemption, Start
from ..model.host import Host
from ..model.ids import HostId, JobId, SiteId
from ..model.job import Job, Role
from ..model.placement import Placement
from ..model.policy import Policy, ReservedPool
from ..model.snapshot import JobRecord, Snapshot
from .books import Books
from .claims import Claims
from .demand import Confinement, allowed_sites, held_back, placeable, usable
from .empty_fleet import unheld
from .ranks import Ranks, rank
from .rights import only_inside
from .rivals import Rivals
from .unchecked import varied
from .widest import Work, grid_of
from .world import NOW, World
from .world_books import WorldBooks
from .world_view import Ground, Only, Spot, View
from .world_windows import Windows

__all__ = ["NOW", "World", "Worlds"]

_BUILT = 5
"""Work a host of building a world."""


class Worlds:
    """Trials against one decision, for gangs with the rights of one waiting job: `see` it before others are tried.

    `spent` is the work done so far, in units of about a microsecond: counted, so the same on every machine.
    """

    def __init__(
        self, snapshot: Snapshot, policy: Policy, starts: Sequence[Start], preemptions: Sequence[Preemption] = ()
    ) -> None:
        self._work = Work()
        self._rank = rank(3, inside=False)
        self._snapshot, self._policy, self._starts = snapshot, policy, starts
        gone = {act.job for act in preemptions}
        self._leaving = [record for record in snapshot.jobs if record.id in gone]
        self._staying = [record for record in snapshot.jobs if record.id not in gone and record.state.holds_capacity]
        self._waiting = [record for record in snapshot.jobs if not record.state.holds_capacity]
        self.held = held_back(snapshot)
        self._windows = Windows(snapshot, policy)
        self._unavailable = [host for host in snapshot.hosts if not placeable(host) or host.id in self.held]
        self._usable = {host.id for host in usable(snapshot)}
        self._unheld = unheld(snapshot)
        self._ranks = Ranks(snapshot)
        self._rivals = Rivals(snapshot, policy, self._staying, self._leaving)
        self._highest_leaving = max((self._ranks.bar(record) for record in self._leaving), default=-1)
        self._claims = Claims(snapshot)
        jobs = {record.id: record.job for record in snapshot.jobs}
        for start in starts:
            if start.inside_guarantee:
                self._claims.take(jobs[start.job], start.placement)
        self._books_of = WorldBooks(snapshot, policy, starts, self._leaving, self._rivals, self._ranks)
        self._grounds: dict[tuple[bool, bool], Ground] = {}
        self._views: dict[tuple[World, int], View] = {}
        self._offered = sorted({(host.path.site, gpu.gpu_type) for host in snapshot.hosts for gpu in host.gpus})
        self._accepted: dict[tuple[object, frozenset[SiteId]], list[tuple[SiteId, str]]] = {}
        self._allowed: dict[tuple[object, ...], frozenset[SiteId]] = {}
        self._known: dict[tuple[object, ...], Spot | None] = {}
        self._holding: dict[tuple[int, int], dict[HostId, list[int]]] = {}
        self._own: list[JobRecord] = []
        self._emptied: dict[tuple[JobId, ...], View] = {}
        self._seen: JobRecord | None = None
        self._enough: dict[World, bool] = {}

    @property
    def spent(self) -> int:
        """The work done so far."""
        return self._work.spent

    @property
    def now_s(self) -> int:
        """The time of the round, in seconds since the epoch."""
        return self._snapshot.now_s

    def see(self, record: JobRecord) -> None:
        """From now on trials are for gangs with the rights of that job."""
        if record is not self._seen:
            self._seen, self._enough = record, {}
            self._rank = max(rank(record.level, inside=inside) for inside in self._rivals.ways(record))
            self._own = self._rivals.own(record)

    def enough(self, record: JobRecord, world: World = NOW) -> bool:
        """Whether enough is free in that world on cards that the gang takes. It is seen then."""
        self.see(record)
        if world not in self._enough:
            ranks = (rank(record.level, inside=inside) for inside in self._rivals.ways(record))
            self._enough[world] = any(self.free(record.job, world, at) >= record.job.gpu_milli for at in ranks)
        return self._enough[world]

    def any_enough(self, record: JobRecord, world: World = NOW) -> bool:
        """Whether enough is free in that world on cards of any type at any site. It is seen then."""
        self.see(record)
        asked = record.job.gpu_milli
        # With other types it may have the rights of a gang inside a guarantee, which see more that is free.
        inside = self._rivals.borrowed or only_inside(record)
        return not asked or self.view(world, rank(record.level, inside=inside)).free_in_all >= asked

    def victims(self) -> list[JobRecord]:
        """Running jobs that the gang may evict, and that this round lets run."""
        victims = self._rivals.below(self._rank)[1]
        return [*victims, *self._own] if self._own else victims

    def lower(self) -> list[JobRecord]:
        """Jobs of lower levels, or on borrowed capacity that the gang may claim, that hold capacity and keep it."""
        return self._rivals.below(self._rank)[0]

    def protected(self) -> list[JobRecord]:
        """Those of them that the gang may not evict now."""
        protected = self._rivals.below(self._rank)[2]
        return [other for other in protected if other not in self._own] if self._own else protected

    def without_victims(self, record: JobRecord) -> bool:
        """Whether the gang would be placed if all had left that it may evict. It is seen then."""
        self.see(record)
        if not self._own:
            return self.could(record, World(no_victims=True))
        key = tuple(other.id for other in self._own)
        if key not in self._emptied:
            books = self._books_of(World(no_victims=True), self._rank)
            for other in self._own:
                for worker in other.placement.workers if other.placement else ():
                    books.give(other.job, worker)
            self._emptied[key] = View(self._ground(NOW), books, self._work)
        return self._emptied[key].could(record, self.sites(record.job), None, None)

    def covered(self, record: JobRecord) -> bool:
        """Whether the running job is inside a guarantee that the gang does not reach into."""
        bar = self._ranks.bar(record)
        return bar > 2 * record.level + 1 and bar >= self._rank and not self._reaches(record)

    def _reaches(self, record: JobRecord) -> bool:
        """Whether the running job is inside the guarantee of the gang that is seen, which has rights there."""
        return self._seen is not None and self._rivals.reaches(self._seen, record)

    def in_the_way(self, record: JobRecord, placement: Placement) -> list[JobRecord]:
        """The protected jobs that cannot stay where they are if the gang is placed there."""
        books = self.view(World(no_lower=True)).books
        taken = [(record.job, worker) for worker in placement.workers]
        for job, worker in taken:
            books.take(job, worker)
        found = []
        for other in self._beside(record, placement):
            workers = other.placement.workers if other.placement else ()
            if all(books.returns(other.job, worker) for worker in workers):
                for worker in workers:
                    books.take(other.job, worker)
                    taken.append((other.job, worker))
            else:
                found.append(other)
        for job, worker in taken:
            books.give(job, worker)
        return found

    def _beside(self, record: JobRecord, placement: Placement) -> list[JobRecord]:
        """The protected jobs that a limit, a label or a host may put in the way of the gang there, in their order."""
        protected = self.protected()
        ledger = self.view(World(no_lower=True)).books.ledger
        counted = ledger.limits(record.job, placement)
        key = self._rank, id(self._own) if self._own else 0
        if key not in self._holding:
            holding = self._holding[key] = {}
            for number, other in enumerate(protected):
                for name in other.placement.hosts if other.placement else ():
                    holding.setdefault(name, []).append(number)
        near = {number for name in placement.hosts for number in self._holding[key].get(name, ())}
        for number, other in enumerate(protected):
            if other.job.anti_affinity or (
                counted and other.placement and not counted.isdisjoint(ledger.limits(other.job, other.placement))
            ):
                near.add(number)
        return [protected[number] for number in sorted(near)]

    def _grain(self, world: World, at: int) -> int:
        """Ranks that find the same in that world have the same number."""
        return at if world.no_victims or world.no_lower else min(at, 1 + self._highest_leaving)

    def placement(self, record: JobRecord, world: World = NOW, within: Confinement | None = None) -> Placement | None:
        """Where the gang would be placed in that world, confined as it asks or as `within` says; None where nowhere."""
        spot = self.spot(record, world, within, whole=True)
        return None if spot is None else spot.placement

    def spot(
        self, record: JobRecord, world: World = NOW, within: Confinement | None = None, *, whole: bool = False
    ) -> Spot | None:
        """As `placement`; with ranks and cards only if `whole`, as choosing these takes longest."""
        ways = (self._spot(record, world, within, inside, whole) for inside in self._rivals.ways(record))
        return next((spot for spot in ways if spot is not None), None)

    def _spot(
        self, record: JobRecord, world: World, within: Confinement | None, inside: bool, whole: bool
    ) -> Spot | None:
        if not self._could(record, world, within, inside):
            return None
        at = rank(record.level, inside=inside)
        view = self.view(world, at)
        team = record.job.team if inside or view.books.ledger.limits_team(record.job.team) else None
        pooled, shape = view.books.ledger.pooled(record), view.placer.shape(record, within)
        key = shape, team, pooled, world, self._grain(world, at), inside, whole
        if key not in self._known:
            only = self._only(record.job, inside)
            placement = view.place(record, within, only) if whole else None
            told = None if placement is None else view.told(record.job, placement)
            self._known[key] = told if whole else view.spot(record, within, only)
        return self._known[key]

    def could(self, record: JobRecord, world: World = NOW, within: Confinement | None = None) -> bool:
        """Whether `placement` would find a place; cheaper, as none is chosen."""
        return any(self._could(record, world, within, inside) for inside in self._rivals.ways(record))

    def _could(self, record: JobRecord, world: World, within: Confinement | None, inside: bool) -> bool:
        job, view = record.job, self.view(world, rank(record.level, inside=inside))
        free = view.free
        if sum([free.get(pool, 0) for pool in self._pools(job)]) < job.gpu_milli:
            return False
        return view.could(record, self.sites(job), within, self._only(job, inside))

    def _only(self, job: Job, inside: bool) -> Only | None:
        return self._claims.covers(job) if inside else None

    def fits(self, record: JobRecord, job: Job, world: World = NOW, within: Confinement | None = None) -> bool:
        """Whether the gang with these demands instead would be placed in that world."""
        return self.could(varied(record, job=job), world, within)

    def free(self, job: Job, world: World = NOW, rank_: int | None = None) -> int:
        """milli-GPU free in that world on acceptable types of allowed sites; a card shared by another team counts."""
        free = self.view(world, rank_).free
        return sum([free.get(pool, 0) for pool in self._pools(job)])

    def most(self, job: Job, role: Role) -> int:
        """The most workers of the role, alone, that one domain of the layer in which the gang must stay takes now."""
        return self.view().most(job, role, self.sites(job))

    def _pools(self, job: Job) -> list[tuple[SiteId, str]]:
        """Sites with their GPU types that the gang accepts."""
        key = tuple([role.gpu_types for role in job.roles if role.request.gpu_milli]), self.sites(job)
        if key not in self._accepted:
            sites = key[1]
            roles = [role for role in job.roles if role.request.gpu_milli]
            self._accepted[key] = [
                (site, gpu_type)
                for site, gpu_type in self._offered
                if site in sites and any(role.throughput_milli(gpu_type) is not None for role in roles)
            ]
        return self._accepted[key]

    def sites(self, job: Job) -> frozenset[SiteId]:
        """The sites that the gang may run on."""
        key = job.sites, job.off_premises, job.tier
        if key not in self._allowed:
            self._allowed[key] = allowed_sites(job, self._snapshot, self._policy)
        return self._allowed[key]

    def heeds_team(self, record: JobRecord) -> bool:
        """Whether it matters which team's gang it is: it shares cards, or limits or guarantees count it."""
        shares = any(role.request.fractional for role in record.job.roles)
        counted = True in self._rivals.ways(record) or bool(self._rivals.own(record))
        return shares or counted or self.books.ledger.limits_team(record.job.team)

    def apart(self, record: JobRecord) -> tuple[object, ...]:
        """What keeps the gang off some hosts: its labels and the windows ahead, and for these how long it may take."""
        bar = self._ground(NOW).shapes.bar(record)
        return bar, self.over_s(record) if bar.hosts else 0

    def over_s(self, record: JobRecord) -> int:
        """When the gang is surely over if it starts now, in seconds since the epoch."""
        return self._windows.over_s(record)

    def windows(self, record: JobRecord, hosts: Collection[HostId]) -> list[tuple[int, HostId]]:
        """When those of these hosts enter maintenance that the gang may outlast, in seconds since the epoch."""
        return self._windows.entering(record, hosts)

    def kept_off_by_windows(self, record: JobRecord) -> bool:
        """Whether a window closes a host to the gang."""
        closed = self._ground(NOW).shapes.bar(record).hosts
        return bool(closed) and bool(self.windows(record, closed))

    def shorter_limits(self, record: JobRecord) -> list[int]:
        """Walltime limits, in seconds and rising, that just end before one of the windows closed to the gang."""
        return self._windows.shorter_limits(record, self._ground(NOW).shapes.bar(record).hosts)

    def hosts(self) -> tuple[Host, ...]:
        """All hosts of the fleet."""
        return self._snapshot.hosts

    def reserved(self) -> tuple[ReservedPool, ...]:
        """The reserved pools of the policy."""
        return self._policy.reserved

    def unavailable(self) -> list[Host]:
        """Hosts that take no work now, or are held for a gang that lost a host."""
        return self._unavailable

    def confinement(self, job: Job) -> Confinement:
        """The confinement that the gang's own demands give."""
        return self._ground(NOW).shapes.confinement(job)

    @property
    def books(self) -> Books:
        """The books of the round as it is, for the rights of the job that is seen."""
        return self.view().books

    def view(self, world: World = NOW, rank_: int | None = None) -> View:
        """That world, by default the round as it is, for the rights of a rank, by default those of the job seen."""
        rank_ = self._rank if rank_ is None else rank_
        at = (world, self._grain(world, rank_))
        view = self._views.get(at)
        if view is None:
            self._work.spent += _BUILT * len(self._snapshot.hosts)
            view = self._views[at] = View(self._ground(world), self._books_of(world, rank_), self._work)
        return view

    def _ground(self, world: World) -> Ground:
        key = world.all_hosts, world.no_windows
        if key not in self._grounds:
            hosts = self._books_of.well if world.all_hosts else self._snapshot.hosts
            taking = tuple(host for host in hosts if placeable(host) or host.id in self._usable)
            # Demands are derived from the real fleet, so that a lifted rule changes nothing else.
            demands = self._unheld if world.all_hosts else self._snapshot
            grid = grid_of(self._snapshot.hosts)
            self._grounds[key] = Ground(demands, self._policy, taking, grid, windows=not world.no_windows)
        return self._grounds[key]
