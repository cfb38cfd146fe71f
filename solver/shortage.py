"""What a gang lacks, in amounts, once it is known which lifted demands would let it start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..model.decision import Reason, ReasonKind, Start
from ..model.host import HostState
from ..model.job import Job, Role
from ..model.snapshot import JobRecord
from ..model.topology import Layer
from .lifts import BUSY, CARD_MEMORY, CPU, HOSTS, MEMORY, NETWORK, OUTRANKED, SITE, TOPOLOGY, Lift
from .rooms import depth
from .variants import LAYER_NAME
from .worlds import World, Worlds


def reason_of(record: JobRecord, lifts: tuple[Lift, ...], worlds: Worlds, starts: Sequence[Start]) -> Reason:
    """The reason that these lifts stand for; of two, the first gives the amounts."""
    families = tuple(dict.fromkeys(lift.family for lift in lifts))
    return replace(_main(record, lifts[0], worlds, starts), families=families)


def _main(record: JobRecord, lift: Lift, worlds: Worlds, starts: Sequence[Start]) -> Reason:
    job = record.job
    asked, free = job.gpu_milli, worlds.free(job)
    base = Reason(job=record.id, kind=ReasonKind.BUSY, asked=asked, available=min(free, asked), unit="mGPU")
    if lift is OUTRANKED:
        subject = _ahead(record, worlds, starts)
        return replace(base, kind=ReasonKind.OUTRANKED, subject=subject)
    if lift in (CPU, MEMORY, NETWORK):
        return _host_amount(base, job, lift, worlds)
    if lift is TOPOLOGY:
        return _topology(base, job, worlds)
    if lift is HOSTS:
        return replace(base, kind=ReasonKind.HOSTS_UNAVAILABLE, subject=_unavailable(job, worlds))
    if lift is SITE:
        sites = ", ".join(sorted(worlds.sites(job)))
        return replace(base, subject=f"{_types(job)} at {sites}")
    if lift is CARD_MEMORY:
        memory = max(role.request.gpu_memory_mib for role in job.roles)
        return replace(base, subject=f"{_types(job)} with {memory // 1024} GiB")
    if lift is BUSY and free >= asked > 0:
        return replace(base, kind=ReasonKind.FRAGMENTED, subject=_types(job), available=free)
    return replace(base, subject=_types(job))


def _ahead(record: JobRecord, worlds: Worlds, starts: Sequence[Start]) -> str:
    """The jobs of this round on the hosts where the gang would be without them, at most three by name."""
    placement = worlds.placement(record, World(no_starts=True))
    hosts = set(placement.hosts) if placement is not None else set()
    return _some([start.job for start in starts if hosts.intersection(start.placement.hosts)])


def _host_amount(base: Reason, job: Job, lift: Lift, worlds: Worlds) -> Reason:
    """What the workers of the role that lacks most ask of the resource, and what they could have in the best domain."""
    field, unit = _FIELD[lift.name]
    lacks: list[tuple[int, int, int]] = []
    for role in job.roles:
        each = int(getattr(role.request, field))
        best = _best(job, (role,), worlds)
        if each:
            lacks.append((best - role.count, role.count * each, best * each))
    _, asked, available = min(lacks)
    return replace(base, subject=lift.name, asked=asked, available=available, unit=unit)


_FIELD = {"CPU": ("cpu_milli", "milli-cores"), "memory": ("memory_mib", "MiB"), "network": ("network_mbps", "Mbit/s")}


def _topology(base: Reason, job: Job, worlds: Worlds) -> Reason:
    """What the best domain of the required layer could give of what the gang asks there."""
    layer = worlds.placer().confinement(job).required
    workers = _best(job, job.roles, worlds)
    return replace(
        base,
        kind=ReasonKind.TOPOLOGY,
        subject=LAYER_NAME[layer or Layer.NVLINK],
        asked=job.workers,
        available=workers,
        unit="workers",
    )


def _best(job: Job, roles: Sequence[Role], worlds: Worlds) -> int:
    """The most workers of these roles, each counted alone, that one domain of the required layer takes now."""
    placer, sites = worlds.placer(), worlds.sites(job)
    end = depth(placer.confinement(job).required)
    best = 0
    for node in {path[:end] for path in placer.tree(sites).host}:
        workers = 0
        for role in roles:
            rooms = (placer.rooms(role, job.team, name, sites)[node] for name in placer.types(role))
            workers += min(role.count, max(rooms, default=0))
        best = max(best, workers)
    return best


def _unavailable(job: Job, worlds: Worlds) -> str:
    """Hosts of acceptable types at allowed sites that take no work, with why, at most three."""
    sites = worlds.sites(job)
    named = []
    for host in worlds.unavailable():
        serves = not job.gpu_milli or any(
            role.request.gpu_milli and role.throughput_milli(gpu.gpu_type) is not None
            for role in job.roles
            for gpu in host.gpus
        )
        if host.path.site in sites and serves:
            state = "spare" if host.state is HostState.READY else host.state.value
            named.append(f"{host.id} is {state}")
    return _some(named) or "broken GPUs"


def _types(job: Job) -> str:
    """The acceptable types, "" for any."""
    names = dict.fromkeys(choice.gpu_type for role in job.roles for choice in role.gpu_types)
    return " or ".join(names)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
