"""What-if worlds around a decision: the fleet without this round's starts, without running work, with all hosts ready.

A trial asks whether one waiting gang, changed or not, would be placed in such a world; nothing stays booked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..model.decision import Start
from ..model.host import Host
from ..model.ids import SiteId
from ..model.job import Job
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .books import Books
from .demand import Confinement, allowed_sites, placeable
from .empty_fleet import well
from .placing import Placer


@dataclass(frozen=True, slots=True)
class World:
    """Which part of the round's fixed surroundings is lifted."""

    no_starts: bool = False
    no_running: bool = False
    all_hosts: bool = False

    def __or__(self, other: World) -> World:
        return World(
            self.no_starts or other.no_starts, self.no_running or other.no_running, self.all_hosts or other.all_hosts
        )


NOW = World()


class Worlds:
    """Trials against one decision. `spent` is the work done so far, in hosts looked at: the same on every machine."""

    def __init__(self, snapshot: Snapshot, policy: Policy, starts: Sequence[Start]) -> None:
        self.spent = 0
        self._snapshot, self._policy, self._starts = snapshot, policy, starts
        self._placers: dict[World, Placer] = {}
        self._free: dict[World, dict[tuple[str, str], int]] = {}
        self._known: dict[tuple[object, ...], Placement | None] = {}

    def placement(self, record: JobRecord, world: World = NOW, within: Confinement | None = None) -> Placement | None:
        """Where the gang would be placed in that world, confined as it asks or as `within` says; None where nowhere."""
        job = record.job
        if self.free(job, world) < job.gpu_milli:
            return None
        team = job.team if any(role.request.fractional for role in job.roles) else None
        sites = self.sites(job)
        key = (job.roles, job.topology, job.cross_site, sites, team, world, within)
        if key not in self._known:
            self.spent += len(self._snapshot.hosts)
            placer = self.placer(world)
            placement = placer.place(record, within)
            if placement is not None:
                placer.remove(record, placement)
            self._known[key] = placement
        return self._known[key]

    def fits(self, record: JobRecord, job: Job, world: World = NOW, within: Confinement | None = None) -> bool:
        """Whether the gang with these demands instead would be placed in that world."""
        return self.placement(replace(record, job=job), world, within) is not None

    def free(self, job: Job, world: World = NOW) -> int:
        """milli-GPU free in that world on acceptable types of allowed sites; a card shared by another team counts."""
        if world not in self._free:
            free: dict[tuple[str, str], int] = {}
            placer = self.placer(world)
            for host in self._hosts(world):
                for card in placer.books.hosts[host.id].cards.values():
                    if card.healthy:
                        key = (host.path.site, card.kind.gpu_type)
                        free[key] = free.get(key, 0) + max(0, card.milli)
            self._free[world] = free
        sites = self.sites(job)
        roles = [role for role in job.roles if role.request.gpu_milli]
        return sum(
            milli
            for (site, gpu_type), milli in self._free[world].items()
            if site in sites and any(role.throughput_milli(gpu_type) is not None for role in roles)
        )

    def sites(self, job: Job) -> frozenset[SiteId]:
        """The sites that the gang may run on."""
        return allowed_sites(job, self._snapshot, self._policy)

    def unavailable(self) -> list[Host]:
        """Hosts that take no work now."""
        return [host for host in self._snapshot.hosts if not placeable(host)]

    def _hosts(self, world: World) -> list[Host]:
        if world.all_hosts:
            return [well(host) for host in self._snapshot.hosts]
        return [host for host in self._snapshot.hosts if placeable(host)]

    def placer(self, world: World = NOW) -> Placer:
        """The placer of that world, to look at its rooms."""
        if world not in self._placers:
            jobs = {record.id: record.job for record in self._snapshot.jobs}
            hosts = self._snapshot.hosts if not world.all_hosts else tuple(self._hosts(world))
            running = () if world.no_running else self._snapshot.jobs
            books = Books(replace(self._snapshot, hosts=hosts, jobs=running))
            if not world.no_starts and not world.no_running:
                for start in self._starts:
                    for worker in start.placement.workers:
                        books.take(jobs[start.job], worker)
            # Demands are derived from the real fleet, so that a lifted rule changes nothing else.
            self._placers[world] = Placer(self._snapshot, self._policy, books, hosts=self._hosts(world))
        return self._placers[world]
