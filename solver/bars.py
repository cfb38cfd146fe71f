"""Hosts that a gang may not use although they take work: held for another, soon in maintenance, or with its labels."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from ..model.host import Host
from ..model.ids import HostId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import ends_before, held_back, open_to, surely_over_s
from .ledger import Ledger


@dataclass(frozen=True, slots=True)
class Bar:
    """What keeps a gang off hosts: its anti-affinity labels, and the hosts that do not take it."""

    labels: frozenset[str] = frozenset()
    hosts: frozenset[HostId] = frozenset()

    def closed(self, ledger: Ledger) -> Callable[[HostId], bool] | None:
        """Tells of a host whether it is closed to the gang now; None where no host ever is."""
        if not self.labels:
            return self.hosts.__contains__ if self.hosts else None
        return lambda host: host in self.hosts or ledger.closed(self.labels, host)


OPEN = Bar()
"""No host is closed."""


class Bars:
    """Gives each gang its bar; `hosts` are those that may be held for somebody, and whose `windows` count if asked."""

    def __init__(self, snapshot: Snapshot, policy: Policy, hosts: Iterable[Host], *, windows: bool = True) -> None:
        self._snapshot, self._policy = snapshot, policy
        self._held = held_back(snapshot)
        self._windowed = False
        self._some = []
        for host in hosts:
            windowed = windows and bool(host.windows)
            self._windowed = self._windowed or windowed
            if windowed or host.spare or host.id in self._held:
                self._some.append(host)
        self._last: tuple[JobRecord, Bar] | None = None
        self._known: dict[Hashable, frozenset[HostId]] = {}
        self._same: dict[frozenset[HostId], frozenset[HostId]] = {}

    def __call__(self, record: JobRecord) -> Bar:
        """The bar of that gang."""
        rules = record.job.anti_affinity
        if not rules and not self._some:
            return OPEN
        # One gang is asked about several times in a row.
        last = self._last
        if last is None or last[0] is not record:
            last = self._last = record, Bar(frozenset(rule.label for rule in rules), self._closed(record))
        return last[1]

    def _closed(self, record: JobRecord) -> frozenset[HostId]:
        if not self._some:
            return OPEN.hosts
        over_s = surely_over_s(record, self._snapshot, self._policy) if self._windowed else 0
        key = (over_s, record.level, record.id if record.replacing else None)
        if key not in self._known:
            now_s = self._snapshot.now_s
            found = frozenset(
                host.id
                for host in self._some
                if (self._windowed and not ends_before(host, now_s, over_s))
                or not open_to(host, record, self._held, now_s)
            )
            # Many limits close the same hosts; one object for all is compared and hashed quickly.
            self._known[key] = self._same.setdefault(found, found)
        return self._known[key]
