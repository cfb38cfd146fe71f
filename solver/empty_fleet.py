"""The fleet as it would be if all left and all were well: what can never start there can never start at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..model.host import Host, HostState
from ..model.ids import SiteId
from ..model.job import Job, Role
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .books import Books
from .demand import allowed_sites
from .placing import Placer
from .rooms import Path, depth


def well(host: Host) -> Host:
    """The host ready for work, with no card broken."""
    gpus = tuple(gpu if gpu.healthy else replace(gpu, healthy=True) for gpu in host.gpus)
    return replace(host, state=HostState.READY, spare=False, gpus=gpus)


class EmptyFleet:
    """Every host of the snapshot ready, whole and empty."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        hosts = tuple(well(host) for host in snapshot.hosts)
        self.snapshot = replace(snapshot, hosts=hosts, jobs=(), reservations=())
        self.policy = policy
        self.placer = Placer(self.snapshot, policy, Books(self.snapshot))

    def fits(self, job: Job) -> bool:
        """Whether the gang is placed there. Exact for gangs of one role; may miss a place for one of several."""
        if len(job.roles) == 1:
            return self.room(job, job.roles[0]) >= job.roles[0].count
        record = JobRecord(job=job, submitted_s=0)
        placement = self.placer.place(record)
        if placement is not None:
            self.placer.remove(record, placement)
        return placement is not None

    def room(self, job: Job, role: Role, domains: Iterable[Path] | None = None) -> int:
        """The most workers of the role, alone, that one of the domains holds on one type; by default the gang's own."""
        sites, nodes = self.sites(job), list(self.domains(job) if domains is None else domains)
        most = 0
        for gpu_type in self.placer.types(role):
            rooms = self.placer.rooms(role, job.team, gpu_type, sites)
            most = max([most, *(rooms[node] for node in nodes)])
        return most

    def sites(self, job: Job) -> frozenset[SiteId]:
        """The sites that the gang may run on."""
        return allowed_sites(job, self.snapshot, self.policy)

    def hosts(self, job: Job) -> list[Host]:
        """The hosts of these sites."""
        sites = self.sites(job)
        return [host for host in self.snapshot.hosts if host.path.site in sites]

    def domains(self, job: Job) -> list[Path]:
        """The domains of which the gang must choose one."""
        end = depth(self.placer.confinement(job).required)
        return [node for node in self.placer.tree(self.sites(job)).rank if len(node) == end]
