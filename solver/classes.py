"""Reduction: what the encoder tells apart, and which host classes each worker class may use.

The encoder knows host classes and worker classes only. At the singleton grain each host is a class of its own and each
role of each job is a class of its own; candidates are pruned to hosts that could take at least one worker.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ..model.host import MILLI, Host
from ..model.ids import HostId, JobId, SiteId, TeamId
from ..model.job import Role
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import CardKind, Confinement, Confinements, allowed_sites, candidates, card_memory, card_takes, placeable


@dataclass(frozen=True, slots=True)
class Card:
    """A healthy card that fractions may use: its room, and the team that shares it already (None: it is free)."""

    index: int
    kind: CardKind
    milli: int
    memory_mib: int
    team: TeamId | None


@dataclass(frozen=True, slots=True)
class HostClass:
    """One placeable host: free CPU (milli-cores), memory (MiB), network (Mbit/s), free whole cards by kind."""

    host: Host
    cpu_milli: int
    memory_mib: int
    network_mbps: int
    free_cards: dict[CardKind, int]
    cards: tuple[Card, ...]

    @property
    def id(self) -> HostId:
        """The host's name."""
        return self.host.id


@dataclass(frozen=True, slots=True)
class Slot:
    """A place that workers of one class may take: a host, and the kind of cards they use there (None: no cards)."""

    host: HostId
    kind: CardKind | None
    most: int


@dataclass(frozen=True, slots=True)
class WorkerClass:
    """The identical workers of one role of one gang, and the slots they may take."""

    job: JobId
    role: Role
    slots: tuple[Slot, ...]

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """GPU types of its slots, each once, sorted."""
        return tuple(sorted({slot.kind.gpu_type for slot in self.slots if slot.kind is not None}))


@dataclass(frozen=True, slots=True)
class Gang:
    """One candidate of the round and its worker classes, in the order of its roles."""

    record: JobRecord
    confinement: Confinement
    workers: tuple[WorkerClass, ...]

    @property
    def id(self) -> JobId:
        """The job's name."""
        return self.record.id


@dataclass(frozen=True, slots=True)
class Instance:
    """One round, reduced. Gangs without a slot for some role are left out: they cannot start now."""

    snapshot: Snapshot
    policy: Policy
    hosts: dict[HostId, HostClass]
    gangs: tuple[Gang, ...]

    @property
    def columns(self) -> int:
        """Number of (worker class, slot) pairs; fractional workers count each card of their hosts."""
        total = 0
        for gang in self.gangs:
            for workers in gang.workers:
                if workers.role.request.fractional:
                    total += sum(len(self.hosts[slot.host].cards) for slot in workers.slots)
                else:
                    total += len(workers.slots)
        return total


def reduce(snapshot: Snapshot, policy: Policy) -> Instance:
    """The instance of this round at the singleton grain."""
    used = _usage(snapshot)
    hosts = {host.id: _host_class(host, used.get(host.id, _Used())) for host in snapshot.hosts if placeable(host)}
    # Equal roles have equal slots: a large queue has many jobs of few shapes.
    known: dict[object, tuple[Slot, ...]] = {}
    confinements = Confinements(snapshot, policy)
    gangs = []
    for record in candidates(snapshot):
        sites = allowed_sites(record.job, snapshot, policy)
        workers = []
        for role in record.job.roles:
            team = record.job.team if role.request.fractional else None
            key = (role.request, role.gpu_types, role.count, sites, team)
            if key not in known:
                known[key] = _slots(record, role, hosts, sites)
            workers.append(WorkerClass(record.id, role, known[key]))
        if all(sum(slot.most for slot in w.slots) >= w.role.count for w in workers):
            gangs.append(Gang(record, confinements.of(record.job), tuple(workers)))
    return Instance(snapshot, policy, hosts, tuple(gangs))


