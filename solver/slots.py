"""Which slots the workers of a role may take: hosts, and the kind of cards they use there.

Slots are pruned to hosts that could take at least one worker, once everybody has left whose capacity it may use.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ..model.ids import HostId, SiteId, TeamId
from ..model.job import Role
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .access import Reach
from .demand import (
    CardKind,
    Held,
    allowed_sites,
    card_memory,
    card_takes,
    ends_before,
    held_back,
    open_to,
    surely_over_s,
)
from .held import Card, HostClass
from .places import Places


@dataclass(frozen=True, slots=True)
class Slot:
    """A place that workers of one class may take: a host, and the kind of cards they use there (None: no cards)."""

    host: HostId
    kind: CardKind | None
    most: int


class Narrow(Protocol):
    """Chooses among the hosts that could take a role of a gang."""

    def __call__(self, record: JobRecord, role: Role, reach: Reach, places: Places) -> list[HostClass]:
        """The hosts to look at, in their order."""


class Slots:
    """The slots of one round's roles. Equal roles have equal slots: a large queue has many jobs of few shapes."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        hosts: Mapping[HostId, HostClass],
        places: Places,
        narrow: Narrow | None = None,
    ) -> None:
        self._snapshot, self._policy, self._narrow = snapshot, policy, narrow
        self._held = held_back(snapshot)
        self._places = places
        # Work that is over between the same two beginnings of windows meets the same windows.
        self._begins = sorted({window.start_s for host in hosts.values() for window in host.host.windows})
        self._known: dict[object, tuple[Slot, ...]] = {}

    def of(self, record: JobRecord, role: Role, reach: Reach) -> tuple[Slot, ...]:
        """Where workers of that role may go, their gang reaching these victims."""
        sites = allowed_sites(record.job, self._snapshot, self._policy)
        team = record.job.team if role.request.fractional else None
        over_s = surely_over_s(record, self._snapshot, self._policy) if self._begins else 0
        own = record.id if record.replacing or self._narrow is not None else None
        level = record.level if self._held else 0
        passed = bisect_left(self._begins, over_s)
        key = (role.request, role.gpu_types, role.count, sites, team, reach, passed, own, level)
        if key not in self._known:
            among = self._narrow(record, role, reach, self._places) if self._narrow else self._places.among(role, reach)
            usable = _open(among, record, self._held, self._snapshot.now_s, over_s)
            self._known[key] = slots_on(usable, record.job.team, role, sites, reach)
        return self._known[key]


def _open(
    hosts: Iterable[HostClass], record: JobRecord, held: Mapping[HostId, Held], now_s: int, over_s: int
) -> list[HostClass]:
    """The hosts that take the gang, as far as their state and their windows go."""
    return [host for host in hosts if open_to(host.host, record, held, now_s) and ends_before(host.host, now_s, over_s)]


def slots_on(
    hosts: Iterable[HostClass], team: TeamId, role: Role, sites: frozenset[SiteId], reach: Reach
) -> tuple[Slot, ...]:
    """The slots on these hosts that take at least one worker of the role, as far as capacity goes."""
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
        asked, free = getattr(role.request, resource), getattr(host, resource)
        if asked * most > free:
            # A job leaves in one way at most, however many there are.
            freed = sum({part.job: getattr(part, resource) for part in host.freed if part.way in reach}.values())
            most = min(most, max(0, free + freed) // asked)
    return most


def _most_on_cards(team: TeamId, role: Role, host: HostClass, kind: CardKind, reach: Reach) -> int:
    """Workers of the role that the host's cards of that kind may come to allow."""
    request = role.request
    if role.throughput_milli(kind.gpu_type) is None or not card_takes(request, kind.memory_mib):
        return 0
    cards = [card for card in host.cards if card.kind == kind]
    if not request.fractional:
        return sum([card.may_empty(reach) for card in cards]) // request.whole_gpus
    return sum(most_on_card(team, role, card, reach) for card in cards)


def most_on_card(team: TeamId, role: Role, card: Card, reach: Reach) -> int:
    """Fractional workers of the role that one card can come to take; 0 on a card that stays another team's."""
    request = role.request
    milli, memory = card.most_room(team, reach)
    most = milli // request.gpu_milli
    booked = card_memory(request, card.kind.memory_mib)
    return min(most, memory // booked) if booked else most
