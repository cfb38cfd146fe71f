"""`confinement` for many jobs of one fleet: equal hosts and equal demands are looked at once."""

from __future__ import annotations

from ..model.host import Host
from ..model.job import Job
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from .demand import Confinement, confinement
from .remember import remembered
from .unchecked import unchecked


@remembered
def confinements(snapshot: Snapshot, policy: Policy) -> Confinements:
    """The confinements of all jobs of that snapshot, shared by all who ask."""
    return Confinements(snapshot, policy)


class Confinements:
    """Gives each job of the snapshot the confinement that `demand.confinement` gives it."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot = unchecked(snapshot, hosts=_unlike(snapshot.hosts), jobs=(), reservations=())
        self._policy, self._jobs = policy, snapshot.jobs
        self._known: dict[tuple[object, ...], Confinement] = {}
        # Hashing roles takes long, and the snapshot's jobs are asked about most.
        self._lasting = {id(record.job) for record in snapshot.jobs}
        self._quick: dict[int, Confinement] = {}
        self._last: tuple[Job, Confinement] | None = None

    def __call__(self, job: Job) -> Confinement:
        """The confinement of that job."""
        quick = self._quick.get(id(job))
        if quick is not None:
            return quick
        # A variant is asked about several times in a row.
        last = self._last
        if last is not None and last[0] is job:
            return last[1]
        key = (job.roles, job.topology, job.cross_site)
        if key not in self._known:
            self._known[key] = confinement(job, self._snapshot, self._policy)
        self._last = job, self._known[key]
        if id(job) in self._lasting:
            self._quick[id(job)] = self._known[key]
        return self._known[key]


@remembered
def _unlike(hosts: tuple[Host, ...]) -> tuple[Host, ...]:
    """Only what a host offers empty matters, and most hosts of a fleet are equal in that."""
    return tuple({offer(host): host for host in reversed(hosts)}.values())


def offer(host: Host) -> tuple[object, ...]:
    """What the host has when it is empty; hosts that are equal in it hold the same gangs then."""
    cards = tuple((gpu.gpu_type, gpu.memory_mib) for gpu in host.gpus if gpu.healthy)
    return host.cpu_milli, host.memory_mib, host.network_mbps, cards
