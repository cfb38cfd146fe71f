"""What is free on one host and on each of its cards, as workers come and go (RULES 4)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping

from ..model.host import MILLI, Host
from ..model.ids import TeamId
from ..model.job import WorkerRequest
from .demand import CardKind, card_memory, card_takes

_NO_TEAMS: Mapping[TeamId, int] = {}


class Card:
    """One card: free milli-GPU and MiB, and how many workers of each team share it.

    Both amounts may be negative where running work already exceeds the card. `teams` is shared with copies of the
    card: it is replaced, never written to.
    """

    __slots__ = ("healthy", "index", "kind", "memory_mib", "milli", "teams")

    def __init__(self, index: int, kind: CardKind, healthy: bool) -> None:
        self.index = index
        self.kind = kind
        self.healthy = healthy
        self.milli = MILLI
        self.memory_mib = kind.memory_mib
        self.teams: Mapping[TeamId, int] = _NO_TEAMS

    def copy(self) -> Card:
        """The same card, with amounts of its own."""
        other = Card.__new__(Card)
        other.index, other.kind, other.healthy = self.index, self.kind, self.healthy
        other.milli, other.memory_mib, other.teams = self.milli, self.memory_mib, self.teams
        return other

    @property
    def empty(self) -> bool:
        """Whether no worker is on the card."""
        return not self.teams

    def shares(self, request: WorkerRequest, team: TeamId) -> int:
        """How many more fractions of that request the card takes from the team."""
        if not self.healthy or (self.teams and (len(self.teams) > 1 or team not in self.teams)):
            return 0
        number = self.milli // request.gpu_milli
        memory = card_memory(request, self.kind.memory_mib)
        return max(0, min(number, self.memory_mib // memory) if memory else number)


class HostBook:
    """What is free on one host: milli-cores, MiB, Mbit/s, its cards, and by kind the indices of its empty cards.

    `free_milli`: of all healthy cards together, parts of shared ones included.
    """

    __slots__ = ("_state", "cards", "cpu_milli", "free", "free_milli", "host", "memory_mib", "network_mbps")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.cpu_milli = host.cpu_milli
        self.memory_mib = host.memory_mib
        self.network_mbps = host.network_mbps
        self.cards = {gpu.index: Card(gpu.index, CardKind.of(gpu), gpu.healthy) for gpu in host.gpus}
        self.free_milli = MILLI * sum(gpu.healthy for gpu in host.gpus)
        self._state: tuple[int, ...] | None = None
        self.free: dict[CardKind, list[int]] = {}
        for index, card in sorted(self.cards.items()):
            if card.healthy:
                self.free.setdefault(card.kind, []).append(index)

    def copy(self) -> HostBook:
        """The same host, with amounts of its own."""
        other = HostBook.__new__(HostBook)
        other.host, other.cpu_milli, other.memory_mib = self.host, self.cpu_milli, self.memory_mib
        other.network_mbps, other.free_milli, other._state = self.network_mbps, self.free_milli, self._state
        other.cards = {index: card.copy() for index, card in self.cards.items()}
        other.free = {kind: list(free) for kind, free in self.free.items()}
        return other

    def book(self, request: WorkerRequest, team: TeamId, gpus: Iterable[int], sign: int) -> None:
        """Books a worker (sign 1), or gives back what it held (sign -1)."""
        self.book_amounts(request.cpu_milli, request.memory_mib, request.network_mbps, sign)
        if request.fractional:
            for index in gpus:
                memory_mib = card_memory(request, self.cards[index].kind.memory_mib)
                self.book_card(index, team, request.gpu_milli, memory_mib, sign)
        else:
            for index in gpus:
                self.book_card(index, team, MILLI, self.cards[index].kind.memory_mib, sign)

    def book_amounts(self, cpu_milli: int, memory_mib: int, network_mbps: int, sign: int) -> None:
        """Books what is beside cards (sign 1), or gives it back (sign -1)."""
        self._state = None
        self.cpu_milli -= sign * cpu_milli
        self.memory_mib -= sign * memory_mib
        self.network_mbps -= sign * network_mbps

    def book_card(self, index: int, team: TeamId, milli: int, memory_mib: int, sign: int) -> None:
        """Books a part of a card for a team (sign 1), or gives it back (sign -1); the card is not empty meanwhile."""
        card = self.cards[index]
        was_empty = not card.teams
        taken = sign * milli
        self._state = None
        card.milli -= taken
        card.memory_mib -= sign * memory_mib
        left = card.teams.get(team, 0) + sign
        teams: Mapping[TeamId, int]
        # Nearly always a whole card that comes to be taken, or empty.
        if left and was_empty:
            teams = {team: left}
        elif not left and len(card.teams) == 1:
            teams = _NO_TEAMS
        else:
            teams = {name: number for name, number in {**card.teams, team: left}.items() if number}
        card.teams = teams
        if card.healthy:
            self.free_milli -= taken
            if was_empty:
                if teams:
                    self.free[card.kind].remove(index)
            elif not teams:
                insort(self.free[card.kind], index)

    @property
    def state(self) -> tuple[int, ...]:
        """What tells the host from one that is worth another: amounts left, and kinds and numbers of its empty cards.

        Kinds of cards are made once each, so that they may be told by identity.
        """
        if self._state is None:
            amounts = (self.cpu_milli, self.memory_mib, self.network_mbps, self.free_milli)
            self._state = (*amounts, *map(id, self.free), *map(len, self.free.values()))
        return self._state

    def workers(self, request: WorkerRequest, limit: int) -> int:
        """How many of at most `limit` workers the host's CPU, memory and network take."""
        if request.cpu_milli:
            limit = min(limit, self.cpu_milli // request.cpu_milli)
        if request.memory_mib:
            limit = min(limit, self.memory_mib // request.memory_mib)
        if request.network_mbps:
            limit = min(limit, self.network_mbps // request.network_mbps)
        return max(limit, 0)

    def room(self, request: WorkerRequest, team: TeamId, gpu_type: str | None, limit: int) -> int:
        """How many of at most `limit` workers with cards of that type (None: without GPUs) fit on top of all others."""
        if gpu_type is None:
            return self.workers(request, limit)
        if request.fractional:
            number = sum(card.shares(request, team) for card in self.cards.values() if card.kind.gpu_type == gpu_type)
        else:
            number = sum(
                len(free) // request.whole_gpus
                for kind, free in self.free.items()
                if kind.gpu_type == gpu_type and card_takes(request, kind.memory_mib)
            )
        return self.workers(request, min(limit, number)) if number else 0

    def kinds(self, request: WorkerRequest, gpu_type: str) -> list[CardKind]:
        """The kinds of that type with a worker's whole cards free, least memory first."""
        return sorted(
            kind
            for kind, free in self.free.items()
            if kind.gpu_type == gpu_type and card_takes(request, kind.memory_mib) and len(free) >= request.whole_gpus
        )

    def share(self, request: WorkerRequest, team: TeamId, gpu_type: str, memory_mib: int | None = None) -> int | None:
        """The card of that type (and memory) for one fraction: the fullest that takes it, empty ones last; or None."""
        takers = [
            (card.empty, card.milli, card.kind.memory_mib, index)
            for index, card in self.cards.items()
            if card.kind.gpu_type == gpu_type
            and memory_mib in (None, card.kind.memory_mib)
            and card.shares(request, team)
        ]
        return min(takers)[3] if takers else None
