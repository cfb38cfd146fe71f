"""How many workers of one request each single host still takes: counted once, however many views ask.

Views that differ in sites, labels or windows share these counts, so that a round with many such views looks at each
host once a request instead of once a view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..model.ids import HostId, TeamId
from ..model.job import WorkerRequest
from .books import Books, First

_MANY = 48
"""Hosts from which on columns are quicker than one look after another."""

_MUCH = 32
"""Bookings after which all hosts are counted anew, rather than those that were booked on."""

ANY_NUMBER = 100_000
"""More workers than any role has."""


class Seats:
    """Room for workers of one request on cards of one type (None: without GPUs), host by host, beside the books."""

    def __init__(
        self, hosts: Sequence[HostId], books: Books, request: WorkerRequest, team: TeamId, gpu_type: str | None
    ) -> None:
        self._books, self._request, self._team, self._gpu_type = books, request, team, gpu_type
        first = at_first(hosts, books, request, team, gpu_type)
        self.hosts = first.hosts
        if len(books.changed) > _MUCH:
            self._seen = len(books.changed)
            self.room = counted(hosts, books, request, team, gpu_type)
        else:
            self._seen = 0
            self.room = dict(first.room)
            self.catch_up()

    def catch_up(self) -> None:
        """Looks again at every host that was booked on since the last look."""
        changed = self._books.changed
        if self._seen < len(changed):
            for name in self.hosts.intersection(changed[self._seen :]):
                self._look(name)
            self._seen = len(changed)

    def _look(self, name: HostId) -> None:
        room = self._books.hosts[name].room(self._request, self._team, self._gpu_type, ANY_NUMBER)
        if room:
            self.room[name] = room
        else:
            self.room.pop(name, None)


@dataclass(frozen=True, slots=True)
class AtFirst:
    """What a request finds before anything is booked in a round; `listed` are the hosts as they were given."""

    listed: Sequence[HostId]
    hosts: frozenset[HostId]
    room: dict[HostId, int]


def at_first(
    hosts: Sequence[HostId], books: Books, request: WorkerRequest, team: TeamId, gpu_type: str | None
) -> AtFirst:
    """The room on these hosts as all books of the snapshot begin, counted once for all of them."""
    # A list of hosts that is kept here is told from all others by its identity.
    key = (id(hosts), request, team if request.fractional else None, gpu_type)
    found: AtFirst | None = books.first.seats.get(key)
    if found is None:
        found = AtFirst(hosts, frozenset(hosts), counted(hosts, books.first, request, team, gpu_type))
        books.first.seats[key] = found
    return found


def counted(
    hosts: Sequence[HostId], books: Books | First, request: WorkerRequest, team: TeamId, gpu_type: str | None
) -> dict[HostId, int]:
    """The room on each of the hosts that has any, as the books stand."""
    if len(hosts) < _MANY:
        rooms = ((name, books.hosts[name].room(request, team, gpu_type, ANY_NUMBER)) for name in hosts)
        return {name: room for name, room in rooms if room}
    columns = books.columns
    rows = columns.rows(hosts)
    if request.fractional and gpu_type is not None:
        some = columns.fractions(request, gpu_type, rows, ANY_NUMBER)
    else:
        some = columns.rooms(request, gpu_type, rows, ANY_NUMBER)
    found = {hosts[number]: int(some[number]) for number in np.flatnonzero(some).tolist()}
    if request.fractional:
        names = list(columns.row)
        for row in columns.shared(rows):
            name = names[row]
            room = books.hosts[name].room(request, team, gpu_type, ANY_NUMBER)
            found.pop(name, None)
            if room:
                found[name] = room
    return found
