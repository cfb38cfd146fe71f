"""The fleet as it would be if all left and all were well: what can never start there can never start at all.

What reserved pools keep for tiers 1 and 2 is kept from level 1 here too: no wait opens it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from ..model.host import MILLI, Host, HostState
from ..model.ids import SiteId
from ..model.job import Job, Role
from ..model.policy import Policy, ReservedPool
from ..model.snapshot import JobRecord, Snapshot
from ..model.topology import Layer
from .bars import OPEN, Bar
from .books import Books
from .confinements import offer
from .demand import allowed_sites
from .placing import Placer
from .rooms import ANY_NUMBER, Path, depth
from .unchecked import unchecked, varied
from .widest import Widest, Work, grid_of

_HOST = depth(Layer.HOST)


def well(host: Host) -> Host:
    """The host ready for work, with no card broken."""
    whole = all(gpu.healthy for gpu in host.gpus)
    if whole and host.state is HostState.READY and not host.spare:
        return host
    gpus = host.gpus if whole else tuple(gpu if gpu.healthy else varied(gpu, healthy=True) for gpu in host.gpus)
    return varied(host, state=HostState.READY, spare=False, gpus=gpus)


def unheld(snapshot: Snapshot) -> Snapshot:
    """The snapshot with no host held for a gang that lost one."""
    if not any(record.replacing for record in snapshot.jobs):
        return snapshot
    jobs = tuple(replace(record, replacing=()) if record.replacing else record for record in snapshot.jobs)
    return unchecked(snapshot, jobs=jobs)


class EmptyFleet:
    """Every host of the snapshot ready, whole and empty; without its maintenance windows unless `windows`."""

    def __init__(self, snapshot: Snapshot, policy: Policy, *, windows: bool = False) -> None:
        hosts = tuple(map(well, snapshot.hosts))
        if not windows:
            hosts = tuple(varied(host, windows=()) if host.windows else host for host in hosts)
        self._windows = windows
        self.snapshot = unchecked(snapshot, hosts=hosts, jobs=(), reservations=())
        self.policy = policy
        self._left = self._beside_pools(policy.reserved)
        self.site_at = {host.path.domain(Layer.SITE, host.id): host.path.site for host in hosts}
        self._domains: dict[tuple[int, frozenset[SiteId]], list[Path]] = {}
        self._grid_hosts = snapshot.hosts

    @cached_property
    def placer(self) -> Placer:
        """Places gangs there."""
        return Placer(self.snapshot, self.policy, Books(self.snapshot, self.policy.reserved))

    @cached_property
    def _widest(self) -> Widest:
        return Widest(grid_of(self._grid_hosts), self.placer.books, Work())

    def _beside_pools(self, pools: Iterable[ReservedPool]) -> dict[tuple[SiteId, str], int]:
        """What each reserved pool leaves to level 1 in milli-GPU, by site and GPU type."""
        left = {(pool.site, pool.gpu_type): -pool.gpu_milli for pool in pools}
        for host in self.snapshot.hosts if left else ():
            for gpu in host.gpus:
                if (host.path.site, gpu.gpu_type) in left:
                    left[host.path.site, gpu.gpu_type] += MILLI
        return left

    def left(self, site: SiteId, gpu_type: str | None) -> int | None:
        """milli-GPU of the type that pools leave to level 1 at the site, 0 or more; None where none keeps any."""
        left = self._left.get((site, gpu_type or ""))
        return None if left is None else max(0, left)

    def pooled(self, record: JobRecord) -> bool:
        """Whether reserved pools keep anything from the job."""
        return bool(self._left) and record.level == 1

    def fits(self, record: JobRecord) -> bool:
        """Whether the gang is placed there, within the limits of its team and beside the reserved pools.

        Exact for gangs of one role; may miss a place for one of several.
        """
        job = record.job
        if len(job.roles) == 1:
            role = job.roles[0]
            return any(self._most(record, role, name) >= role.count for name in self.placer.types(role))
        placement = self.placer.place(record)
        if placement is not None:
            self.placer.remove(record, placement)
        return placement is not None

    def _most(self, record: JobRecord, role: Role, gpu_type: str | None) -> int:
        """The most workers of the gang's only role that may run on that type."""
        job = record.job
        end, sites = self._end(job), self.sites(job)
        if not self.pooled(record):
            return self._capped(job, role, gpu_type, self._widest_at(job, role, gpu_type, sites, end))
        # Pools leave so much at each site; a gang that is confined to none takes of all.
        rooms = [
            self._kept(record, role, site, gpu_type, self._widest_at(job, role, gpu_type, frozenset((site,)), end or 1))
            for site in sites
        ]
        return self._capped(job, role, gpu_type, max(rooms, default=0) if end else sum(rooms))

    def _end(self, job: Job) -> int:
        """The length of the path to the domains of which the gang must choose one."""
        return depth(self.placer.confinement(job).required)

    def _widest_at(self, job: Job, role: Role, gpu_type: str | None, sites: frozenset[SiteId], end: int) -> int:
        """The most workers of the role, alone, that one domain at the sites holds on that type."""
        if end == _HOST and not self._windows:
            books, request = self.placer.books.hosts, role.request
            return max(
                (
                    books[host.id].room(request, job.team, gpu_type, ANY_NUMBER)
                    for (site, _), host in self._alike.items()
                    if site in sites
                ),
                default=0,
            )
        tensor = role.parallelism.tensor if role.parallelism else 1
        return self._widest.most(role.request, job.team, gpu_type, sites, self._closed(job), tensor, end)

    def _kept(self, record: JobRecord, role: Role, site: SiteId, gpu_type: str | None, workers: int) -> int:
        """That many workers at the site, or as many whole groups as reserved pools leave room for."""
        left = self.left(site, gpu_type) if self.pooled(record) else None
        if left is None:
            return workers
        group = role.parallelism.tensor if role.parallelism else 1
        return min(workers, left // role.request.gpu_milli // group * group)

    def room(self, job: Job, role: Role, *, anywhere: bool = False) -> int:
        """The most workers of the role, alone, that one of the gang's domains, or the fleet, holds on one type."""
        end, sites = 0 if anywhere else self._end(job), self.sites(job)
        rooms = (self._widest_at(job, role, name, sites, end) for name in self.placer.types(role))
        return max(rooms, default=0)

    def roomy(self, job: Job, role: Role) -> list[str | None]:
        """The types on which one of the gang's domains holds the role, alone."""
        end, sites = self._end(job), self.sites(job)
        types = self.placer.types(role)
        return [name for name in types if self._widest_at(job, role, name, sites, end) >= role.count]

    def room_on(self, job: Job, role: Role, gpu_type: str | None, domains: Iterable[Path]) -> int:
        """The most workers of the role, alone, that one of the domains holds on that type (None: without GPUs)."""
        rooms = self.placer.rooms(role, job.team, gpu_type, self.sites(job), self._closed(job))
        return max((rooms[node] for node in domains), default=0)

    def _closed(self, job: Job) -> Bar:
        """What keeps the gang off hosts: only windows, as there is nobody to keep away from."""
        return Bar(hosts=self.placer.bar(JobRecord(job=job, submitted_s=0)).hosts) if self._windows else OPEN

    def _capped(self, job: Job, role: Role, gpu_type: str | None, workers: int) -> int:
        """That many workers, or as many as the limits of the team allow on the type."""
        limit = None if gpu_type is None else self.placer.books.ledger.least_limit(job.team, gpu_type)
        return workers if limit is None else min(workers, limit // role.request.gpu_milli)

    def sites(self, job: Job) -> frozenset[SiteId]:
        """The sites that the gang may run on."""
        return allowed_sites(job, self.snapshot, self.policy)

    def hosts(self, job: Job) -> list[Host]:
        """The hosts of these sites."""
        sites = self.sites(job)
        return [host for host in self.snapshot.hosts if host.path.site in sites]

    def kinds_of_hosts(self, job: Job) -> list[Host]:
        """As `hosts`, but of those that offer the same at one site only one."""
        sites = self.sites(job)
        return [host for (site, _), host in self._alike.items() if site in sites]

    @cached_property
    def _alike(self) -> dict[tuple[object, ...], Host]:
        return {(host.path.site, offer(host)): host for host in self.snapshot.hosts}

    def domains(self, job: Job) -> list[Path]:
        """The domains of which the gang must choose one."""
        key = depth(self.placer.confinement(job).required), self.sites(job)
        if key not in self._domains:
            self._domains[key] = [node for node in self.placer.tree(key[1]).rank if len(node) == key[0]]
        return self._domains[key]
