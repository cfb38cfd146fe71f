"""The books of all hosts as columns of numbers, so that one question to all hosts is one look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..model.host import MILLI
from ..model.ids import HostId
from ..model.job import WorkerRequest
from .demand import CardKind, card_memory, card_takes
from .host_book import HostBook

Ints = NDArray[np.int64]


class Columns:
    """What is free on each host: empty cards by kind, whether a healthy card is shared, milli-cores, MiB, Mbit/s."""

    def __init__(self, hosts: Mapping[HostId, HostBook]) -> None:
        self._hosts = hosts
        self.row = {name: number for number, name in enumerate(hosts)}
        self._kinds: dict[CardKind, int] = {}
        for book in hosts.values():
            for kind in book.free:
                self._kinds.setdefault(kind, len(self._kinds))
        self._free: Ints = np.zeros((len(self._kinds), len(hosts)), dtype=np.int64)
        self._left: Ints = np.zeros((3, len(hosts)), dtype=np.int64)
        self._shared: Ints = np.zeros(len(hosts), dtype=np.int64)
        self._seen = 0
        self._rows: dict[int, tuple[Sequence[HostId], Ints]] = {}
        for name in hosts:
            self._look(name)

    def catch_up(self, changed: Sequence[HostId]) -> None:
        """Looks again at every host that was booked on since the last look; `changed` lists all bookings so far."""
        if self._seen < len(changed):
            for name in set(changed[self._seen :]):
                self._look(name)
            self._seen = len(changed)

    def copy(self, hosts: Mapping[HostId, HostBook], seen: int = 0) -> Columns:
        """The same columns for books that begin as these are; `seen` bookings of theirs are in them."""
        other = Columns.__new__(Columns)
        other._hosts, other.row, other._kinds, other._seen = hosts, self.row, dict(self._kinds), seen
        other._free, other._left, other._shared = self._free.copy(), self._left.copy(), self._shared.copy()
        other._rows = self._rows
        return other

    def rows(self, hosts: Sequence[HostId]) -> Ints:
        """The columns' places of these hosts, looked up once for a list that is kept and never changed."""
        # A list that is kept here is told from all others by its identity.
        known = self._rows.get(id(hosts))
        if known is None:
            places = np.fromiter((self.row[name] for name in hosts), dtype=np.int64, count=len(hosts))
            known = self._rows[id(hosts)] = hosts, places
        return known[1]

    def _look(self, name: HostId) -> None:
        book, row = self._hosts[name], self.row[name]
        empty = 0
        for kind, cards in book.free.items():
            if kind not in self._kinds:
                self._kinds[kind] = len(self._free)
                self._free = np.vstack((self._free, np.zeros((1, len(self.row)), dtype=np.int64)))
            self._free[self._kinds[kind], row] = len(cards)
            empty += len(cards)
        self._left[:, row] = book.cpu_milli, book.memory_mib, book.network_mbps
        self._shared[row] = sum(card.healthy and card.milli > 0 for card in book.cards.values()) > empty

    def rooms(self, request: WorkerRequest, gpu_type: str | None, rows: Ints, limit: int) -> Ints:
        """How many of at most `limit` workers with whole cards of that type (None: without GPUs) fit on each host."""
        found = np.full(len(rows), limit, dtype=np.int64)
        if gpu_type is not None:
            cards = np.zeros(len(rows), dtype=np.int64)
            for kind, number in self._kinds.items():
                if kind.gpu_type == gpu_type and card_takes(request, kind.memory_mib):
                    cards += self._free[number, rows] // request.whole_gpus
            np.minimum(found, cards, out=found)
        return self._served(request, rows, found)

    def fractions(self, request: WorkerRequest, gpu_type: str, rows: Ints, limit: int) -> Ints:
        """As `rooms`, for fractions; right only of hosts on which no healthy card is `shared`."""
        found = np.zeros(len(rows), dtype=np.int64)
        for kind, number in self._kinds.items():
            if kind.gpu_type == gpu_type:
                each, memory = MILLI // request.gpu_milli, card_memory(request, kind.memory_mib)
                found += self._free[number, rows] * (min(each, kind.memory_mib // memory) if memory else each)
        return self._served(request, rows, np.minimum(found, limit))

    def _served(self, request: WorkerRequest, rows: Ints, found: Ints) -> Ints:
        """As many workers, or as many as the CPU, memory and network left on their hosts take."""
        for number, asked in enumerate((request.cpu_milli, request.memory_mib, request.network_mbps)):
            if asked:
                np.minimum(found, self._left[number, rows] // asked, out=found)
        return np.maximum(found, 0)

    def empty(self, rows: Ints) -> dict[str, Ints]:
        """Empty healthy cards of each type on each host."""
        found: dict[str, Ints] = {}
        for kind, number in self._kinds.items():
            cards = self._free[number, rows]
            found[kind.gpu_type] = found[kind.gpu_type] + cards if kind.gpu_type in found else cards
        return found

    def shared(self, rows: Ints) -> Ints:
        """Those of the hosts on which a healthy card has room beside workers."""
        some: Ints = rows[self._shared[rows] > 0]
        return some
