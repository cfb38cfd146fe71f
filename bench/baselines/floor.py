"""The hosts of a round as arrays: which domain of every layer each stands in, and which sites may be used."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ...model.host import Host
from ...model.ids import HostId, SiteId
from ...model.job import Job, Role
from ...model.policy import Policy
from ...model.snapshot import JobRecord, Snapshot
from ...model.topology import Layer
from ...solver.bars import Bars
from ...solver.confinements import Confinements
from ...solver.demand import allowed_sites, card_takes, usable
from ...solver.ledger import Ledger

Ints = NDArray[np.int64]
Types = tuple[str | None, ...]
"""For each role the type of its cards; None for roles without GPUs."""

_MOST_CHOICES = 64
"""Choices of a GPU type for each role that are looked at; only gangs of many roles have more."""


class Floor:
    """Hosts that take new work, in the order of the fleet, with their domains numbered by their first host."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        hosts: Iterable[Host] | None = None,
        confinement: Confinements | None = None,
    ) -> None:
        taking = snapshot.hosts if hosts is None else hosts
        # Spares among them: a gang that lost a host may go there, and bars close them to all others.
        open_hosts = {host.id for host in usable(snapshot)}
        self.hosts: list[Host] = [host for host in taking if host.id in open_hosts]
        self.index: dict[HostId, int] = {host.id: number for number, host in enumerate(self.hosts)}
        self.confinement = Confinements(snapshot, policy) if confinement is None else confinement
        self._bar = Bars(snapshot, policy, self.hosts)
        self._snapshot, self._policy = snapshot, policy
        self._domains: dict[Layer | None, Ints] = {}
        self._masks: dict[frozenset[SiteId], Ints] = {}
        self._memory: dict[str, int] = {}
        for host in self.hosts:
            for gpu in host.gpus:
                if gpu.healthy:
                    self._memory[gpu.gpu_type] = max(self._memory.get(gpu.gpu_type, 0), gpu.memory_mib)

    def domains(self, layer: Layer | None) -> Ints:
        """For each host the number of its domain; None is the whole fleet."""
        if layer not in self._domains:
            names = ["" if layer is None else host.path.domain(layer, host.id) for host in self.hosts]
            number = {name: index for index, name in enumerate(dict.fromkeys(names))}
            self._domains[layer] = np.array([number[name] for name in names], dtype=np.int64)
        return self._domains[layer]

    def allowed(self, job: Job) -> Ints:
        """1 for each host at a site where the gang may run, else 0."""
        sites = allowed_sites(job, self._snapshot, self._policy)
        if sites not in self._masks:
            self._masks[sites] = np.array([host.path.site in sites for host in self.hosts], dtype=np.int64)
        return self._masks[sites]

    def open_now(self, record: JobRecord, ledger: Ledger) -> Ints:
        """1 for each host that the gang may use now: at its sites, no window before its end, nobody with its label."""
        closed = self._bar(record).closed(ledger)
        allowed = self.allowed(record.job)
        if closed is None:
            return allowed
        return allowed * np.array([not closed(host.id) for host in self.hosts], dtype=np.int64)

    def open_between(self, job: Job, start_s: int, end_s: int) -> Ints:
        """1 for each host at the gang's sites that no maintenance window takes in that time, else 0."""
        free = [all(w.end_s <= start_s or end_s <= w.start_s for w in host.windows) for host in self.hosts]
        return self.allowed(job) * np.array(free, dtype=np.int64)

    def types(self, job: Job) -> list[Types]:
        """Choices of one GPU type for each role, the fastest first; a type needs a card with memory enough."""
        choices = [self._types(role) for role in job.roles]
        return [types for _, types in zip(range(_MOST_CHOICES), product(*choices), strict=False)]

    def _types(self, role: Role) -> list[str | None]:
        if not role.request.gpu_milli:
            return [None]
        speed = {name: role.throughput_milli(name) for name in sorted(self._memory)}
        fit = [name for name, memory in self._memory.items() if speed[name] and card_takes(role.request, memory)]
        return [*sorted(fit, key=lambda name: (-(speed[name] or 0), name))]
