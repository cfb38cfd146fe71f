"""What-if worlds around a decision: without this round's starts, without running work, with all hosts ready.

A trial asks whether one waiting gang, changed or not, would be placed in such a world; nothing stays booked. What
victims free is free only to those who may use it; a gang that a guarantee may cover is tried inside it where it must
be, or where that gives it rights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.decision import Preemption, Start
from ..model.host import Host
from ..model.ids import HostId, SiteId
from ..model.job import Job
from ..model.placement import Placement
from ..model.policy import Policy, ReservedPool
from ..model.snapshot import JobRecord, Snapshot
from .books import Books
from .claims import Claims
from .demand import (
    Confinement,
    allowed_sites,
    ends_before,
    held_back,
    placeable,
    surely_over_s,
    usable,
)
from .empty_fleet import unheld, well
from .placing import Placer
from .ranks import Ranks, rank
from .rivals import Rivals
from .unchecked import unchecked, varied
from .withheld import holds
from .world import NOW, World

__all__ = ["NOW", "World", "Worlds"]


class Worlds:
    """Trials against one decision, for gangs with the rights of one waiting job: `see` it before others are tried.

    `spent` is the work done so far, in hosts looked at: the same on every machine.
    """

    def __init__(
        self, snapshot: Snapshot, policy: Policy, starts: Sequence[Start], preemptions: Sequence[Preemption] = ()
    ) -> None:
        self.spent = 0
        self._rank = rank(3, inside=False)
        self._snapshot, self._policy, self._starts = snapshot, policy, starts
        gone = {act.job for act in preemptions}
        self._leaving = [record for record in snapshot.jobs if record.id in gone]
        self._staying = [record for record in snapshot.jobs if record.id not in gone and record.state.holds_capacity]
        self._waiting = [record for record in snapshot.jobs if not record.state.holds_capacity]
        self.held = held_back(snapshot)
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
        self._placers: dict[tuple[World, int], Placer] = {}
        self._free: dict[tuple[World, int], dict[tuple[SiteId, str], int]] = {}
        self._offered = sorted({(host.path.site, gpu.gpu_type) for host in snapshot.hosts for gpu in host.gpus})
        self._accepted: dict[tuple[object, ...], list[tuple[SiteId, str]]] = {}
        self._known: dict[tuple[object, ...], Placement | None] = {}
        self._fitting: dict[tuple[object, ...], bool] = {}
        self._taking: dict[tuple[bool, bool], tuple[Host, ...]] = {}
        self._seen: JobRecord | None = None
        self._enough: dict[World, bool] = {}

    @property
    def now_s(self) -> int:
        """The time of the round, in seconds since the epoch."""
        return self._snapshot.now_s

    def see(self, record: JobRecord) -> None:
        """From now on trials are for gangs with the rights of that job."""
        if record is not self._seen:
            self._seen, self._enough = record, {}
            self._rank = max(rank(record.level, inside=inside) for inside in self._rivals.ways(record))

    def enough(self, record: JobRecord, world: World = NOW) -> bool:
        """Whether enough is free in that world on cards that the gang takes. It is seen then."""
        self.see(record)
        if world not in self._enough:
            ranks = (rank(record.level, inside=inside) for inside in self._rivals.ways(record))
            self._enough[world] = any(self.free(record.job, world, at) >= record.job.gpu_milli for at in ranks)
        return self._enough[world]

    def victims(self) -> list[JobRecord]:
        """Running jobs that the gang may evict, and that this round lets run."""
        return self._rivals.below(self._rank)[1]

    def lower(self) -> list[JobRecord]:
        """Jobs of lower levels, or on borrowed capacity that the gang may claim, that hold capacity and keep it."""
        return self._rivals.below(self._rank)[0]

    def protected(self) -> list[JobRecord]:
        """Those of them that the gang may not evict now."""
        return self._rivals.below(self._rank)[2]

    def covered(self, record: JobRecord) -> bool:
        """Whether the running job is inside a guarantee that the gang does not reach into."""
        bar = self._ranks.bar(record)
        return bar > 2 * record.level + 1 and bar >= self._rank

    def in_the_way(self, record: JobRecord, placement: Placement) -> list[JobRecord]:
        """The protected jobs that cannot stay where they are if the gang is placed there."""
        books, used = self.placer(World(no_lower=True)).books, set(placement.hosts)
        taken = [(record.job, worker) for worker in placement.workers]
        for job, worker in taken:
            books.take(job, worker)
        found = []
        counted = books.ledger.limits(record.job, placement)
        for other in self.protected():
            workers = other.placement.workers if other.placement else ()
            limits = books.ledger.limits(other.job, other.placement) if other.placement and counted else counted
            beside = other.job.anti_affinity or not counted.isdisjoint(limits)
            if beside or used.intersection(worker.host for worker in workers):
                if all(books.returns(other.job, worker) for worker in workers):
                    for worker in workers:
                        books.take(other.job, worker)
                        taken.append((other.job, worker))
                else:
                    found.append(other)
        for job, worker in taken:
            books.give(job, worker)
        return found

    def _grain(self, world: World, at: int) -> int:
        """Ranks that find the same in that world have the same number."""
        return at if world.no_victims or world.no_lower else min(at, 1 + self._highest_leaving)

    def placement(self, record: JobRecord, world: World = NOW, within: Confinement | None = None) -> Placement | None:
        """Where the gang would be placed in that world, confined as it asks or as `within` says; None where nowhere."""
        ways = (self._placed(record, world, within, inside) for inside in self._rivals.ways(record))
        return next((placement for placement in ways if placement is not None), None)

    def _placed(self, record: JobRecord, world: World, within: Confinement | None, inside: bool) -> Placement | None:
        if not self._could(record, world, within, inside):
            return None
        placer, key = self._trial(record, world, within, inside)
        if key not in self._known:
            placement = placer.place(record, within, self._claims.covers(record.job) if inside else None)
            if placement is not None:
                placer.remove(record, placement)
            self._known[key] = placement
        return self._known[key]

    def could(self, record: JobRecord, world: World = NOW, within: Confinement | None = None) -> bool:
        """Whether `placement` would find a place; cheaper, as none is chosen."""
        return any(self._could(record, world, within, inside) for inside in self._rivals.ways(record))

    def _could(self, record: JobRecord, world: World, within: Confinement | None, inside: bool) -> bool:
        if self.free(record.job, world, rank(record.level, inside=inside)) < record.job.gpu_milli:
            return False
        placer, key = self._trial(record, world, within, inside)
        if key not in self._fitting:
            # Counts of hosts are shared between requests, so that a trial looks at a part of them only.
            self.spent += len(self._snapshot.hosts) // 8
            self._fitting[key] = placer.could(record, within, self._claims.covers(record.job) if inside else None)
        return self._fitting[key]

    def _trial(
        self, record: JobRecord, world: World, within: Confinement | None, inside: bool
    ) -> tuple[Placer, tuple[object, ...]]:
        """The placer of that world for the gang's rank, and what trials with the same outcome have in common."""
        at = rank(record.level, inside=inside)
        placer = self.placer(world, at)
        team = record.job.team if inside or placer.books.ledger.limits_team(record.job.team) else None
        pooled = placer.books.ledger.pooled(record)
        return placer, (placer.shape(record, within), team, pooled, world, self._grain(world, at), inside)

    def fits(self, record: JobRecord, job: Job, world: World = NOW, within: Confinement | None = None) -> bool:
        """Whether the gang with these demands instead would be placed in that world."""
        return self.could(varied(record, job=job), world, within)

    def free(self, job: Job, world: World = NOW, rank_: int | None = None) -> int:
        """milli-GPU free in that world on acceptable types of allowed sites; a card shared by another team counts."""
        at = (world, self._grain(world, self._rank if rank_ is None else rank_))
        if at not in self._free:
            free: dict[tuple[SiteId, str], int] = {}
            placer = self.placer(world, rank_)
            for host in self._hosts(world):
                for card in placer.books.hosts[host.id].cards.values():
                    if card.healthy:
                        key = (host.path.site, card.kind.gpu_type)
                        free[key] = free.get(key, 0) + max(0, card.milli)
            self._free[at] = free
        return sum(self._free[at].get(pool, 0) for pool in self._pools(job))

    def _pools(self, job: Job) -> list[tuple[SiteId, str]]:
        """Sites with their GPU types that the gang accepts."""
        types = tuple(role.gpu_types for role in job.roles if role.request.gpu_milli)
        key = types, job.sites, job.off_premises, job.tier
        if key not in self._accepted:
            sites = self.sites(job)
            roles = [role for role in job.roles if role.request.gpu_milli]
            self._accepted[key] = [
                (site, gpu_type)
                for site, gpu_type in self._offered
                if site in sites and any(role.throughput_milli(gpu_type) is not None for role in roles)
            ]
        return self._accepted[key]

    def sites(self, job: Job) -> frozenset[SiteId]:
        """The sites that the gang may run on."""
        return allowed_sites(job, self._snapshot, self._policy)

    def heeds_team(self, record: JobRecord) -> bool:
        """Whether it matters which team's gang it is: it shares cards, or limits or guarantees count it."""
        shares = any(role.request.fractional for role in record.job.roles)
        return shares or True in self._rivals.ways(record) or self.placer().books.ledger.limits_team(record.job.team)

    def apart(self, record: JobRecord) -> tuple[object, ...]:
        """What keeps the gang off some hosts: its labels and the windows ahead, and for these how long it may take."""
        bar = self.placer().bar(record)
        return bar, self.over_s(record) if bar.hosts else 0

    def over_s(self, record: JobRecord) -> int:
        """When the gang is surely over if it starts now, in seconds since the epoch."""
        return surely_over_s(record, self._snapshot, self._policy)

    def windows(self, record: JobRecord, hosts: Iterable[HostId]) -> list[tuple[int, HostId]]:
        """When those of these hosts enter maintenance that the gang may outlast, in seconds since the epoch."""
        names, over_s = set(hosts), self.over_s(record)
        return sorted(
            (min(window.start_s for window in host.windows if window.end_s > self.now_s), host.id)
            for host in self._snapshot.hosts
            if host.id in names and not ends_before(host, self.now_s, over_s)
        )

    def shorter_limits(self, record: JobRecord) -> list[int]:
        """Walltime limits, in seconds and rising, that just end before one of the windows closed to the gang."""
        left = self.over_s(varied(record, job=varied(record.job, walltime_limit_s=1))) - 1
        gaps = {start_s - left for start_s, _ in self.windows(record, self.placer().bar(record).hosts)}
        return sorted({gap - gap % 60 if gap > 60 else gap for gap in gaps if gap > 0})

    def hosts(self) -> tuple[Host, ...]:
        """All hosts of the fleet."""
        return self._snapshot.hosts

    def reserved(self) -> tuple[ReservedPool, ...]:
        """The reserved pools of the policy."""
        return self._policy.reserved

    def unavailable(self) -> list[Host]:
        """Hosts that take no work now, or are held for a gang that lost a host."""
        return [host for host in self._snapshot.hosts if not placeable(host) or host.id in self.held]

    def _hosts(self, world: World) -> tuple[Host, ...]:
        key = world.all_hosts, world.no_windows
        if key not in self._taking:
            hosts = [well(host) for host in self._snapshot.hosts] if world.all_hosts else self._snapshot.hosts
            self._taking[key] = tuple(
                varied(host, windows=()) if world.no_windows and host.windows else host
                for host in hosts
                if placeable(host) or host.id in self._usable
            )
        return self._taking[key]

    def placer(self, world: World = NOW, rank_: int | None = None) -> Placer:
        """The placer of that world, to look at its rooms; by default for the rights of the job that is seen."""
        rank_ = self._rank if rank_ is None else rank_
        at = (world, self._grain(world, rank_))
        if at not in self._placers:
            books = self._books(world, rank_)
            if not world.no_running:
                self._book(books, world, rank_)
            # Demands are derived from the real fleet, so that a lifted rule changes nothing else.
            demands = self._unheld if world.all_hosts else self._snapshot
            self._placers[at] = Placer(demands, self._policy, books, hosts=self._hosts(world))
        return self._placers[at]

    def _books(self, world: World, at: int) -> Books:
        """The books of the jobs that run on in that world."""
        reserved = () if world.no_reserve else self._policy.reserved
        lower, leaving, _ = self._rivals.below(at)
        gone = lower if world.no_lower else leaving if world.no_victims else []
        if not (world.all_hosts or world.no_running or world.no_limits):
            # Most run on: those that do not are taken from the books that all share.
            books = Books(self._snapshot, reserved)
            for record in (*self._leaving, *gone):
                for worker in record.placement.workers if record.placement else ():
                    books.give(record.job, worker)
            return books
        names = {record.id for record in gone}
        # Those that wait hold nothing, but name layers with labels.
        running = (*(record for record in self._staying if record.id not in names), *self._waiting)
        teams, hosts = self._snapshot.teams, self._hosts(world) if world.all_hosts else self._snapshot.hosts
        if world.no_limits:
            teams = tuple(varied(team, limit=None) for team in teams)
        jobs = () if world.no_running else running
        return Books(unchecked(self._snapshot, hosts=hosts, jobs=jobs, teams=teams), reserved)

    def _book(self, books: Books, world: World, at: int) -> None:
        """Books the starts, and what the victims left over that the level must not use."""
        coming = self._ranks.coming(() if world.no_starts else self._starts, self._leaving)
        for _, record, placement in coming:
            for worker in placement.workers:
                books.take(record.job, worker)
        leaving = self._ranks.leaving(self._leaving)
        for name, hold in holds(at, leaving, coming, books).items():
            hold.book(books.own(name), 1)
            books.changed.append(name)
        books.keep_back(at, leaving, coming)
