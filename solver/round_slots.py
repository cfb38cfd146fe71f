"""The slots of one round's roles, shared by equal ones: a large queue has many jobs of few shapes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Protocol

from ..model.ids import HostId
from ..model.job import Role
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.topology import Layer
from .access import Reach
from .demand import Held, allowed_sites, ends_before, held_back, open_to, surely_over_s
from .domains import Domains
from .held import HostClass
from .places import Places
from .slots import Slot, slots_on


class Narrow(Protocol):
    """Chooses among the hosts that could take a role of a gang."""

    def __call__(self, record: JobRecord, role: Role, reach: Reach, places: Places) -> list[HostClass]:
        """The hosts to look at, in their order."""


class Slots:
    """The slots of one round's roles; equal roles have the same ones."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        hosts: Mapping[HostId, HostClass],
        places: Places,
        domains: Domains,
        narrow: Narrow | None = None,
    ) -> None:
        self._snapshot, self._policy, self._narrow = snapshot, policy, narrow
        self._held = held_back(snapshot)
        self._places, self._domains = places, domains
        # Work that is over between the same two beginnings of windows meets the same windows.
        self._begins = sorted({window.start_s for host in hosts.values() for window in host.host.windows})
        self._known: dict[object, tuple[Slot, ...]] = {}
        self._together: dict[object, tuple[Slot, ...]] = {}

    def of(self, record: JobRecord, role: Role, reach: Reach, required: Layer | None) -> tuple[Slot, ...]:
        """Where workers of the role may go, their gang reaching these victims, in one domain of the required layer."""
        sites = allowed_sites(record.job, self._snapshot, self._policy)
        team = record.job.team if role.request.fractional else None
        over_s = surely_over_s(record, self._snapshot, self._policy) if self._begins else 0
        own = record.id if record.replacing or self._narrow is not None else None
        level = record.level if self._held else 0
        passed = bisect_left(self._begins, over_s)
        key = (role.request, role.gpu_types, role.count, sites, team, reach, passed, own, level)
        if key not in self._known:
            among = self._narrow(record, role, reach, self._places) if self._narrow else self._places.among(role, reach)
            usable = _open(among, record, self._held, self._snapshot.now_s, over_s)
            self._known[key] = slots_on(usable, record.job.team, role, sites, reach)
        found = self._known[key]
        if role.count == 1:
            return found
        together = (id(found), role.count, role.parallelism, required)
        if together not in self._together:
            self._together[together] = self._domains.confined(found, role, required)
        return self._together[together]


def _open(
    hosts: Iterable[HostClass], record: JobRecord, held: Mapping[HostId, Held], now_s: int, over_s: int
) -> list[HostClass]:
    """The hosts that take the gang, as far as their state and their windows go."""
    return [host for host in hosts if open_to(host.host, record, held, now_s) and ends_before(host.host, now_s, over_s)]
