"""Gathers under way: who unmaps memory that they may be reading waits for them."""

import threading
from collections.abc import Callable


class Takes:
    """Counts gathers. Whoever waits for none must keep new ones from beginning meanwhile."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._count = 0

    def begin(self) -> None:
        """Notes that a gather begins."""
        with self._changed:
            self._count += 1

    def end(self) -> None:
        """Notes that a gather is over."""
        with self._changed:
            self._count -= 1
            if not self._count:
                self._changed.notify_all()

    def wait_for_none(self) -> None:
        """Waits until no gather is under way: each is a copy of one batch, which takes its time and ends."""
        with self._changed:
            self._changed.wait_for(lambda: not self._count)

    def when_none(self, action: Callable[[], None], timeout_s: float) -> None:
        """Does something quick while no gather is under way, and none begins; not if that takes too long to come."""
        with self._changed:
            if self._changed.wait_for(lambda: not self._count, timeout_s):
                action()
