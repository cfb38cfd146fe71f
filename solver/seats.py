"""How many workers of one request each single host still takes: counted once, however many views ask.

Views that differ in sites, labels or windows share these counts, so that a round with many such views looks at each
host once a request instead of once a view.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.ids import HostId, TeamId
from ..model.job import WorkerRequest
from .books import Books

ANY_NUMBER = 100_000
"""More workers than any role has."""


class Seats:
    """Room for workers of one request on cards of one type (None: without GPUs), host by host, beside the books."""

    def __init__(
        self, hosts: Iterable[HostId], books: Books, request: WorkerRequest, team: TeamId, gpu_type: str | None
    ) -> None:
        self._books, self._request, self._team, self._gpu_type = books, request, team, gpu_type
        self._seen = len(books.changed)
        self.hosts = set(hosts)
        least = request.whole_gpus
        self.room: dict[HostId, int] = {}
        for name in self.hosts:
            # Most hosts of a busy fleet lack the cards, and need no closer look.
            for cards in books.hosts[name].free.values() if least else ():
                if len(cards) >= least:
                    break
            else:
                if least:
                    continue
            self._look(name)

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
