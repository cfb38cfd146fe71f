"""Reads shards before they are needed, in a thread of its own: the system's WILLNEED blocks while it queues.

The same thread lets go of the cache when other processes wait for room while this one computes.
"""

import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Protocol

from .awaited import Awaited
from .errors import DataplaneError

_log = logging.getLogger(__name__)

_GIVE_WAY_EVERY_S = 0.1
_HELP_EVERY_S = 1.0
LATEST_START_S = 0.2


class Warmed(Protocol):
    """What read-ahead works on: the open shards of a data set, or what stands before them."""

    def warm(self, index: int, stop: threading.Event, *, open_too: bool = False) -> None: ...

    def give_way(self) -> None: ...


class ReadAhead:
    """Warms shards in the order in which they are requested, each once while it is among the last `remember`.

    `threads` fetch at once, and at least `hurried_threads` while hurried; with `open_too` shards are also checked and
    mapped. Nothing begins before `go`, or `latest_start_s` seconds: what is read ahead must not stand in the way of the
    first batch.
    """

    def __init__(
        self,
        shards: Warmed,
        remember: int,
        *,
        threads: int = 1,
        hurried_threads: int = 2,
        open_too: bool = False,
        latest_start_s: float = LATEST_START_S,
    ) -> None:
        self.awaited = Awaited()
        self._shards, self._open_too, self._latest_start_s = shards, open_too, latest_start_s
        self._wanted: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._go = threading.Event()
        self._recent: OrderedDict[int, None] = OrderedDict()
        self._remember = remember
        self._hurried_threads = hurried_threads
        self._threads = [self._thread(self._warm_wanted) for _ in range(threads)]
        self._helpers: list[threading.Thread] = []

    def go(self) -> None:
        """The first batch is there."""
        self._go.set()

    def hurry(self, on: bool) -> None:
        """The caller does nothing but wait, or not any more; called by one thread at a time."""
        if on == self.awaited.hurried:
            return
        self.awaited.hurry(on)
        if on:
            self.go()
            self._helpers = [thread for thread in self._helpers if thread.is_alive()]
            missing = self._hurried_threads - len(self._threads) - len(self._helpers)
            self._helpers += [self._thread(self._help) for _ in range(missing)]

    def request(self, shards: Iterable[int]) -> None:
        """Asks for shards soon; called by one thread at a time."""
        for shard in shards:
            if shard not in self._recent:
                self.awaited.expect(shard)
                self._wanted.put(shard)
            self._recent[shard] = None
            self._recent.move_to_end(shard)
            while len(self._recent) > self._remember:
                self._recent.popitem(last=False)

    def stop(self, timeout_s: float) -> None:
        """Ends the threads after the piece or fetch at hand."""
        self._stop.set()
        self.awaited.end()
        self._go.set()
        threads = [*self._threads, *self._helpers]
        for _ in threads:
            self._wanted.put(None)
        for thread in threads:
            thread.join(timeout_s)

    def _thread(self, body: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=body, name="phalanx-read-ahead", daemon=True)
        thread.start()
        return thread

    def _warm_wanted(self) -> None:
        """Thread body: warms every shard that is wanted, giving way in between, until stopped."""
        self._go.wait(self._latest_start_s)
        while not self._stop.is_set():
            self._shards.give_way()
            if not self._warm_next(_GIVE_WAY_EVERY_S):
                return

    def _help(self) -> None:
        """Thread body: warms shards that are wanted for as long as it is hurried."""
        while self.awaited.hurried and not self._stop.is_set() and self._warm_next(_HELP_EVERY_S):
            pass

    def _warm_next(self, timeout_s: float) -> bool:
        """Warms a shard if one is wanted in time; whether there is more to do.

        A shard that cannot be read is only logged: whoever really needs it meets the same error and can tell the user.
        """
        try:
            index = self._wanted.get(timeout=timeout_s)
        except queue.Empty:
            return True
        if index is None:
            return False
        try:
            self._shards.warm(index, self._stop, open_too=self._open_too)
        except (DataplaneError, OSError) as error:
            _log.debug("read-ahead of shard %s failed: %s", index, error)
        finally:
            self.awaited.done(index)
        return True
