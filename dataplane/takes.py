"""Gathers under way: who unmaps memory that they may be reading waits for them."""

import threading
from collections.abc import Callable


class Takes:
    """Gathers under way, each told from others by an object. Whoever waits for none must keep new ones from beginning.

    An end without a beginning is none: a gather in the caller's thread may be interrupted just before it begins.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # taken by itself: entering a condition is interpreted, and may be interrupted
        self._changed = threading.Condition(self._lock)
        self._under_way: set[object] = set()

    def begin(self, gather: object) -> None:
        """Notes that a gather begins."""
        with self._lock:
            self._under_way.add(gather)

    def end(self, gather: object) -> None:
        """Notes that a gather is over."""
        with self._lock:
            self._under_way.discard(gather)
            if not self._under_way:
                self._changed.notify_all()

    def wait_for_none(self) -> None:
        """Waits until no gather is under way: each is a copy of one batch, which takes its time and ends."""
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way)

    def when_none(self, action: Callable[[], None], timeout_s: float) -> None:
        """Does something quick while no gather is under way, and none begins; not if that takes too long to come."""
        with self._changed:
            if self._changed.wait_for(lambda: not self._under_way, timeout_s):
                action()
