"""Reduction: what the encoder tells apart, and which host classes each worker class may use.

The encoder knows host classes and worker classes only. At the singleton grain each host is a class of its own and each
role of each job is a class of its own; candidates are pruned to hosts that could take at least one worker, once every
job that may be preempted for it has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..model.ids import HostId, JobId, SiteId
from ..model.job import Role
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .confinements import Confinements
from .demand import (
    CardKind,
    Confinement,
    Held,
    allowed_sites,
    candidates,
    card_memory,
    card_takes,
    ends_before,
    held_back,
    open_to,
    surely_over_s,
    victims,
)
from .held import Card, HostClass, host_classes


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
    """One round, reduced. Gangs without enough slots for some role are left out: they cannot start now."""

    snapshot: Snapshot
    policy: Policy
    hosts: dict[HostId, HostClass]
    gangs: tuple[Gang, ...]
    victims: tuple[JobRecord, ...]

    @property
    def columns(self) -> int:
        """Number of (worker class, slot) pairs and victims; fractional workers count each card of their hosts."""
        total = len(self.victims)
        for gang in self.gangs:
            for workers in gang.workers:
                if workers.role.request.fractional:
                    total += sum(len(self.hosts[slot.host].cards) for slot in workers.slots)
                else:
                    total += len(workers.slots)
        return total


def reduce(snapshot: Snapshot, policy: Policy) -> Instance:
    """The instance of this round at the singleton grain."""
    may_leave = victims(snapshot, policy)
    hosts = host_classes(snapshot, may_leave)
    # Equal roles have equal slots: a large queue has many jobs of few shapes.
    known: dict[object, tuple[Slot, ...]] = {}
    any_window = any(host.host.windows for host in hosts.values())
    held = held_back(snapshot)
    confinement = Confinements(snapshot, policy)
    gangs = []
    for record in candidates(snapshot):
        sites = allowed_sites(record.job, snapshot, policy)
        workers = []
        for role in record.job.roles:
            team = record.job.team if role.request.fractional else None
            over_s = surely_over_s(record, snapshot, policy) if any_window else 0
            own = record.id if record.replacing else None
            key = (role.request, role.gpu_types, role.count, sites, team, record.level, over_s, own)
            if key not in known:
                known[key] = _slots(record, role, _open(hosts.values(), record, held, snapshot.now_s, over_s), sites)
            workers.append(WorkerClass(record.id, role, known[key]))
        if all(sum(slot.most for slot in w.slots) >= w.role.count for w in workers):
            gangs.append(Gang(record, confinement(record.job), tuple(workers)))
    return Instance(snapshot, policy, hosts, tuple(gangs), may_leave)


def _open(
    hosts: Iterable[HostClass], record: JobRecord, held: Mapping[HostId, Held], now_s: int, over_s: int
) -> list[HostClass]:
    """The hosts that take the gang, as far as their state and their windows go."""
    return [host for host in hosts if open_to(host.host, record, held, now_s) and ends_before(host.host, now_s, over_s)]


def _slots(record: JobRecord, role: Role, hosts: Iterable[HostClass], sites: frozenset[SiteId]) -> tuple[Slot, ...]:
    slots = []
    for host in hosts:
        if host.host.path.site not in sites:
            continue
        beside_cards = _most_beside_cards(role, host, record.level)
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


def _most_beside_cards(role: Role, host: HostClass, level: int) -> int:
    """Workers of the role that CPU, memory and network of the host may come to allow, at most its count."""
    most = role.count
    for resource in ("cpu_milli", "memory_mib", "network_mbps"):
        asked = getattr(role.request, resource)
        if asked:
            freed = sum(getattr(part, resource) for part in host.freed if part.level < level)
            most = min(most, max(0, getattr(host, resource) + freed) // asked)
    return most


def _most_on_cards(record: JobRecord, role: Role, host: HostClass, kind: CardKind) -> int:
    """Workers of the role that the host's cards of that kind may come to allow."""
    request = role.request
    if role.throughput_milli(kind.gpu_type) is None or not card_takes(request, kind.memory_mib):
        return 0
    cards = [card for card in host.cards if card.kind == kind]
    if not request.fractional:
        return sum(card.may_empty(record.level) for card in cards) // request.whole_gpus
    return sum(most_on_card(record, role, card) for card in cards)


def most_on_card(record: JobRecord, role: Role, card: Card) -> int:
    """Fractional workers of the role that one card can come to take; 0 on a card that stays another team's."""
    request = role.request
    milli, memory = card.most_room(record.job.team, record.level)
    most = milli // request.gpu_milli
    booked = card_memory(request, card.kind.memory_mib)
    return min(most, memory // booked) if booked else most
