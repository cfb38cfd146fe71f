"""A limit on bytes per second over all threads of a source."""

import threading
import time


class Bandwidth:
    """Makes callers wait so that together they stay below so many bytes per second (None: no limit)."""

    def __init__(self, bytes_per_s: int | None) -> None:
        self._rate = bytes_per_s
        self._lock = threading.Lock()
        self._free_at = 0.0

    def take(self, count: int) -> None:
        """Waits until `count` bytes more are allowed to have come."""
        if self._rate is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self._rate
            wait = self._free_at - now
        time.sleep(wait)
