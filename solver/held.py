"""What each placeable host has free, and what the jobs that may be preempted would free there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..model.host import MILLI, Gpu, Host
from ..model.ids import HostId, JobId, TeamId
from ..model.job import WorkerRequest
from ..model.snapshot import JobRecord, Snapshot
from .access import Reach
from .demand import CardKind, card_memory, usable


@dataclass(frozen=True, slots=True)
class Holder:
    """A possible victim's part of one card: milli-GPU and MiB; `whole` if the card is its alone."""

    job: JobId
    milli: int
    memory_mib: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Card:
    """A healthy card that new work may come to use: its room now, whose it is, and who may leave it.

    `team`: the team that shares it, None while nobody does. `fixed`: somebody is on it who stays.
    """

    index: int
    kind: CardKind
    milli: int
    memory_mib: int
    team: TeamId | None
    fixed: bool
    holders: tuple[Holder, ...]

    @property
    def free(self) -> bool:
        """Whether the card carries no worker now."""
        return not self.fixed and not self.holders

    @property
    def jobs(self) -> tuple[JobId, ...]:
        """The possible victims on the card."""
        return tuple(holder.job for holder in self.holders)

    def may_empty(self, reach: Reach) -> bool:
        """Whether work that may use what these victims leave can find the card empty."""
        return not self.fixed and reach.issuperset(self.jobs)

    def most_room(self, team: TeamId, reach: Reach) -> tuple[int, int]:
        """The most milli-GPU and MiB that fractions of that team could come to find on the card, these victims gone."""
        if self.may_empty(reach):
            return MILLI, self.kind.memory_mib
        if self.team not in (None, team):
            return 0, 0
        leaving = [holder for holder in self.holders if holder.job in reach]
        milli = self.milli + sum(holder.milli for holder in leaving)
        return max(0, milli), max(0, self.memory_mib + sum(holder.memory_mib for holder in leaving))


@dataclass(frozen=True, slots=True)
class Freed:
    """What one possible victim frees on a host beside cards: milli-cores, MiB, Mbit/s."""

    job: JobId
    cpu_milli: int
    memory_mib: int
    network_mbps: int


@dataclass(frozen=True, slots=True)
class HostClass:
    """One host: free CPU (milli-cores), memory (MiB), network (Mbit/s), its cards, and what may be freed.

    Amounts are negative where running work exceeds the host, as while a stopping victim and its beneficiary overlap.
    """

    host: Host
    cpu_milli: int
    memory_mib: int
    network_mbps: int
    cards: tuple[Card, ...]
    freed: tuple[Freed, ...]

    @property
    def id(self) -> HostId:
        """The host's name."""
        return self.host.id

    @property
    def kinds(self) -> tuple[CardKind, ...]:
        """Kinds of its usable cards, each once, sorted."""
        return tuple(sorted({card.kind for card in self.cards}))


@dataclass(slots=True)
class _Load:
    """What running work holds of one host."""

    cpu_milli: int = 0
    memory_mib: int = 0
    network_mbps: int = 0
    holders: dict[int, list[tuple[Holder, TeamId]]] = field(default_factory=dict)
    freed: dict[JobId, list[int]] = field(default_factory=dict)


def host_classes(snapshot: Snapshot, victims: Iterable[JobRecord]) -> dict[HostId, HostClass]:
    """Every host of the snapshot that may take some waiting gang."""
    may_leave = frozenset(record.id for record in victims)
    loads = _loads(snapshot)
    return {host.id: _host_class(host, loads.get(host.id, _Load()), may_leave) for host in usable(snapshot)}


def _loads(snapshot: Snapshot) -> dict[HostId, _Load]:
    loads: dict[HostId, _Load] = {}
    hosts = {host.id: host for host in snapshot.hosts}
    for record in snapshot.jobs:
        requests = {role.name: role.request for role in record.job.roles}
        for worker in record.placement.workers if record.placement else ():
            request = requests[worker.role]
            load = loads.setdefault(worker.host, _Load())
            load.cpu_milli += request.cpu_milli
            load.memory_mib += request.memory_mib
            load.network_mbps += request.network_mbps
            parts = load.freed.setdefault(record.id, [0, 0, 0])
            for number, amount in enumerate((request.cpu_milli, request.memory_mib, request.network_mbps)):
                parts[number] += amount
            for index in worker.gpus:
                gpu = hosts[worker.host].gpu(index)
                if gpu is not None:
                    load.holders.setdefault(index, []).append((_holder(record, request, gpu), record.job.team))
    return loads


def _holder(record: JobRecord, request: WorkerRequest, gpu: Gpu) -> Holder:
    milli = request.gpu_milli if request.fractional else MILLI
    memory = card_memory(request, gpu.memory_mib)
    return Holder(record.id, milli, memory, whole=not request.fractional)


def _host_class(host: Host, load: _Load, may_leave: frozenset[JobId]) -> HostClass:
    cards = []
    for gpu in host.gpus:
        held = load.holders.get(gpu.index, [])
        stays = [holder for holder, _ in held if holder.job not in may_leave]
        if not gpu.healthy or any(holder.whole for holder in stays):
            continue
        cards.append(
            Card(
                index=gpu.index,
                kind=CardKind.of(gpu),
                milli=MILLI - sum(holder.milli for holder, _ in held),
                memory_mib=gpu.memory_mib - sum(holder.memory_mib for holder, _ in held),
                team=held[0][1] if held else None,
                fixed=bool(stays),
                holders=_merged(holder for holder, _ in held if holder.job in may_leave),
            )
        )
    freed = tuple(Freed(job, *parts) for job, parts in load.freed.items() if job in may_leave)
    return HostClass(
        host=host,
        cpu_milli=host.cpu_milli - load.cpu_milli,
        memory_mib=host.memory_mib - load.memory_mib,
        network_mbps=host.network_mbps - load.network_mbps,
        cards=tuple(cards),
        freed=freed,
    )


def _merged(holders: Iterable[Holder]) -> tuple[Holder, ...]:
    """One holder a job: several workers of one gang may share a card, and leave it together."""
    milli: Counter[JobId] = Counter()
    memory: Counter[JobId] = Counter()
    first: dict[JobId, Holder] = {}
    for holder in holders:
        first.setdefault(holder.job, holder)
        milli[holder.job] += holder.milli
        memory[holder.job] += holder.memory_mib
    return tuple(Holder(job, milli[job], memory[job], h.whole) for job, h in first.items())
