"""Which slots the workers of a role may take: hosts, and the kind of cards they use there.

Slots are pruned to hosts that could take at least one worker, once everybody has left whose capacity it may use.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..model.ids import HostId, SiteId, TeamId
from ..model.job import Role
from .access import Reach
from .demand import CardKind, card_memory, card_takes
from .held import Card, HostClass


@dataclass(frozen=True, slots=True)
class Slot:
    """A place that workers of one class may take: a host, and the kind of cards they use there (None: no cards)."""

    host: HostId
    kind: CardKind | None
    most: int


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
