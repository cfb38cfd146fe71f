"""Which hosts could take workers of a role at all, answered from an index: a full fleet has few of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..model.ids import TeamId
from ..model.job import Role
from .access import Reach
from .demand import CardKind, card_takes
from .held import Card, HostClass

_NOBODY = TeamId("")
_Numbered = tuple[int, HostClass]


class Places:
    """The hosts of one round, by what work of each reach can come to find on their cards."""

    def __init__(self, hosts: Iterable[HostClass]) -> None:
        self._hosts = list(hosts)
        self._whole: dict[Reach, dict[CardKind, dict[int, list[_Numbered]]]] = {}
        self._shared: dict[Reach, list[HostClass]] = {}
        self._known: dict[object, list[HostClass]] = {}

    def among(self, role: Role, reach: Reach) -> list[HostClass]:
        """The hosts whose cards may come to take a worker of the role, in their order; some of them may not."""
        request = role.request
        if not request.gpu_milli:
            return self._hosts
        if request.fractional:
            return self._with_room(reach)
        key = (reach, request.whole_gpus, request.gpu_memory_mib, role.gpu_types)
        if key not in self._known:
            found: dict[int, HostClass] = {}
            for kind, by_count in self._empty(reach).items():
                if role.throughput_milli(kind.gpu_type) is not None and card_takes(request, kind.memory_mib):
                    for count, hosts in by_count.items():
                        if count >= request.whole_gpus:
                            found.update(hosts)
            self._known[key] = [found[number] for number in sorted(found)]
        return self._known[key]

    def _empty(self, reach: Reach) -> dict[CardKind, dict[int, list[_Numbered]]]:
        """By kind and number of cards that may come to be empty: the hosts."""
        if reach not in self._whole:
            table: dict[CardKind, dict[int, list[_Numbered]]] = {}
            for number, host in enumerate(self._hosts):
                for kind, count in Counter(card.kind for card in host.cards if card.may_empty(reach)).items():
                    table.setdefault(kind, {}).setdefault(count, []).append((number, host))
            self._whole[reach] = table
        return self._whole[reach]

    def _with_room(self, reach: Reach) -> list[HostClass]:
        """The hosts with a card that may come to have room for a fraction of some team."""
        if reach not in self._shared:
            self._shared[reach] = [host for host in self._hosts if any(_has_room(card, reach) for card in host.cards)]
        return self._shared[reach]


def _has_room(card: Card, reach: Reach) -> bool:
    return card.may_empty(reach) or card.most_room(card.team or _NOBODY, reach)[0] > 0
