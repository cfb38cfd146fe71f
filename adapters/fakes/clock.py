"""A clock that stands still until somebody sleeps on it or moves it."""

from __future__ import annotations

import threading

from ...model.errors import InvalidInput


class VirtualClock:
    """Time for simulations and tests; `sleep` returns at once, with the clock moved on. Safe between threads."""

    def __init__(self, start_s: int = 0) -> None:
        self._now_ms = start_s * 1000
        self._lock = threading.Lock()

    def now_s(self) -> int:
        """Seconds since the epoch, rounded down."""
        with self._lock:
            return self._now_ms // 1000

    def sleep(self, seconds: float) -> None:
        """Moves the clock on by `seconds`, to the millisecond. InvalidInput below 0."""
        if seconds < 0:
            raise InvalidInput("seconds", f"{seconds} would turn the clock back", "0 or more")
        with self._lock:
            self._now_ms += round(seconds * 1000)

    def move_to(self, now_s: int) -> None:
        """Moves the clock on to `now_s`; earlier times leave it where it is."""
        with self._lock:
            self._now_ms = max(self._now_ms, now_s * 1000)
