"""Capacity books: what is free on every host and card, kept up to date as workers come and go (RULES 4).

The books know amounts only, and keep the ledger of limits and labels beside them. Whether a host may take new work at
all, which GPU types a role accepts and where a gang must stay together is asked elsewhere.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator

from ..model.host import MILLI, Host
from ..model.ids import HostId, TeamId
from ..model.job import Job, WorkerRequest
from ..model.placement import WorkerPlacement
from ..model.policy import ReservedPool
from ..model.snapshot import Snapshot
from .demand import CardKind, card_memory, card_takes
from .ledger import Ledger
from .ranks import Placed


class Card:
    """One card: free milli-GPU and MiB, and how many workers of each team share it.

    Both amounts may be negative where running work already exceeds the card.
    """

    __slots__ = ("healthy", "index", "kind", "memory_mib", "milli", "teams")

    def __init__(self, index: int, kind: CardKind, healthy: bool) -> None:
        self.index = index
        self.kind = kind
        self.healthy = healthy
        self.milli = MILLI
        self.memory_mib = kind.memory_mib
        self.teams: dict[TeamId, int] = {}

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
    """What is free on one host: milli-cores, MiB, Mbit/s, its cards, and by kind the indices of its empty cards."""

    __slots__ = ("cards", "cpu_milli", "free", "host", "memory_mib", "network_mbps")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.cpu_milli = host.cpu_milli
        self.memory_mib = host.memory_mib
        self.network_mbps = host.network_mbps
        self.cards = {gpu.index: Card(gpu.index, CardKind.of(gpu), gpu.healthy) for gpu in host.gpus}
        self.free: dict[CardKind, list[int]] = {}
        for index, card in sorted(self.cards.items()):
            if card.healthy:
                self.free.setdefault(card.kind, []).append(index)

    def book(self, request: WorkerRequest, team: TeamId, gpus: Iterable[int], sign: int) -> None:
        """Books a worker (sign 1), or gives back what it held (sign -1)."""
        self.cpu_milli -= sign * request.cpu_milli
        self.memory_mib -= sign * request.memory_mib
        self.network_mbps -= sign * request.network_mbps
        for index in gpus:
            memory_mib = card_memory(request, self.cards[index].kind.memory_mib)
            self.book_card(index, team, request.gpu_milli if request.fractional else MILLI, memory_mib, sign)

    def book_card(self, index: int, team: TeamId, milli: int, memory_mib: int, sign: int) -> None:
        """Books a part of a card for a team (sign 1), or gives it back (sign -1); the card is not empty meanwhile."""
        card = self.cards[index]
        was_empty = card.empty
        card.milli -= sign * milli
        card.memory_mib -= sign * memory_mib
        left = card.teams.get(team, 0) + sign
        if left:
            card.teams[team] = left
        else:
            del card.teams[team]
        if card.healthy and card.empty != was_empty:
            free = self.free[card.kind]
            if was_empty:
                free.remove(index)
            else:
                insort(free, index)

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


class Books:
    """The books of all hosts, with everything booked that holds capacity in the snapshot.

    `changed` lists the hosts of all bookings in order, so that an index can catch up with what moved since it looked.
    """

    def __init__(self, snapshot: Snapshot, reserved: Iterable[ReservedPool] = ()) -> None:
        self.hosts: dict[HostId, HostBook] = {host.id: HostBook(host) for host in snapshot.hosts}
        self.changed: list[HostId] = []
        self.ledger = Ledger(snapshot, reserved)
        for job, worker in holding(snapshot):
            self.take(job, worker)

    def take(self, job: Job, worker: WorkerPlacement) -> None:
        """Books one worker, whether it fits or not."""
        self.pencil(job, worker, 1)
        self._enter(job, worker, 1)

    def give(self, job: Job, worker: WorkerPlacement) -> None:
        """Undoes `take`."""
        self.pencil(job, worker, -1)
        self._enter(job, worker, -1)

    def fits(self, job: Job, worker: WorkerPlacement) -> bool:
        """Whether the worker, with exactly these cards, fits on top of all others: amounts, kinds, team, health."""
        book, request = self.hosts[worker.host], _request(job, worker)
        if not book.workers(request, 1):
            return False
        cards = [book.cards.get(index) for index in worker.gpus]
        if request.fractional:
            return len(cards) == 1 and cards[0] is not None and cards[0].shares(request, job.team) > 0
        if len(cards) != request.whole_gpus:
            return False
        kinds = {card.kind for card in cards if card is not None and card.healthy and card.empty}
        return all(card is not None and card.healthy and card.empty for card in cards) and (
            not cards or (len(kinds) == 1 and card_takes(request, min(kinds).memory_mib))
        )

    def returns(self, job: Job, worker: WorkerPlacement) -> bool:
        """Whether a worker of a job that left fits where it was, and no start needs it gone by a limit or a label."""
        return self.fits(job, worker) and self.ledger.returns(job, worker)

    def keep_back(self, rank: int, leaving: Iterable[Placed], coming: Iterable[Placed]) -> None:
        """What starts of the rank may not use of limits and domains that victims leave; replaces what was kept."""
        self.changed.extend(self.ledger.keep_back(rank, leaving, coming))

    def free_cards(self, host: HostId) -> dict[CardKind, tuple[int, ...]]:
        """The indices of the host's healthy cards that carry no worker, rising, by kind."""
        return {kind: tuple(free) for kind, free in self.hosts[host].free.items() if free}

    def pencil(self, job: Job, worker: WorkerPlacement, sign: int) -> None:
        """Books a worker (sign 1) or undoes that (sign -1) beside the ledger: for trials with one gang in hand."""
        self.hosts[worker.host].book(_request(job, worker), job.team, worker.gpus, sign)
        self.changed.append(worker.host)

    def _enter(self, job: Job, worker: WorkerPlacement, sign: int) -> None:
        self.changed.extend(self.ledger.book(job, worker, sign))


def _request(job: Job, worker: WorkerPlacement) -> WorkerRequest:
    role = job.role(worker.role)
    if role is None:
        raise ValueError(f"job {job.id} has no role {worker.role!r}; its roles are {[role.name for role in job.roles]}")
    return role.request


def holding(snapshot: Snapshot) -> Iterator[tuple[Job, WorkerPlacement]]:
    """Every worker that holds capacity in the snapshot, with its job."""
    for record in snapshot.jobs:
        if record.placement is not None and record.state.holds_capacity:
            for worker in record.placement.workers:
                yield record.job, worker
