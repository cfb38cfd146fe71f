"""The pre-stage orders that stand, as host agents are answered and as people are shown them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..adapters.ports import Clock, Store
from ..model.decision import Prefetch
from ..model.event import AgentReport
from ..model.host import Host
from ..model.ids import HostId
from ..model.policy import Policy
from ..solver.fetch import missing_mib
from ..solver.prefetch import open_prefetches

KEPT_S = 2
"""Seconds for which the orders are kept, so that a thousand agents do not read a thousand snapshots."""

REST = 20
"""Orders that take long to work out are kept that many times as long."""

Orders = Mapping[HostId, Sequence[Prefetch]]


def by_host(orders: Sequence[Prefetch]) -> dict[HostId, list[Prefetch]]:
    """The orders of each host that has any."""
    found: dict[HostId, list[Prefetch]] = {}
    for order in orders:
        found.setdefault(order.host, []).append(order)
    return found


@dataclass(slots=True)
class OpenOrders:
    """Derives the orders from what is stored: nothing is remembered of them that a restart could lose."""

    store: Store
    policy: Policy
    clock: Clock
    _at_s: int = 0
    _until_s: float = -1.0
    _orders: Orders = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, host: Host, report: AgentReport) -> list[Prefetch]:
        """What this host is to load still, by its own report; at most some seconds behind the store."""
        told = replace(host, cached=report.cached)
        return [order for order in self.standing().get(host.id, ()) if missing_mib(told, order.dataset) > 0]

    def standing(self) -> Orders:
        """The orders of each host that has any."""
        with self._lock:
            now_s = self.clock.now_s()
            if not self._at_s <= now_s < self._until_s:
                begun = time.perf_counter()
                self._orders = by_host(open_prefetches(self.store.snapshot(now_s), self.policy))
                self._at_s = now_s
                self._until_s = now_s + max(KEPT_S, REST * (time.perf_counter() - begun))
            return self._orders
