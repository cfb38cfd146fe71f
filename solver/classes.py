"""Reduction: what the encoder tells apart, and which host classes each worker class may use.

The encoder knows host classes and worker classes only. At the singleton grain each host is a class of its own and each
role of each job is a class of its own; candidates are pruned to hosts that could take at least one worker, once every
job that may be preempted for it has left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ..model.ids import HostId, JobId, SiteId, TeamId
from ..model.job import Role
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .access import Access, Reach
from .confinements import confinements
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
from .places import Places
from .rights import Rights, only_inside, rights_of


@dataclass(frozen=True, slots=True)
class Slot:
    """A place that workers of one class may take: a host, and the kind of cards they use there (None: no cards)."""

    host: HostId
    kind: CardKind | None
    most: int


@dataclass(frozen=True, slots=True)
class WorkerClass:
    """The identical workers of one role of one gang, the slots they may take, and the GPU types a guarantee covers."""

    job: JobId
    role: Role
    slots: tuple[Slot, ...]
    covered: tuple[str, ...] = ()

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """GPU types of its slots, each once, sorted."""
        return tuple(sorted({slot.kind.gpu_type for slot in self.slots if slot.kind is not None}))


@dataclass(frozen=True, slots=True)
class Gang:
    """One candidate of the round and its worker classes, in the order of its roles.

    `reach`: the possible victims whose capacity it may use; `widest_reach`: the same if it starts inside its guarantee,
    where it can (`may_be_inside`); `only_inside`: it starts so or not at all.
    """

    record: JobRecord
    confinement: Confinement
    workers: tuple[WorkerClass, ...]
    reach: Reach
    widest_reach: Reach
    may_be_inside: bool
    only_inside: bool

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
    rights: Rights

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


class Narrow(Protocol):
    """Chooses among the hosts that could take a role of a gang."""

    def __call__(self, record: JobRecord, role: Role, reach: Reach, places: Places) -> list[HostClass]:
        """The hosts to look at, in their order."""


class TooLarge(Exception):
    """The instance has more slots than were asked for."""


def reduce(snapshot: Snapshot, policy: Policy, *, most: int | None = None, narrow: Narrow | None = None) -> Instance:
    """The instance of this round at the singleton grain; `narrow` leaves gangs only some of their hosts.

    Raises TooLarge once it has more than `most` slots.
    """
    may_leave = victims(snapshot, policy)
    hosts = host_classes(snapshot, may_leave)
    rights = rights_of(snapshot)
    access, slots = Access(rights, may_leave), _Slots(snapshot, policy, hosts, narrow)
    confinement = confinements(snapshot, policy)
    gangs, total = [], 0
    for record in candidates(snapshot):
        may, only = rights.can_be_inside(record), only_inside(record)
        widest = access.reach(record, inside=may)
        workers = tuple(
            slots.of(record, role, widest, _covered(record, role, rights, may)) for role in record.job.roles
        )
        may = may and all(w.covered for w in workers if w.role.request.gpu_milli)
        if only and not may:
            continue
        if all(sum(slot.most for slot in w.slots) >= w.role.count for w in workers):
            reach = access.reach(record, inside=False)
            gangs.append(Gang(record, confinement(record.job), workers, reach, widest if may else reach, may, only))
            total += sum(len(w.slots) for w in workers)
            if most is not None and total > most:
                raise TooLarge(f"more than {most} slots")
    return Instance(snapshot, policy, hosts, tuple(gangs), may_leave, rights)


def _covered(record: JobRecord, role: Role, rights: Rights, may: bool) -> frozenset[str]:
    """The GPU types on which the role fits into what is left of a guarantee of its team."""
    if not may or not role.request.gpu_milli:
        return frozenset()
    return frozenset(
        gpu_type
        for (team, gpu_type), left in rights.left.items()
        if left >= role.gpu_milli and rights.holder(record.job.team, gpu_type) == team
    )


class _Slots:
    """The slots of worker classes. Equal roles have equal slots: a large queue has many jobs of few shapes."""

    def __init__(
        self, snapshot: Snapshot, policy: Policy, hosts: dict[HostId, HostClass], narrow: Narrow | None
    ) -> None:
        self._snapshot, self._policy, self._narrow = snapshot, policy, narrow
        self._held = held_back(snapshot)
        self._places = Places(hosts.values())
        # Work that is over between the same two beginnings of windows meets the same windows.
        self._begins = sorted({window.start_s for host in hosts.values() for window in host.host.windows})
        self._known: dict[object, tuple[Slot, ...]] = {}

    def of(self, record: JobRecord, role: Role, reach: Reach, covered: frozenset[str]) -> WorkerClass:
        """The workers of that role, their gang reaching these victims, and covered on these GPU types."""
        sites = allowed_sites(record.job, self._snapshot, self._policy)
        team = record.job.team if role.request.fractional else None
        over_s = surely_over_s(record, self._snapshot, self._policy) if self._begins else 0
        own = record.id if record.replacing or self._narrow is not None else None
        level = record.level if self._held else 0
        key = (
            role.request,
            role.gpu_types,
            role.count,
            sites,
            team,
            reach,
            bisect_left(self._begins, over_s),
            own,
            level,
        )
        if key not in self._known:
            among = self._narrow(record, role, reach, self._places) if self._narrow else self._places.among(role, reach)
            usable = _open(among, record, self._held, self._snapshot.now_s, over_s)
            self._known[key] = _slots(record.job.team, role, usable, sites, reach)
        slots = self._known[key]
        if not covered:
            return WorkerClass(record.id, role, slots)
        if only_inside(record):
            slots = tuple(slot for slot in slots if slot.kind is not None and slot.kind.gpu_type in covered)
        types = sorted({slot.kind.gpu_type for slot in slots if slot.kind is not None} & covered)
        return WorkerClass(record.id, role, slots, tuple(types))


def _open(
    hosts: Iterable[HostClass], record: JobRecord, held: Mapping[HostId, Held], now_s: int, over_s: int
) -> list[HostClass]:
    """The hosts that take the gang, as far as their state and their windows go."""
    return [host for host in hosts if open_to(host.host, record, held, now_s) and ends_before(host.host, now_s, over_s)]


def _slots(
    team: TeamId, role: Role, hosts: Iterable[HostClass], sites: frozenset[SiteId], reach: Reach
) -> tuple[Slot, ...]:
    slots = []
    for host in hosts:
        if host.host.path.site not in sites:
            continue
        beside_cards = _most_beside_cards(role, host, reach)
        if beside_cards == 0:
            continue
        if not role.request.gpu_milli:
            slots.append(Slot(host.id, None, beside_cards))
            continue
        for kind in sorted({card.kind for card in host.cards}):
            most = min(beside_cards, _most_on_cards(team, role, host, kind, reach))
            if most > 0:
                slots.append(Slot(host.id, kind, most))
    return tuple(slots)


def _most_beside_cards(role: Role, host: HostClass, reach: Reach) -> int:
    """Workers of the role that CPU, memory and network of the host may come to allow, at most its count."""
    most = role.count
    for resource in ("cpu_milli", "memory_mib", "network_mbps"):
        asked = getattr(role.request, resource)
        if asked:
            freed = sum(getattr(part, resource) for part in host.freed if part.job in reach)
            most = min(most, max(0, getattr(host, resource) + freed) // asked)
    return most


def _most_on_cards(team: TeamId, role: Role, host: HostClass, kind: CardKind, reach: Reach) -> int:
    """Workers of the role that the host's cards of that kind may come to allow."""
    request = role.request
    if role.throughput_milli(kind.gpu_type) is None or not card_takes(request, kind.memory_mib):
        return 0
    cards = [card for card in host.cards if card.kind == kind]
    if not request.fractional:
        return sum(card.may_empty(reach) for card in cards) // request.whole_gpus
    return sum(most_on_card(team, role, card, reach) for card in cards)


def most_on_card(team: TeamId, role: Role, card: Card, reach: Reach) -> int:
    """Fractional workers of the role that one card can come to take; 0 on a card that stays another team's."""
    request = role.request
    milli, memory = card.most_room(team, reach)
    most = milli // request.gpu_milli
    booked = card_memory(request, card.kind.memory_mib)
    return min(most, memory // booked) if booked else most
