"""Hosts that a gang may not use although they take work: those with a maintenance window near, or with its labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..model.host import Host
from ..model.ids import HostId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import ends_before, surely_over_s
from .ledger import Ledger


@dataclass(frozen=True, slots=True)
class Bar:
    """What keeps a gang off hosts: its anti-affinity labels, and hosts that enter maintenance before it is over."""

    labels: frozenset[str] = frozenset()
    windows: frozenset[HostId] = frozenset()

    def closed(self, ledger: Ledger) -> Callable[[HostId], bool] | None:
        """Tells of a host whether it is closed to the gang now; None where no host ever is."""
        if self == OPEN:
            return None
        return lambda host: host in self.windows or ledger.closed(self.labels, host)


OPEN = Bar()
"""No host is closed."""


class Bars:
    """Gives each gang its bar; `hosts` are those whose windows count."""

    def __init__(self, snapshot: Snapshot, policy: Policy, hosts: Iterable[Host]) -> None:
        self._snapshot, self._policy = snapshot, policy
        self._windowed = [host for host in hosts if host.windows]
        self._by_end: dict[int, frozenset[HostId]] = {}
        self._known: dict[frozenset[HostId], frozenset[HostId]] = {}

    def __call__(self, record: JobRecord) -> Bar:
        """The bar of that gang."""
        rules = record.job.anti_affinity
        if not rules and not self._windowed:
            return OPEN
        return Bar(frozenset(rule.label for rule in rules), self._before(record))

    def _before(self, record: JobRecord) -> frozenset[HostId]:
        if not self._windowed:
            return OPEN.windows
        over_s = surely_over_s(record, self._snapshot, self._policy)
        if over_s not in self._by_end:
            now_s = self._snapshot.now_s
            found = frozenset(host.id for host in self._windowed if not ends_before(host, now_s, over_s))
            # Many limits close the same hosts; one object for all is compared and hashed quickly.
            self._by_end[over_s] = self._known.setdefault(found, found)
        return self._by_end[over_s]
