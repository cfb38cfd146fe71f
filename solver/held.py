"""What each placeable host has free, and what the jobs that may leave it would free there.

A job may leave in ways that differ in who may use what it frees: a possible victim, and an elastic gang that returns
smaller, under its own name; a gang that is moved under another one (`moved_id`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from ..model.host import MILLI, Gpu, Host
from ..model.ids import HostId, JobId, TeamId
from ..model.job import WorkerRequest
from ..model.snapshot import JobRecord, Snapshot
from .access import Reach
from .demand import CardKind, card_memory, usable
from .moved import moved_id


@dataclass(frozen=True, slots=True)
class Holder:
    """The part of one card of a job that may leave: milli-GPU and MiB; `whole` if the card is its alone.

    `ways`: the names under which it may leave.
    """

    job: JobId
    milli: int
    memory_mib: int
    whole: bool
    ways: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class Card:
    """A healthy card that new work may come to use: its room now, whose it is, and who may leave it.

    `team`: the team that shares it, None while nobody does. `fixed`: somebody is on it who stays. `ways`: the sets of
    those who must leave for it to be empty, one for each choice of how they do.
    """

    index: int
    kind: CardKind
    milli: int
    memory_mib: int
    team: TeamId | None
    fixed: bool
    holders: tuple[Holder, ...]
    ways: tuple[frozenset[JobId], ...]

    @property
    def free(self) -> bool:
        """Whether the card carries no worker now."""
        return not self.fixed and not self.holders

    @property
    def leaving(self) -> tuple[JobId, ...]:
        """Those who may leave the card, in each way."""
        return tuple(way for holder in self.holders for way in holder.ways)

    def may_empty(self, reach: Reach) -> bool:
        """Whether work that may use what these leave can find the card empty."""
        if not self.fixed:
            # Asked of each card by each shape of work: a loop takes half the time of `any`.
            for way in self.ways:
                if way <= reach:
                    return True
        return False

    def most_room(self, team: TeamId, reach: Reach) -> tuple[int, int]:
        """The most milli-GPU and MiB that fractions of that team could come to find on the card, these victims gone."""
        if self.may_empty(reach):
            return MILLI, self.kind.memory_mib
        if self.team not in (None, team):
            return 0, 0
        leaving = [holder for holder in self.holders if any(way in reach for way in holder.ways)]
        milli = self.milli + sum(holder.milli for holder in leaving)
        return max(0, milli), max(0, self.memory_mib + sum(holder.memory_mib for holder in leaving))


@dataclass(frozen=True, slots=True)
class Freed:
    """What one job frees on a host beside cards if it leaves in one way: milli-cores, MiB, Mbit/s."""

    job: JobId
    way: JobId
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

    def alike(self) -> list[list[Card]]:
        """The cards in groups: those of a group are empty, or become so in the same ways, and have equal room."""
        groups: dict[object, list[Card]] = {}
        for card in self.cards:
            key = (card.kind, card.milli, card.memory_mib, card.team, card.holders, card.index if card.fixed else -1)
            groups.setdefault(key, []).append(card)
        return list(groups.values())


@dataclass(slots=True)
class _Load:
    """What running work holds of one host."""

    cpu_milli: int = 0
    memory_mib: int = 0
    network_mbps: int = 0
    holders: dict[int, list[tuple[Holder, TeamId]]] = field(default_factory=dict)
    freed: dict[JobId, list[int]] = field(default_factory=dict)


Ways = dict[JobId, tuple[JobId, ...]]
"""The names under which each job that may leave can do so."""


def ways_out(victims: Iterable[JobRecord], movers: Iterable[JobRecord] = ()) -> Ways:
    """How these possible victims and movers may leave."""
    ways: Ways = {record.id: (record.id,) for record in victims}
    for record in movers:
        ways[record.id] = (*ways.get(record.id, ()), moved_id(record.id))
    return ways


def host_classes(snapshot: Snapshot, ways: Ways) -> dict[HostId, HostClass]:
    """Every host of the snapshot that may take some waiting gang, as these may leave."""
    loads = _loads(snapshot)
    return {host.id: _host_class(host, loads.get(host.id, _Load()), ways) for host in usable(snapshot)}


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
    return Holder(record.id, milli, memory, not request.fractional, ())


def _host_class(host: Host, load: _Load, ways: Ways) -> HostClass:
    cards = []
    for gpu in host.gpus:
        held = load.holders.get(gpu.index, ())
        stays = [holder for holder, _ in held if holder.job not in ways]
        if not gpu.healthy or any(holder.whole for holder in stays):
            continue
        holders = _merged([holder for holder, _ in held if holder.job in ways], ways)
        cards.append(
            Card(
                index=gpu.index,
                kind=CardKind.of(gpu),
                milli=MILLI - sum(holder.milli for holder, _ in held),
                memory_mib=gpu.memory_mib - sum(holder.memory_mib for holder, _ in held),
                team=held[0][1] if held else None,
                fixed=bool(stays),
                holders=holders,
                ways=_emptied_by(holders),
            )
        )
    freed = tuple(Freed(job, way, *parts) for job, parts in load.freed.items() for way in ways.get(job, ()))
    return HostClass(
        host=host,
        cpu_milli=host.cpu_milli - load.cpu_milli,
        memory_mib=host.memory_mib - load.memory_mib,
        network_mbps=host.network_mbps - load.network_mbps,
        cards=tuple(cards),
        freed=freed,
    )


NOBODY: tuple[frozenset[JobId], ...] = (frozenset(),)


def _emptied_by(holders: tuple[Holder, ...]) -> tuple[frozenset[JobId], ...]:
    if not holders:
        return NOBODY
    if len(holders) == 1:
        return tuple(frozenset((way,)) for way in holders[0].ways)
    return tuple(frozenset(way) for way in product(*(holder.ways for holder in holders)))


def _merged(holders: Sequence[Holder], ways: Ways) -> tuple[Holder, ...]:
    """One holder a job: several workers of one gang may share a card, and leave it together."""
    if len(holders) <= 1:
        return tuple(replace(holder, ways=ways[holder.job]) for holder in holders)
    milli: Counter[JobId] = Counter()
    memory: Counter[JobId] = Counter()
    first: dict[JobId, Holder] = {}
    for holder in holders:
        first.setdefault(holder.job, holder)
        milli[holder.job] += holder.milli
        memory[holder.job] += holder.memory_mib
    return tuple(Holder(job, milli[job], memory[job], h.whole, ways[job]) for job, h in first.items())
