"""One what-if world: what is free there, whether a gang has room, and where it would be placed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..model.host import Host
from ..model.ids import HostId, SiteId
from ..model.job import Job, Role
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .bars import OPEN
from .books import Books
from .demand import Confinement, card_takes
from .options import Types
from .placing import Placer, by_type
from .rooms import depth
from .shapes import Shapes
from .widest import Grid, Widest, Work

TRIAL = 20
"""Work of asking whether a gang has room, where the counts are known; units as of `Work`."""

_PLACED = 200
"""Work of choosing a place, beside a quarter for each host."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a gang would be placed: its hosts, and milli-GPU by type; ranks and cards where they were asked for."""

    hosts: tuple[HostId, ...]
    milli: Mapping[str, int]
    placement: Placement | None = None


Only = Callable[[Types], bool]
"""Whether a gang may take cards of these types, one for each role."""


class Ground:
    """What worlds with the same hosts have in common: which take work, their domains, the demands of gangs on them."""

    def __init__(
        self, snapshot: Snapshot, policy: Policy, hosts: tuple[Host, ...], grid: Grid, *, windows: bool
    ) -> None:
        self.snapshot, self.policy, self.hosts, self.grid = snapshot, policy, hosts, grid
        self.taking = None if len(hosts) == len(grid.names) else frozenset(host.id for host in hosts)
        self.shapes = Shapes(snapshot, policy, hosts, windows=windows)
        self._memory: dict[str, int] = {}
        for host in hosts:
            for gpu in host.gpus:
                if gpu.healthy:
                    self._memory[gpu.gpu_type] = max(self._memory.get(gpu.gpu_type, 0), gpu.memory_mib)
        self._types: dict[tuple[object, int], list[str | None]] = {}

    def types(self, role: Role) -> list[str | None]:
        """As `Placer.types`."""
        request = role.request
        if not request.gpu_milli:
            return [None]
        key = role.gpu_types, request.gpu_memory_mib
        if key not in self._types:
            self._types[key] = [
                name
                for name, memory in sorted(self._memory.items())
                if role.throughput_milli(name) is not None and card_takes(request, memory)
            ]
        return self._types[key]


class View:
    """A world's hosts with its books, which stay as they are: whatever is tried is taken back."""

    def __init__(self, ground: Ground, books: Books, work: Work) -> None:
        self._ground, self.books, self._work = ground, books, work

    @cached_property
    def placer(self) -> Placer:
        """Places gangs there."""
        ground = self._ground
        free: dict[str, int] = {}
        for (_, gpu_type), milli in self.free.items():
            free[gpu_type] = free.get(gpu_type, 0) + milli
        return Placer(ground.snapshot, ground.policy, self.books, hosts=ground.hosts, shape=ground.shapes, free=free)

    @cached_property
    def widest(self) -> Widest:
        """Counts the room of domains."""
        return Widest(self._ground.grid, self.books, self._work, self._ground.taking)

    @property
    def free(self) -> Mapping[tuple[SiteId, str], int]:
        """milli-GPU free on healthy cards, by site and type."""
        return self.widest.free

    @cached_property
    def free_in_all(self) -> int:
        """milli-GPU free on healthy cards."""
        return sum(self.free.values())

    def place(self, record: JobRecord, within: Confinement | None, only: Only | None) -> Placement | None:
        """Where the gang would be placed; nothing stays booked."""
        self._work.spent += _PLACED + len(self._ground.hosts) // 4
        placement = self.placer.place(record, within, only)
        if placement is not None:
            self.placer.remove(record, placement)
        return placement

    def spot(self, record: JobRecord, within: Confinement | None, only: Only | None) -> Spot | None:
        """As `place`, without ranks and cards where they need not be chosen."""
        if len(record.job.roles) > 1:
            placement = self.place(record, within, only)
            return None if placement is None else self.told(record.job, placement)
        self._work.spent += _PLACED + len(self._ground.hosts) // 4
        found = self.placer.spot(record, within, only)
        return None if found is None else Spot(found[1], by_type(record.job, found[0]))

    def told(self, job: Job, placement: Placement) -> Spot:
        """That placement of the gang as a spot."""
        milli: dict[str, int] = {}
        for worker in placement.workers:
            role = job.role(worker.role)
            if worker.gpus and role is not None:
                gpu_type = self.books.hosts[worker.host].cards[worker.gpus[0]].kind.gpu_type
                milli[gpu_type] = milli.get(gpu_type, 0) + role.request.gpu_milli
        return Spot(placement.hosts, milli, placement)

    def could(self, record: JobRecord, sites: frozenset[SiteId], within: Confinement | None, only: Only | None) -> bool:
        """Whether `place` would find a place at these sites, which are the gang's; for one role without choosing it."""
        job = record.job
        if len(job.roles) > 1:
            return self.place(record, within, only) is not None
        self._work.spent += TRIAL
        (role,), ledger = job.roles, self.books.ledger
        end = depth((within or self._ground.shapes.confinement(job)).required)
        bar, tensor = self._ground.shapes.bar(record), _tensor(role)
        for name in self._ground.types(role):
            asked = {} if name is None else {name: role.gpu_milli}
            if (only is not None and not only((name,))) or not ledger.allows(job.team, asked):
                continue
            there = sites
            if asked and ledger.pooled(record):
                there = self._beside_pools(sites, asked, end)
            if self.widest.most(role.request, job.team, name, there, bar, tensor, end) >= role.count:
                return True
        return False

    def _beside_pools(self, sites: frozenset[SiteId], asked: Mapping[str, int], end: int) -> frozenset[SiteId]:
        """The sites at which reserved pools leave level 1 that much."""
        ledger = self.books.ledger
        if not end:
            return sites if ledger.pools_allow(None, asked) else frozenset()
        left = frozenset(site for site in sites if ledger.pools_allow(site, asked))
        return sites if left == sites else left

    def most(self, job: Job, role: Role, sites: frozenset[SiteId]) -> int:
        """The most workers of the role, alone, that one domain at these sites takes where no host is closed to it."""
        end = depth(self._ground.shapes.confinement(job).required)
        counts = (
            self.widest.most(role.request, job.team, name, sites, OPEN, _tensor(role), end)
            for name in self._ground.types(role)
        )
        return max(counts, default=0)


def _tensor(role: Role) -> int:
    return role.parallelism.tensor if role.parallelism else 1
