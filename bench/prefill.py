"""Pre-stage orders in a simulation: hosts load data sets one after another, until the orders no longer stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model.decision import Prefetch
from ..model.ids import HostId
from .heap import Heap, Loaded
from .shard_cache import ShardCaches

_MIB_PER_S = (1_000_000, 8_388_608)
"""1 Mbit/s is this fraction of MiB/s."""


@dataclass(slots=True)
class _Load:
    """What a host loads now; `number` tells it from earlier ones of which the end is still on the heap."""

    order: Prefetch
    begun_s: int
    number: int


class Prefills:
    """The loads under way on all hosts, and what came of those given up: their shards stay in the cache."""

    def __init__(self, heap: Heap, caches: ShardCaches, fetch_mib_s: int) -> None:
        self._heap, self._caches, self._fetch_mib_s = heap, caches, fetch_mib_s
        self._standing: dict[HostId, list[Prefetch]] = {}
        self._loads: dict[HostId, _Load] = {}
        self._partly: dict[tuple[HostId, str], int] = {}
        self._numbers = 0

    def order(self, orders: Sequence[Prefetch], now_s: int) -> None:
        """The orders that stand from now on, all of them."""
        self._standing = {}
        for order in orders:
            self._standing.setdefault(order.host, []).append(order)
        for host in sorted({*self._loads, *self._standing}):
            load = self._loads.get(host)
            names = [order.dataset.name for order in self._standing.get(host, ())]
            if load is not None and load.order.dataset.name not in names:
                self._give_up(host, now_s)
            self._next(host, now_s)

    def loaded(self, happening: Loaded, now_s: int) -> bool:
        """A load ends; False where it was given up before. The host begins the next."""
        load = self._loads.get(happening.host)
        if load is None or load.number != happening.number:
            return False
        self._give_up(happening.host, now_s)
        data = load.order.dataset
        whole = self._partly.get((happening.host, data.name), 0) >= data.size_mib
        if whole:
            self._partly.pop((happening.host, data.name))
            self._caches.load(happening.host, data)
        self._next(happening.host, now_s)
        return whole

    def taken(self, host: HostId, name: str, now_s: int) -> int:
        """A gang reads the data set there from now on; returns the MiB of it that were loaded ahead, if not all."""
        load = self._loads.get(host)
        if load is not None and load.order.dataset.name == name:
            self._give_up(host, now_s)
        kept = [order for order in self._standing.get(host, ()) if order.dataset.name != name]
        self._standing[host] = kept
        self._next(host, now_s)
        return self._partly.pop((host, name), 0)

    def forget(self, host: HostId) -> None:
        """The host lost its disk."""
        self._loads.pop(host, None)
        self._standing.pop(host, None)
        self._partly = {key: mib for key, mib in self._partly.items() if key[0] != host}

    def _next(self, host: HostId, now_s: int) -> None:
        if host in self._loads:
            return
        for order in self._standing.get(host, ()):
            left = min(order.mib, order.dataset.size_mib - self._partly.get((host, order.dataset.name), 0))
            if left > 0 and not self._caches.holds(host, order.dataset):
                self._numbers += 1
                self._loads[host] = _Load(order, now_s, self._numbers)
                self._heap.push(now_s + -(-left // self._speed(order)), Loaded(host, self._numbers))
                return

    def _give_up(self, host: HostId, now_s: int) -> None:
        load = self._loads.pop(host)
        key = (host, load.order.dataset.name)
        there = self._partly.get(key, 0)
        done = min(load.order.mib, (now_s - load.begun_s) * self._speed(load.order))
        self._partly[key] = min(load.order.dataset.size_mib, there + done)

    def _speed(self, order: Prefetch) -> int:
        above, below = _MIB_PER_S
        return max(1, min(self._fetch_mib_s, order.mbps * above // below))
