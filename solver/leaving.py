"""The hosts of a round as running work may leave them: `held.HostClass`, made from a snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product

from ..model.host import MILLI, Gpu, Host
from ..model.ids import HostId, JobId, TeamId
from ..model.job import WorkerRequest
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import CardKind, card_memory, usable, victims
from .held import Card, Freed, Holder, HostClass
from .moved import moved_id
from .remember import remembered
from .returning import returners

Ways = dict[JobId, tuple[JobId, ...]]
"""The names under which each job that may leave can do so."""

_NOBODY: tuple[frozenset[JobId], ...] = (frozenset(),)


@dataclass(slots=True)
class _Load:
    """What running work holds of one host; `freed` by job, with the amounts of `cpu_milli` and so on."""

    cpu_milli: int = 0
    memory_mib: int = 0
    network_mbps: int = 0
    holders: dict[int, list[tuple[Holder, TeamId]]] = field(default_factory=dict)
    freed: dict[JobId, list[int]] = field(default_factory=dict)


def ways_out(victims: Iterable[JobRecord], movers: Iterable[JobRecord] = ()) -> Ways:
    """How these possible victims and movers may leave."""
    ways: Ways = {record.id: (record.id,) for record in victims}
    for record in movers:
        ways[record.id] = (*ways.get(record.id, ()), moved_id(record.id))
    return ways


@remembered
def as_all_may_leave(snapshot: Snapshot, policy: Policy) -> tuple[Ways, dict[HostId, HostClass]]:
    """How each of those who may leave can, and the hosts as they do; to be read only."""
    ways = ways_out(victims(snapshot, policy), returners(snapshot, policy).movers)
    return ways, host_classes(snapshot, ways)


def host_classes(snapshot: Snapshot, ways: Ways) -> dict[HostId, HostClass]:
    """Every host of the snapshot that may take some waiting gang, as these may leave."""
    loads, idle = _loads(snapshot), _Load()
    return {host.id: _host_class(host, loads.get(host.id, idle), ways) for host in usable(snapshot)}


@remembered
def _loads(snapshot: Snapshot) -> dict[HostId, _Load]:
    loads: dict[HostId, _Load] = {}
    hosts = {host.id: host for host in snapshot.hosts}
    for record in snapshot.jobs:
        requests = {role.name: role.request for role in record.job.roles} if record.placement else {}
        for worker in record.placement.workers if record.placement else ():
            request = requests[worker.role]
            load = loads.get(worker.host)
            if load is None:
                load = loads[worker.host] = _Load()
            load.cpu_milli += request.cpu_milli
            load.memory_mib += request.memory_mib
            load.network_mbps += request.network_mbps
            parts = load.freed.setdefault(record.id, [0, 0, 0])
            parts[0] += request.cpu_milli
            parts[1] += request.memory_mib
            parts[2] += request.network_mbps
            _enter(load, record, request, (hosts[worker.host].gpu(index) for index in worker.gpus))
    return loads


def _enter(load: _Load, record: JobRecord, request: WorkerRequest, gpus: Iterable[Gpu | None]) -> None:
    """The cards of one worker, which shares one entry among those of equal memory."""
    alike: dict[int, tuple[Holder, TeamId]] = {}
    for gpu in gpus:
        if gpu is not None:
            entry = alike.get(gpu.memory_mib)
            if entry is None:
                entry = alike[gpu.memory_mib] = (_holder(record, request, gpu), record.job.team)
            load.holders.setdefault(gpu.index, []).append(entry)


def _holder(record: JobRecord, request: WorkerRequest, gpu: Gpu) -> Holder:
    milli = request.gpu_milli if request.fractional else MILLI
    memory = card_memory(request, gpu.memory_mib)
    return Holder(record.id, milli, memory, not request.fractional, ())


def _host_class(host: Host, load: _Load, ways: Ways) -> HostClass:
    freed = tuple(Freed(job, way, *parts) for job, parts in load.freed.items() for way in ways.get(job, ()))
    return HostClass(
        host=host,
        cpu_milli=host.cpu_milli - load.cpu_milli,
        memory_mib=host.memory_mib - load.memory_mib,
        network_mbps=host.network_mbps - load.network_mbps,
        cards=_cards(host, load, ways),
        freed=freed,
    )


def _cards(host: Host, load: _Load, ways: Ways) -> tuple[Card, ...]:
    """The healthy cards that are not wholly held by work that stays."""
    cards = []
    before: list[tuple[Holder, TeamId]] | None = None
    leaving: tuple[Holder, ...] = ()
    emptied = _NOBODY
    for gpu in host.gpus:
        held = load.holders.get(gpu.index, [])
        stays = [holder for holder, _ in held if holder.job not in ways]
        if not gpu.healthy or any(holder.whole for holder in stays):
            continue
        if held != before:
            leaving = _merged([holder for holder, _ in held if holder.job in ways], ways)
            before, emptied = held, _emptied_by(leaving)
        cards.append(
            Card(
                index=gpu.index,
                kind=CardKind.of(gpu),
                milli=MILLI - sum(holder.milli for holder, _ in held),
                memory_mib=gpu.memory_mib - sum(holder.memory_mib for holder, _ in held),
                team=held[0][1] if held else None,
                fixed=bool(stays),
                holders=leaving,
                ways=emptied,
            )
        )
    return tuple(cards)


def _emptied_by(holders: tuple[Holder, ...]) -> tuple[frozenset[JobId], ...]:
    if not holders:
        return _NOBODY
    if len(holders) == 1:
        return tuple(frozenset((way,)) for way in holders[0].ways)
    return tuple(frozenset(way) for way in product(*(holder.ways for holder in holders)))


def _merged(holders: Sequence[Holder], ways: Ways) -> tuple[Holder, ...]:
    """One holder a job: several workers of one gang may share a card, and leave it together."""
    if len(holders) == 1:
        only = holders[0]
        return (Holder(only.job, only.milli, only.memory_mib, only.whole, ways[only.job]),)
    milli: Counter[JobId] = Counter()
    memory: Counter[JobId] = Counter()
    first: dict[JobId, Holder] = {}
    for holder in holders:
        first.setdefault(holder.job, holder)
        milli[holder.job] += holder.milli
        memory[holder.job] += holder.memory_mib
    return tuple(Holder(job, milli[job], memory[job], h.whole, ways[job]) for job, h in first.items())
