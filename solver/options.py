"""Where gangs of one shape could go now, and what each such place would cost, kept up to date beside the books."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from ..model.host import MILLI
from ..model.ids import HostId, SiteId, TeamId
from ..model.job import Job, Role
from ..model.policy import ObjectivePolicy
from .appetite import Amounts, Appetite
from .bars import Bar
from .books import Books, HostBook
from .demand import Confinement, card_takes
from .pressure import Pressure
from .rooms import Path, Rooms, Tree, depth

_MOST_COMBINATIONS = 64
"""Choices of a GPU type for each role that are looked at; only gangs of many roles have more."""

Types = tuple[str | None, ...]
"""For each role the type of its cards; None for roles without GPUs."""

Cost = tuple[int, int, int, int, int]
"""Loss of economy [mGPU*s], cards opened, cards or workers left over, milli-cores left over, place in the tree."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What decides where a gang may go; gangs of equal shape share their options. `team` matters to fractions only."""

    roles: tuple[Role, ...]
    confinement: Confinement
    sites: frozenset[SiteId]
    team: TeamId | None
    bar: Bar
    number: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Roles nest deeply, and shapes are looked up often.
        number = hash((self.roles, self.confinement, self.sites, self.team, self.bar))
        object.__setattr__(self, "number", number)

    def __hash__(self) -> int:
        return self.number

    @staticmethod
    def of(job: Job, confinement: Confinement, sites: frozenset[SiteId], bar: Bar) -> Shape:
        """The shape of that job."""
        team = job.team if any(role.request.fractional for role in job.roles) else None
        return Shape(job.roles, confinement, sites, team, bar)


@dataclass(frozen=True, slots=True)
class Fleet:
    """What the costs of options are measured against: the fleet's GPUs, the demand, and what goals are worth."""

    count: dict[str, int]
    objective: ObjectivePolicy
    appetite: Appetite
    _blocks: dict[int, int] = field(default_factory=dict, compare=False, repr=False)
    _whole: dict[tuple[int, ...], tuple[dict[str, int], int]] = field(default_factory=dict, compare=False, repr=False)

    def loss(self, role: Role, gpu_type: str) -> int:
        """What the whole role loses of speed and takes of rare cards on that type [mGPU*s]."""
        speeds = [speed for name in self.count if (speed := role.throughput_milli(name)) is not None]
        best, most = max(speeds, default=1), max(self.count.values(), default=1)
        slow = (
            role.request.gpu_milli * self.objective.horizon_s * (best - (role.throughput_milli(gpu_type) or 0)) // best
        )
        rare = role.request.gpu_milli * self.objective.scarce_s * (most - self.count.get(gpu_type, 0)) // most
        wanted = role.request.gpu_milli * self.objective.wanted_s * self.appetite.wanted.get(gpu_type, 0) // MILLI
        return role.count * (slow + rare + wanted)

    def whole(self, book: HostBook) -> tuple[Mapping[str, int], int]:
        """The free cards of a host by type, and their worth as it is."""
        found = self._whole.get(book.state)
        if found is None:
            free: dict[str, int] = {}
            for kind, cards in book.free.items():
                free[kind.gpu_type] = free.get(kind.gpu_type, 0) + len(cards)
            worth = self.room(free, (book.cpu_milli, book.memory_mib, book.network_mbps), book.free_milli)
            found = self._whole[book.state] = free, worth
        return found

    def room(self, free: Mapping[str, int], left: Amounts, milli: int) -> int:
        """The worth of the free cards of a host, by type, with that left beside them [mGPU*s].

        `milli`: what is free of its cards, parts of shared ones included.
        """
        served = self.appetite.served(sum(free.values()), left)
        blocks = 0
        for cards in free.values():
            most = min(cards, served)
            found = self._blocks.get(most)
            if found is None:
                found = self._blocks[most] = sum(
                    most // gang.gpus * gang.gpus for gang in self.objective.standard_gangs
                )
            blocks += found
        lost = self.appetite.stranded(milli, left) * self.objective.stranded_s
        return MILLI * (served * self.objective.usable_s + blocks * self.objective.room_s) - lost


