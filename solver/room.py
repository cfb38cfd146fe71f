"""`room` as terms of the encoder: free cards that their hosts can serve, and standard gangs that could still start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ortools.sat.python.cp_model import IntVar

from ..model.host import MILLI
from ..model.ids import HostId
from ..model.policy import StandardGang
from .appetite import appetite
from .demand import placeable
from .held import Card, HostClass
from .stranded import RESOURCES, Terms, left_of, most_of, strand, sum_of
from .topology import domains
from .variables import Variables

if TYPE_CHECKING:
    from .objective import Sum


@dataclass(frozen=True, slots=True)
class _Count:
    """A number that the round decides: `most`, and the variable; None where nothing changes it."""

    most: int
    variable: IntVar | None = None


@dataclass(frozen=True, slots=True)
class _Supply:
    """Free cards of some types on a host: how many now, what takes them, and what leaves more."""

    free: int
    taking: Terms
    leaving: Sequence[IntVar]

    @property
    def most(self) -> int:
        """The most that may be free."""
        return self.free + len(self.leaving)

    @property
    def moves(self) -> bool:
        """Whether the round may change it."""
        return bool(self.taking or self.leaving)


class Room:
    """Writes the terms of `room` to a sum, host by host, then gang by gang."""

    def __init__(self, variables: Variables, total: Sum) -> None:
        self._variables, self._total = variables, total
        self._objective = variables.instance.policy.objective
        self._beside = appetite(variables.instance.snapshot)
        self._served: dict[HostId, _Count] = {}
        self._blocks: dict[tuple[int, str, HostId], _Count] = {}

    def add(self) -> None:
        """All terms."""
        hosts = {name: host for name, host in self._variables.instance.hosts.items() if placeable(host.host)}
        for host in hosts.values():
            served = self._served[host.id] = self._serve(host)
            self._add(self._objective.usable_s * MILLI, served)
            if self._objective.stranded_s:
                strand(host, self._variables, self._total)
        for gang in self._objective.standard_gangs:
            for members in domains((host.host for host in hosts.values()), gang.layer).values():
                inside = [hosts[host_id] for host_id in members]
                for gpu_type in sorted({kind.gpu_type for host in inside for kind in host.kinds}):
                    self._of_domain(gang, gpu_type, inside)

    def _add(self, worth: int, count: _Count) -> None:
        if count.variable is None:
            self._total.constant += worth * count.most
        else:
            self._total.add(worth, count.variable)

    def _serve(self, host: HostClass) -> _Count:
        """Free cards of the host that what is left beside them can serve."""
        model, supply = self._variables.model, self._supply(host, host.cards)
        rows = [self._beside_row(host, number, supply.most) for number in range(len(RESOURCES))]
        limits = [(number, *row) for number, row in enumerate(rows) if row is not None]
        if not supply.moves and not any(use or gain for _, use, gain in limits):
            return _Count(self._beside.served(supply.free, left_of(host)))
        most = supply.most
        for number, _, gain in limits:
            left = left_of(host)[number] + sum(amount for amount, _ in gain)
            most = min(most, max(0, left) // self._beside.beside[number])
        if most == 0:
            return _Count(0)
        served = model.new_int_var(0, most, f"served[{host.id}]")
        if supply.moves or supply.free < most:
            model.add(served + sum_of(supply.taking) <= supply.free + sum(supply.leaving))
        for number, use, gain in limits:
            left = left_of(host)[number]
            row = model.add(self._beside.beside[number] * served + sum_of(use) <= left + sum_of(gain))
            if left < 0:
                # Where running work exceeds the host already, none is served unless enough leaves.
                enough = model.new_bool_var(f"enough[{host.id},{RESOURCES[number]}]")
                row.only_enforce_if(enough)
                model.add(served <= most * enough)
        return _Count(most, served)

    def _beside_row(self, host: HostClass, number: int, cards: int) -> tuple[Terms, Terms] | None:
        """What comes to the host and leaves it of one resource; None where enough for all cards is left at any rate."""
        needed, resource = self._beside.beside[number], RESOURCES[number]
        use = [
            (amount, part.count)
            for part in self._variables.on_host(host.id)
            if (amount := getattr(part.role.request, resource))
        ]
        most = sum(amount * most_of(variable) for amount, variable in use)
        if not cards or not needed or needed * cards + most <= left_of(host)[number]:
            return None
        gain = [(amount, self._variables.left(part.way)) for part in host.freed if (amount := getattr(part, resource))]
        return use, gain

    def _supply(self, host: HostClass, cards: Iterable[Card]) -> _Supply:
        """Cards of the host that may be free."""
        taking: Terms = []
        leaving: list[IntVar] = []
        usable = [card for card in cards if not card.fixed]
        for kind in sorted({card.kind for card in usable}):
            coming = self._variables.on_kind(host.id, kind)
            taking.extend((part.role.request.whole_gpus, part.count) for part in coming)
        for card in usable:
            shared, emptied = self._variables.shared(host.id, card), self._variables.emptied(host.id, card)
            if emptied is not None:
                leaving.append(emptied)
            elif card.holders:
                leaving.append(self._variables.gone(card.holders[0].job))
            if shared is not None and emptied is None:
                taking.append((1, shared))
        return _Supply(sum(card.free for card in usable), taking, leaving)

    def _of_domain(self, gang: StandardGang, gpu_type: str, hosts: list[HostClass]) -> None:
        """Gangs of that shape on cards of that type in a domain."""
        worth = gang.workers * gang.gpus * MILLI * self._objective.room_s
        blocks = [self._block(gang.gpus, gpu_type, host) for host in hosts]
        if gang.workers == 1:
            for block in blocks:
                self._add(worth, block)
            return
        fixed = sum(block.most for block in blocks if block.variable is None)
        moving = [block.variable for block in blocks if block.variable is not None]
        most = sum(block.most for block in blocks) // gang.workers
        if not moving:
            self._add(worth, _Count(most))
        elif most:
            name = f"room[{gang.workers}x{gang.gpus},{gpu_type},{hosts[0].id}]"
            fit = self._variables.model.new_int_var(0, most, name)
            self._variables.model.add(gang.workers * fit <= fixed + sum(moving))
            self._add(worth, _Count(most, fit))

    def _block(self, gpus: int, gpu_type: str, host: HostClass) -> _Count:
        """Blocks of that many free cards of the type on a host that it can serve."""
        key = (gpus, gpu_type, host.id)
        if key not in self._blocks:
            self._blocks[key] = self._new_block(gpus, gpu_type, host)
        return self._blocks[key]

    def _new_block(self, gpus: int, gpu_type: str, host: HostClass) -> _Count:
        model, served = self._variables.model, self._served[host.id]
        supply = self._supply(host, [card for card in host.cards if card.kind.gpu_type == gpu_type])
        most = min(supply.most, served.most) // gpus
        if most == 0:
            return _Count(0)
        if served.variable is None:
            # Nothing that comes or leaves changes what is free here.
            return _Count(min(supply.free, served.most) // gpus)
        block = model.new_int_var(0, most, f"blocks[{gpus},{gpu_type},{host.id}]")
        model.add(gpus * block <= served.variable)
        if len({kind.gpu_type for kind in host.kinds}) > 1:
            model.add(gpus * block + sum_of(supply.taking) <= supply.free + sum(supply.leaving))
        return _Count(most, block)
