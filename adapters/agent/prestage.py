"""Pre-stage orders on a host: carried out one at a time beside the reports, and given up when they no longer stand."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ...model import codec
from ...model.decision import Prefetch
from ...model.errors import InvalidInput
from ...model.job import DatasetRef
from ..ports import Clock

Fill = Callable[[Prefetch, Callable[[], bool]], str]
"""Loads what the cache lacks until done or told to stop; returns what keeps it from that, in words, or nothing."""

RETRY_S = 60
"""Seconds after which an order that still stands is tried again."""

CLOSE_S = 10.0

log = logging.getLogger(__name__)


def read_orders(answer: Any) -> tuple[Prefetch, ...]:
    """The orders in the answer to a report; none where it has none, as from services before there were any."""
    listed = answer.get("prefetches") if isinstance(answer, dict) else None
    try:
        return tuple(codec.decode(each, Prefetch) for each in listed or ())
    except (InvalidInput, TypeError) as fault:
        log.warning("the pre-stage orders in the answer cannot be read: %s", fault)
        return ()


class Prestager:
    """Carries out the first order that is due, in a thread of its own; a fault is told of in the log once.

    Holds no state that a restart could lose: what is cached is reported, and the service orders what is missing.
    """

    def __init__(self, fill: Fill, clock: Clock) -> None:
        self._fill = fill
        self._clock = clock
        self._standing: frozenset[DatasetRef] = frozenset()
        self._tried_s: dict[DatasetRef, int] = {}
        self._told: dict[DatasetRef, str] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def offer(self, orders: Sequence[Prefetch]) -> None:
        """The orders that stand now, all of them: one under way that is not among them is given up."""
        self._standing = frozenset(order.dataset for order in orders)
        if self.busy:
            return
        now_s = self._clock.now_s()
        self._tried_s = {dataset: at_s for dataset, at_s in self._tried_s.items() if dataset in self._standing}
        for order in orders:
            tried_s = self._tried_s.get(order.dataset)
            if tried_s is None or now_s - tried_s >= RETRY_S:
                self._tried_s[order.dataset] = now_s
                self._thread = threading.Thread(
                    target=self._carry_out, args=(order,), name="phalanx-prestage", daemon=True
                )
                self._thread.start()
                return

    @property
    def busy(self) -> bool:
        """Whether an order is being carried out."""
        return self._thread is not None and self._thread.is_alive()

    def close(self) -> None:
        """Ends what is under way after the shards that are being fetched; waits ten seconds for that at most."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(CLOSE_S)

    def _carry_out(self, order: Prefetch) -> None:
        try:
            fault = self._fill(order, lambda: self._closed.is_set() or order.dataset not in self._standing)
        except Exception as error:
            # Reports must go on whatever a file system or a store does.
            log.exception("loading data set %s failed", order.dataset.name)
            fault = f"{type(error).__name__}: {error}"
        if fault and self._told.get(order.dataset) != fault:
            log.warning("data set %s is not loaded for job %s: %s", order.dataset.name, order.job, fault)
        self._told[order.dataset] = fault
