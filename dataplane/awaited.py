"""Shards that are being read ahead, and batches that wait for them.

While nobody computes, a shard is sooner read whole, in order, than its rows are that batches ask for one by one. But
nothing is known of how long it takes: shards may be huge, disks slow. So a wait has bounds, and after one in vain
nobody waits until the shards have been read that it was for.
"""

import threading
import time
from collections.abc import Collection
from functools import partial

LONGEST_S = 1.0
LONGEST_BETWEEN_S = 0.5


class Awaited:
    """Numbers of shards that were asked for and not read yet. Safe for threads.

    A wait ends after `longest_s`, and when no shard has been read for `longest_between_s`.
    """

    def __init__(self, longest_s: float = LONGEST_S, longest_between_s: float = LONGEST_BETWEEN_S) -> None:
        self.hurried = False
        self._longest_s, self._longest_between_s = longest_s, longest_between_s
        self._changed = threading.Condition()
        self._coming: set[int] = set()
        self._in_vain: set[int] = set()
        self._read = 0
        self._over = False

    def hurry(self, on: bool) -> None:
        """Says whether the caller of the loader does nothing but wait; if not, nobody waits for whole shards."""
        with self._changed:
            self.hurried = on
            self._changed.notify_all()

    def expect(self, shard: int) -> None:
        """Notes a shard that will be read."""
        with self._changed:
            self._coming.add(shard)

    def done(self, shard: int) -> None:
        """Notes that a shard has been read, or cannot be."""
        with self._changed:
            self._coming.discard(shard)
            self._in_vain.discard(shard)
            self._read += 1
            self._changed.notify_all()

    def end(self) -> None:
        """Nothing is read any more."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def expects(self) -> bool:
        """Whether anybody might have to wait now: quickly told, before each batch."""
        return bool(self._coming) and self._waits()

    def wait(self, shards: Collection[int]) -> None:
        """Waits until these shards have been read, as far as they were asked for, while that gets on and is hurried."""
        with self._changed:
            end = time.monotonic() + self._longest_s
            while self._waits() and (left := self._coming.intersection(shards)):
                patience_s = min(end - time.monotonic(), self._longest_between_s)
                if not self._changed.wait_for(partial(self._got_on, self._read), patience_s):
                    self._in_vain = left
                    self._changed.notify_all()

    def _got_on(self, read: int) -> bool:
        return self._read != read or not self._waits()

    def _waits(self) -> bool:
        return self.hurried and not self._in_vain and not self._over
