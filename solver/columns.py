"""The books of all hosts as columns of numbers, so that one question to all hosts is one look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..model.ids import HostId
from ..model.job import WorkerRequest
from .demand import CardKind, card_takes
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
        for name in hosts:
            self._look(name)

    def catch_up(self, changed: Sequence[HostId]) -> None:
        """Looks again at every host that was booked on since the last look; `changed` lists all bookings so far."""
        for name in set(changed[self._seen :]):
            self._look(name)
        self._seen = len(changed)

    def copy(self, hosts: Mapping[HostId, HostBook]) -> Columns:
        """The same columns for books that begin as these are."""
        other = Columns.__new__(Columns)
        other._hosts, other.row, other._kinds, other._seen = hosts, self.row, self._kinds, 0
        other._free, other._left, other._shared = self._free.copy(), self._left.copy(), self._shared.copy()
        return other

    def _look(self, name: HostId) -> None:
        book, row = self._hosts[name], self.row[name]
        empty = 0
        for kind, cards in book.free.items():
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
        for number, asked in enumerate((request.cpu_milli, request.memory_mib, request.network_mbps)):
            if asked:
                np.minimum(found, self._left[number, rows] // asked, out=found)
        return np.maximum(found, 0)

    def open(self, gpu_type: str, rows: Ints) -> Ints:
        """Those of the hosts that have an empty card of the type, or any healthy card in parts."""
        kinds = [number for kind, number in self._kinds.items() if kind.gpu_type == gpu_type]
        some: Ints = rows[(self._free[kinds][:, rows].sum(axis=0) + self._shared[rows]) > 0]
        return some
