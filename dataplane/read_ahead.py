"""Reads shards before they are needed, in a thread of its own: the system's WILLNEED blocks while it queues.

The same thread lets go of the cache when other processes wait for room while this one computes.
"""

import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol

from .errors import DataplaneError

_log = logging.getLogger(__name__)

_GIVE_WAY_EVERY_S = 0.1
LATEST_START_S = 0.2


class Warmed(Protocol):
    """What read-ahead works on: the open shards of a data set, or what stands before them."""

    def warm(self, index: int, stop: threading.Event, *, open_too: bool = False) -> None: ...

    def give_way(self) -> None: ...


class ReadAhead:
    """Warms shards in the order in which they are requested, each once while it is among the last `remember`.

    `threads` fetch at once; with `open_too` shards are also checked and mapped. Nothing begins before `go`, or
    `latest_start_s` seconds: what is read ahead must not stand in the way of the first batch.
    """

    def __init__(
        self,
        shards: Warmed,
        remember: int,
        *,
        threads: int = 1,
        open_too: bool = False,
        latest_start_s: float = LATEST_START_S,
    ) -> None:
        self._wanted: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._go = threading.Event()
        self._recent: OrderedDict[int, None] = OrderedDict()
        self._remember = remember
        arguments = (shards, self._wanted, self._go, self._stop, open_too, latest_start_s)
        self._threads = [
            threading.Thread(target=warm_wanted, args=arguments, name="phalanx-read-ahead", daemon=True)
            for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def go(self) -> None:
        """The first batch is there."""
        self._go.set()

    def request(self, shards: Iterable[int]) -> None:
        """Asks for shards soon; called by one thread at a time."""
        for shard in shards:
            if shard not in self._recent:
                self._wanted.put(shard)
            self._recent[shard] = None
            self._recent.move_to_end(shard)
            while len(self._recent) > self._remember:
                self._recent.popitem(last=False)

    def stop(self, timeout_s: float) -> None:
        """Ends the threads after the piece or fetch at hand."""
        self._stop.set()
        self._go.set()
        for _ in self._threads:
            self._wanted.put(None)
        for thread in self._threads:
            thread.join(timeout_s)


def warm_wanted(
    shards: Warmed,
    wanted: "queue.SimpleQueue[int | None]",
    go: threading.Event,
    stop: threading.Event,
    open_too: bool = False,
    latest_start_s: float = LATEST_START_S,
) -> None:
    """Thread body: warms every shard from the queue, giving way in between, until None comes or `stop` is set.

    A shard that cannot be read is only logged: whoever really needs it meets the same error and can tell the user.
    """
    go.wait(latest_start_s)
    while not stop.is_set():
        shards.give_way()
        try:
            index = wanted.get(timeout=_GIVE_WAY_EVERY_S)
            if index is None:
                return
            shards.warm(index, stop, open_too=open_too)
        except queue.Empty:
            continue
        except (DataplaneError, OSError) as error:
            _log.debug("read-ahead of shard %s failed: %s", index, error)