class Options:
    """The places for gangs of one shape: a choice of GPU types and a domain in which every role has room."""

    def __init__(self, shape: Shape, tree: Tree, books: Books, fleet: Fleet, rooms: Sequence[dict[str | None, Rooms]]):
        self._shape, self._tree, self._books, self._fleet, self._rooms = shape, tree, books, fleet, rooms
        layers = {shape.confinement.required, *shape.confinement.preferred}
        self._depths = sorted(depth(layer) for layer in layers)
        self._loss = {types: self._type_loss(types) for types in self._combinations()}
        self._milli = sum(role.gpu_milli for role in shape.roles)
        self._cost: dict[Types, dict[Path, Cost]] = {types: {} for types in self._loss}
        self._seen = len(books.changed)
        self._needs = {
            types: [
                (role.count, rooms[name]) for role, name, rooms in zip(shape.roles, types, self._rooms, strict=True)
            ]
            for types in self._loss
        }
        self._known: dict[Types, dict[tuple[int, ...], tuple[int, int, int, int] | None]] = {
            types: {} for types in self._loss
        }
        requests = [(role.count, role.request) for role in shape.roles]
        self._fractional = any(request.fractional for _, request in requests)
        self._asked = (
            sum(count * request.cpu_milli for count, request in requests),
            sum(count * request.memory_mib for count, request in requests),
            sum(count * request.network_mbps for count, request in requests),
        )
        for types, ((count, first), *_) in self._needs.items():
            self._refresh(types, [node for node in first.nodes(count) if len(node) in self._depths])

    def best(
        self,
        number: int,
        pressure: Pressure,
        may: Callable[[Types], bool] | None = None,
        there: Callable[[Types, Path], bool] | None = None,
    ) -> list[tuple[Types, Path]]:
        """The best options now, at most `number`: least pressure on gangs without a choice, then the cheapest.

        `may` tells whether a choice of types is allowed at all, `there` whether it is in a domain; by default all are.
        """
        self._catch_up()
        found: list[tuple[int, Cost, Types, Path]] = []
        for types, costs in self._cost.items():
            if costs and there is not None:
                costs = {node: cost for node, cost in costs.items() if there(types, node)}
            if costs and (may is None or may(types)):
                overflow = pressure.overflow(self._shape.roles, types) if len(self._cost) > 1 else 0
                if number == 1:
                    nodes = [min(costs, key=costs.__getitem__)]
                else:
                    nodes = heapq.nsmallest(number, costs, key=costs.__getitem__)
                found.extend((overflow, costs[node], types, node) for node in nodes)
        found.sort(key=lambda option: option[:2])
        return [(types, node) for _, _, types, node in found[:number]]

    def _combinations(self) -> Iterator[Types]:
        choices: list[list[str | None]] = []
        for role, rooms in zip(self._shape.roles, self._rooms, strict=True):
            cheapest = sorted((self._loss_of(role, name), name or "", name) for name in rooms)
            choices.append([name for _, _, name in cheapest])
        for number, types in enumerate(product(*choices)):
            if number == _MOST_COMBINATIONS:
                return
            yield types

    def _loss_of(self, role: Role, gpu_type: str | None) -> int:
        return 0 if gpu_type is None else self._fleet.loss(role, gpu_type)

    def _type_loss(self, types: Types) -> int:
        return sum(self._loss_of(role, name) for role, name in zip(self._shape.roles, types, strict=True))

    def _catch_up(self) -> None:
        changed = self._books.changed
        if self._seen == len(changed):
            return
        moved = {name for name in changed[self._seen :] if name in self._tree.path}
        self._seen = len(changed)
        for rooms in self._rooms:
            for room in rooms.values():
                room.catch_up()
        nodes = {self._tree.path[name][:end] for name in moved for end in self._depths}
        for types in self._loss:
            self._refresh(types, nodes)

    def _refresh(self, types: Types, nodes: Iterable[Path]) -> None:
        """Works out anew what these domains cost. It runs over many nodes, and says what it can without a call."""
        costs, loss, hosts = self._cost[types], self._loss[types], self._tree.host
        (count, first), *others = self._needs[types]
        room = first.by_domain.get
        for node in nodes:
            slack = room(node, 0) - count
            for number, rooms in others:
                slack = min(slack, rooms[node] - number)
            cost = None
            if slack >= 0:
                host = hosts.get(node)
                cost = self._wide(loss, slack, node) if host is None else self._narrow(types, loss, host, node)
            if cost is not None:
                costs[node] = cost
            elif node in costs:
                del costs[node]

    def _wide(self, loss: int, slack: int, node: Path) -> Cost:
        """A domain of several hosts: what it does not confine further is expected to spread over two domains."""
        objective = self._fleet.objective
        spread = sum(depth(layer) > len(node) for layer in self._shape.confinement.preferred)
        return loss + spread * objective.spread_s * self._milli, 0, slack, 0, self._tree.rank[node]

    def _narrow(self, types: Types, loss: int, name: HostId, node: Path) -> Cost | None:
        """One host: None where the roles do not fit on it together."""
        book = self._books.hosts[name]
        if self._fractional:
            found = self._alone(types, book)
        else:
            # Many hosts are in equal state.
            known, state = self._known[types], book.state
            if state not in known:
                known[state] = self._alone(types, book)
            found = known[state]
        if found is None:
            return None
        lost, opened, after, cpu = found
        return loss + lost, opened, after, cpu, self._tree.rank[node]

    def _alone(self, types: Types, book: HostBook) -> tuple[int, int, int, int] | None:
        """The cost of a host but for the types' loss and the place in the tree: nothing else of the host counts."""
        cpu, memory, network = self._asked
        left = (book.cpu_milli - cpu, book.memory_mib - memory, book.network_mbps - network)
        if len(types) > 1 and min(left) < 0:
            return None
        taken: dict[str, int] = {}
        for role, gpu_type in zip(self._shape.roles, types, strict=True):
            if gpu_type is not None:
                taken[gpu_type] = taken.get(gpu_type, 0) + _opened(role, gpu_type, book, self._shape.team)
        free, lost = self._fleet.whole(book)
        after = {}
        for gpu_type, cards_free in free.items():
            rest = cards_free - taken.get(gpu_type, 0)
            if rest < 0 and not self._shares(types, gpu_type):
                return None
            after[gpu_type] = max(0, rest)
        room = self._fleet.room(after, left, book.free_milli - self._milli)
        return lost - room, sum(taken.values()), sum(after.values()), left[0]

    def _shares(self, types: Types, gpu_type: str) -> bool:
        """Whether fractions of several roles may share cards of that type, on which each is counted alone."""
        chosen = zip(self._shape.roles, types, strict=True)
        return sum(role.request.fractional and name == gpu_type for role, name in chosen) > 1


def _opened(role: Role, gpu_type: str, book: HostBook, team: TeamId | None) -> int:
    """Empty cards that the role would take on the host; fractions go to cards shared already while these last."""
    request = role.request
    if not request.fractional or team is None:
        return role.count * request.whole_gpus
    left, each = role.count, MILLI // request.gpu_milli
    for card in book.cards.values():
        if card.kind.gpu_type == gpu_type and not card.empty:
            left -= card.shares(request, team)
    if left <= 0:
        return 0
    empty = [
        book.cards[cards[0]].shares(request, team)
        for kind, cards in book.free.items()
        if cards and kind.gpu_type == gpu_type and card_takes(request, kind.memory_mib)
    ]
    each = max(empty, default=each) or each
    return -(-left // each)