@dataclass(slots=True)
class _Used:
    """What running work holds of one host."""

    cpu_milli: int = 0
    memory_mib: int = 0
    network_mbps: int = 0
    whole: set[int] = field(default_factory=set)
    shares: dict[int, list[tuple[int, int, TeamId]]] = field(default_factory=dict)


def _usage(snapshot: Snapshot) -> dict[HostId, _Used]:
    used: dict[HostId, _Used] = {}
    by_id = {host.id: host for host in snapshot.hosts}
    for record in snapshot.jobs:
        for worker in record.placement.workers if record.placement else ():
            role = record.job.role(worker.role)
            assert role is not None  # the snapshot checks its references
            request = role.request
            entry = used.setdefault(worker.host, _Used())
            entry.cpu_milli += request.cpu_milli
            entry.memory_mib += request.memory_mib
            entry.network_mbps += request.network_mbps
            if not request.fractional:
                entry.whole.update(worker.gpus)
                continue
            for index in worker.gpus:
                gpu = by_id[worker.host].gpu(index)
                assert gpu is not None
                share = (request.gpu_milli, card_memory(request, gpu.memory_mib), record.job.team)
                entry.shares.setdefault(index, []).append(share)
    return used


def _host_class(host: Host, used: _Used) -> HostClass:
    cards = []
    free: Counter[CardKind] = Counter()
    for gpu in host.gpus:
        if not gpu.healthy or gpu.index in used.whole:
            continue
        kind = CardKind.of(gpu)
        taken = used.shares.get(gpu.index, [])
        if not taken:
            free[kind] += 1
        milli = MILLI - sum(share[0] for share in taken)
        memory = gpu.memory_mib - sum(share[1] for share in taken)
        cards.append(Card(gpu.index, kind, milli, memory, taken[0][2] if taken else None))
    return HostClass(
        host=host,
        cpu_milli=max(0, host.cpu_milli - used.cpu_milli),
        memory_mib=max(0, host.memory_mib - used.memory_mib),
        network_mbps=max(0, host.network_mbps - used.network_mbps),
        free_cards=dict(free),
        cards=tuple(cards),
    )


def _slots(record: JobRecord, role: Role, hosts: dict[HostId, HostClass], sites: frozenset[SiteId]) -> tuple[Slot, ...]:
    slots = []
    for host in hosts.values():
        if host.host.path.site not in sites:
            continue
        beside_cards = _most_beside_cards(role, host)
        if beside_cards == 0:
            continue
        if not role.request.gpu_milli:
            slots.append(Slot(host.id, None, beside_cards))
            continue
        for kind in sorted({card.kind for card in host.cards}):
            most = min(beside_cards, _most_on_cards(record, role, host, kind))
            if most > 0:
                slots.append(Slot(host.id, kind, most))
    return tuple(slots)


def _most_beside_cards(role: Role, host: HostClass) -> int:
    """Workers of the role that CPU, memory and network of the host allow, at most its count."""
    request, most = role.request, role.count
    for asked, free in (
        (request.cpu_milli, host.cpu_milli),
        (request.memory_mib, host.memory_mib),
        (request.network_mbps, host.network_mbps),
    ):
        if asked:
            most = min(most, free // asked)
    return most


def _most_on_cards(record: JobRecord, role: Role, host: HostClass, kind: CardKind) -> int:
    """Workers of the role that the host's cards of that kind allow."""
    request = role.request
    if role.throughput_milli(kind.gpu_type) is None or not card_takes(request, kind.memory_mib):
        return 0
    if not request.fractional:
        return host.free_cards.get(kind, 0) // request.whole_gpus
    return sum(most_on_card(record, role, card) for card in host.cards if card.kind == kind)


def most_on_card(record: JobRecord, role: Role, card: Card) -> int:
    """Fractional workers of the role that one card can still take; 0 on another team's shared card."""
    if card.team not in (None, record.job.team):
        return 0
    request = role.request
    most = card.milli // request.gpu_milli
    memory = card_memory(request, card.kind.memory_mib)
    return min(most, card.memory_mib // memory) if memory else most
