"""What is free now as a supply: real books, with the cards of every worker."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ...model.ids import HostId, TeamId
from ...model.job import Job, Role, WorkerRequest
from ...model.placement import Placement, WorkerPlacement
from ...model.snapshot import JobRecord
from ...solver.books import Books
from ...solver.demand import CardKind
from ...solver.layout import lay_out
from ...solver.placing import by_type
from .claimed import Only
from .floor import Floor, Ints, Types
from .seating import Allowed, CardChoice, Supply, Taste, seat

_ANY_NUMBER = 100_000


class Booked:
    """The free part of the books' hosts; `card` chooses where a fraction goes."""

    def __init__(self, floor: Floor, books: Books, card: CardChoice) -> None:
        self.floor, self.books = floor, books
        self._card = card
        self._rooms: dict[tuple[WorkerRequest, TeamId | None, str | None], tuple[Ints, int]] = {}
        self._seats: list[tuple[Job, WorkerPlacement]] = []

    def place(
        self, record: JobRecord, taste: Taste, beside: Supply | None = None, only: Only = None
    ) -> Placement | None:
        """Books the gang by that taste and returns where it runs, or changes nothing and returns None.

        `beside` is a narrower supply that takes from this one too; `only` says which types the gang may take.
        """
        allowed = self._allowed(record, only)
        if seat(record, self.floor, self if beside is None else beside, taste, allowed) is None:
            return None
        counts: dict[str, Counter[tuple[HostId, CardKind | None]]] = {}
        cards: dict[str, list[tuple[HostId, int]]] = {}
        for job, worker in self._seats:
            role = job.role(worker.role)
            if role is not None and role.request.fractional:
                cards.setdefault(role.name, []).append((worker.host, worker.gpus[0]))
            else:
                kind = self.books.hosts[worker.host].cards[worker.gpus[0]].kind if worker.gpus else None
                counts.setdefault(worker.role, Counter())[worker.host, kind] += 1
        self.undo()
        return lay_out(record, counts, self.books, cards)

    def _allowed(self, record: JobRecord, only: Only) -> Allowed:
        """The hosts that the gang may use now with some types, by windows, labels, limits and reserved pools."""
        mask, ledger, job = self.floor.open_now(record, self.books.ledger), self.books.ledger, record.job

        def allowed(types: Types) -> Ints:
            asked = by_type(job, types)
            if (only is not None and not only(types)) or not ledger.allows(job.team, asked):
                return np.zeros_like(mask)
            if not ledger.pooled(record):
                return mask
            sites = {site: ledger.pools_allow(site, asked) for site in {host.path.site for host in self.floor.hosts}}
            return mask * np.array([sites[host.path.site] for host in self.floor.hosts], dtype=np.int64)

        return allowed

    def within_limits(self, record: JobRecord) -> bool:
        """Whether limits and pools allow the gang cards of any types that it accepts."""
        allowed = self._allowed(record, None)
        return any(allowed(types).any() for types in self.floor.types(record.job))

    def room(self, role: Role, team: TeamId, gpu_type: str | None) -> Ints:
        """Workers of the role that each host takes now on top of all others."""
        request, changed = role.request, self.books.changed
        key = (request, team if request.fractional else None, gpu_type)
        if key not in self._rooms:
            room = np.array([self._room(number, role, team, gpu_type) for number in range(len(self.floor.hosts))])
            self._rooms[key] = (room.astype(np.int64), len(changed))
        room, seen = self._rooms[key]
        if seen < len(changed):
            for name in set(changed[seen:]):
                number = self.floor.index.get(name)
                if number is not None:
                    room[number] = self._room(number, role, team, gpu_type)
            self._rooms[key] = (room, len(changed))
        return room

    def _room(self, number: int, role: Role, team: TeamId, gpu_type: str | None) -> int:
        book = self.books.hosts[self.floor.hosts[number].id]
        return book.room(role.request, team, gpu_type, _ANY_NUMBER)

    def take(self, job: Job, role: Role, gpu_type: str | None, host: int, number: int) -> None:
        """Books that many workers of the role, to see what is left for other roles."""
        name = self.floor.hosts[host].id
        book = self.books.own(name)
        for index in range(number):
            gpus: tuple[int, ...] = ()
            if role.request.fractional and gpu_type is not None:
                card = self._card(book, role.request, job.team, gpu_type)
                gpus = () if card is None else (card,)
            elif gpu_type is not None:
                kind = book.kinds(role.request, gpu_type)[0]
                gpus = tuple(book.free[kind][: role.request.whole_gpus])
            worker = WorkerPlacement(role=role.name, index=index, host=name, gpus=gpus)
            self.books.take(job, worker)
            self._seats.append((job, worker))

    def undo(self) -> None:
        """Gives back what was taken for the gang in hand."""
        for job, worker in self._seats:
            self.books.give(job, worker)
        self._seats.clear()
