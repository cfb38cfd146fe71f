"""The system's clock."""

from __future__ import annotations

import time


class SystemClock:
    """Wall time."""

    def now_s(self) -> int:
        """Seconds since the epoch."""
        return int(time.time())

    def sleep(self, seconds: float) -> None:
        """Waits that long."""
        time.sleep(seconds)
