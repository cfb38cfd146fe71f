"""Capacity books: what is free on every host and card, kept up to date as workers come and go (RULES 4).

The books know amounts only, and keep the ledger of limits and labels beside them. Whether a host may take new work at
all, which GPU types a role accepts and where a gang must stay together is asked elsewhere.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from ..model.host import Host
from ..model.ids import HostId
from ..model.job import Job, WorkerRequest
from ..model.placement import WorkerPlacement
from ..model.policy import ReservedPool
from ..model.snapshot import Snapshot
from .columns import Columns
from .demand import CardKind, card_takes
from .host_book import Card, HostBook
from .ledger import Ledger
from .pressure import free_milli
from .ranks import Placed
from .remember import remembered

__all__ = ["Books", "Card", "First", "HostBook", "holding"]


class Books:
    """The books of all hosts, with everything booked that holds capacity in the snapshot.

    `changed` lists the hosts of all bookings in order, so that an index can catch up with what moved since it looked.
    `grown` tells whether anything that they began with was given back; until then there is nowhere more room than at
    first. `first` is how they began.
    Hosts are read from `hosts`; to book on one beside the methods here, ask for it with `own`.
    """

    def __init__(self, snapshot: Snapshot, reserved: tuple[ReservedPool, ...] = ()) -> None:
        first = _first(snapshot, reserved)
        self.hosts: dict[HostId, HostBook] = dict(first.hosts)
        self.changed: list[HostId] = []
        self.ledger = first.ledger.copy()
        self._own: set[HostId] = set()
        self._untouched = True
        self.first = first
        self.grown = False
        self._columns: Columns | None = None

    def fork(self) -> Books:
        """Books that begin as these are now; from now on neither sees what is booked in the other."""
        other = Books.__new__(Books)
        other.hosts, other.ledger, other.changed = dict(self.hosts), self.ledger.copy(), list(self.changed)
        other.first, other.grown, other._untouched = self.first, self.grown, self._untouched
        other._columns = None if self._columns is None else self.columns.copy(other.hosts, len(self.changed))
        # What either writes to from now on is a copy of its own.
        self._own, other._own = set(), set()
        return other

    def refit(self, hosts: Iterable[Host], held: Iterable[tuple[Job, WorkerPlacement]]) -> None:
        """These hosts in place of those of their names, with what of `held` is on them; limits and labels stay."""
        fresh = {host.id: HostBook(host) for host in hosts}
        for job, worker in held:
            if worker.host in fresh:
                fresh[worker.host].book(_request(job, worker), job.team, worker.gpus, 1)
        self.hosts.update(fresh)
        self._own.update(fresh)
        self.changed.extend(fresh)
        self._untouched = self._untouched and not fresh
        self.grown = self.grown or bool(fresh)

    @property
    def columns(self) -> Columns:
        """The books as columns, as they are now."""
        if self._columns is None:
            self._columns = self.first.columns.copy(self.hosts)
        self._columns.catch_up(self.changed)
        return self._columns

    def free_milli(self, hosts: tuple[Host, ...]) -> Mapping[str, int] | None:
        """milli-GPU free on these hosts by type, shared by all books that none has written to; else None."""
        return _free_milli(self.first, hosts) if self._untouched else None

    def own(self, name: HostId) -> HostBook:
        """The host's book to write to; all books of one snapshot share those that none of them has written to."""
        if name not in self._own:
            self.hosts[name] = self.hosts[name].copy()
            self._own.add(name)
            self._untouched = False
        return self.hosts[name]

    def take(self, job: Job, worker: WorkerPlacement) -> None:
        """Books one worker, whether it fits or not."""
        self.pencil(job, worker, 1)
        self._enter(job, worker, 1)

    def give(self, job: Job, worker: WorkerPlacement) -> None:
        """Undoes `take`."""
        self.grown = True
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
        self.own(worker.host).book(_request(job, worker), job.team, worker.gpus, sign)
        self.changed.append(worker.host)

    def _enter(self, job: Job, worker: WorkerPlacement, sign: int) -> None:
        self.changed.extend(self.ledger.book(job, worker, sign))


class First:
    """The books of a snapshot as it is, from which all others of it begin; nobody may change them.

    `seats` and `hopeless` keep what was found out about them.
    """

    def __init__(self, snapshot: Snapshot, reserved: tuple[ReservedPool, ...]) -> None:
        self.seats: dict[Hashable, Any] = {}
        self.hopeless: dict[Hashable, tuple[object, bool]] = {}
        self.hosts = {host.id: HostBook(host) for host in snapshot.hosts}
        self.ledger = Ledger(snapshot, reserved)
        for job, worker in holding(snapshot):
            self.hosts[worker.host].book(_request(job, worker), job.team, worker.gpus, 1)
            self.ledger.book(job, worker, 1)

    @cached_property
    def columns(self) -> Columns:
        """The books as columns."""
        return Columns(self.hosts)


@remembered
def _first(snapshot: Snapshot, reserved: tuple[ReservedPool, ...]) -> First:
    return First(snapshot, reserved)


@remembered
def _free_milli(first: First, hosts: tuple[Host, ...]) -> dict[str, int]:
    return free_milli(first.hosts[host.id] for host in hosts)


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
