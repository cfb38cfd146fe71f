"""Maintenance windows as waiting gangs meet them: which hosts enter one before a gang is surely over, and when."""

from __future__ import annotations

from collections.abc import Collection

from ..model.ids import HostId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import ends_before, surely_over_s
from .unchecked import varied


class Windows:
    """The windows ahead of one round. Times in seconds since the epoch."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot, self._policy, self._now_s = snapshot, policy, snapshot.now_s
        self._hosts = [host for host in snapshot.hosts if any(w.end_s > snapshot.now_s for w in host.windows)]
        self._entering: dict[int, list[tuple[int, HostId]]] = {}

    def over_s(self, record: JobRecord) -> int:
        """When the gang is surely over if it starts now."""
        return surely_over_s(record, self._snapshot, self._policy)

    def entering(self, record: JobRecord, hosts: Collection[HostId]) -> list[tuple[int, HostId]]:
        """When those of these hosts enter maintenance that the gang may outlast, in order."""
        over_s = self.over_s(record)
        if over_s not in self._entering:
            self._entering[over_s] = sorted(
                (min(window.start_s for window in host.windows if window.end_s > self._now_s), host.id)
                for host in self._hosts
                if not ends_before(host, self._now_s, over_s)
            )
        return [(start_s, name) for start_s, name in self._entering[over_s] if name in hosts]

    def shorter_limits(self, record: JobRecord, closed: Collection[HostId]) -> list[int]:
        """Walltime limits, in seconds and rising, that just end before one of the windows of the closed hosts."""
        if not closed:
            return []
        left = self.over_s(varied(record, job=varied(record.job, walltime_limit_s=1))) - 1
        gaps = {start_s - left for start_s, _ in self.entering(record, closed)}
        return sorted({gap - gap % 60 if gap > 60 else gap for gap in gaps if gap > 0})
