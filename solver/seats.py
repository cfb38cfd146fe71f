"""How many workers of one request each single host still takes: counted once, however many views ask.

Views that differ in sites, labels or windows share these counts, so that a round with many such views looks at each
host once a request instead of once a view.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..model.ids import HostId, TeamId
from ..model.job import WorkerRequest
from .books import Books

_MANY = 48
"""Hosts from which on columns are quicker than one look after another."""

ANY_NUMBER = 100_000
"""More workers than any role has."""


class Seats:
    """Room for workers of one request on cards of one type (None: without GPUs), host by host, beside the books."""

    def __init__(
        self, hosts: Sequence[HostId], books: Books, request: WorkerRequest, team: TeamId, gpu_type: str | None
    ) -> None:
        self._books, self._request, self._team, self._gpu_type = books, request, team, gpu_type
        self._seen = len(books.changed)
        self.hosts = set(hosts)
        self.room: dict[HostId, int] = {}
        if len(self.hosts) < _MANY:
            for name in self.hosts:
                self._look(name)
        else:
            self._look_at_all(list(hosts))

    def _look_at_all(self, hosts: list[HostId]) -> None:
        columns, request = self._books.columns, self._request
        rows = np.fromiter((columns.row[name] for name in hosts), dtype=np.int64, count=len(hosts))
        if request.fractional and self._gpu_type is not None:
            rooms = columns.fractions(request, self._gpu_type, rows, ANY_NUMBER)
        else:
            rooms = columns.rooms(request, self._gpu_type, rows, ANY_NUMBER)
        self.room = {hosts[number]: int(rooms[number]) for number in np.flatnonzero(rooms)}
        if request.fractional:
            names = list(columns.row)
            for row in columns.shared(rows):
                self._look(names[row])

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
