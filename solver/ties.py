"""Which victims are in a start's way: on its hosts, or in a limit, a reserved pool or a labelled domain of both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ..model.decision import Resize, Start
from ..model.ids import HostId, JobId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.topology import Layer
from .demand import placeable
from .lineage import Lineage
from .rights import Runner, may_evict, rights_of

Mark = tuple[str, ...]
"""A host, a limit, a reserved pool, or a (label, domain): jobs that bear one mark are in each other's way."""


class Ties:
    """The ties between the starts and the victims of one round."""

    def __init__(
        self, snapshot: Snapshot, policy: Policy, victims: Iterable[JobRecord], resizes: Iterable[Resize] = ()
    ) -> None:
        self._limits = {(team.id, quota.gpu_type) for team in snapshot.teams for quota in team.limit or ()}
        self._reserved: set[tuple[str, str]] = {
            (pool.site, pool.gpu_type) for pool in policy.reserved if pool.gpu_milli
        }
        self._taking = {host.id for host in snapshot.hosts if placeable(host)}
        self._broken = {(host.id, gpu.index) for host in snapshot.hosts for gpu in host.gpus if not gpu.healthy}
        self._lineage = Lineage(snapshot)
        self._paths = {host.id: host.path for host in snapshot.hosts}
        self._types = {(host.id, gpu.index): gpu.gpu_type for host in snapshot.hosts for gpu in host.gpus}
        self._layers: dict[str, set[Layer]] = defaultdict(set)
        for record in snapshot.jobs:
            for rule in record.job.anti_affinity:
                self._layers[rule.label].add(rule.layer)
        self._rights = rights_of(snapshot)
        self._records = {record.id: record for record in snapshot.jobs}
        self._runners: dict[JobId, Runner] = {}
        self._bearers: dict[Mark, list[JobId]] = defaultdict(list)
        self._order = {record.id: number for number, record in enumerate(snapshot.jobs)}
        back = {act.job: len(act.placement.workers) for act in resizes}
        # What a job leaves that moves is for its level and above, not only for those that may evict it.
        self._moved = {
            record.id: record.level
            for record in snapshot.jobs
            if record.id in back and record.placement and back[record.id] >= len(record.placement.workers)
        }
        returning = (record for record in snapshot.jobs if record.id in back)
        for victim in (*victims, *returning):
            if victim.placement is not None:
                self._runners[victim.id] = self._rights.runner(victim)
                for mark in self._marks(victim, victim.placement):
                    self._bearers[mark].append(victim.id)

    def before(self, start: Start) -> tuple[JobId, ...]:
        """Who leaves its way for it, victims and returning jobs: it waits for them; in the order of the snapshot's."""
        record = self._records[start.job]
        starter = self._rights.starter(record, inside=start.inside_guarantee)
        found = {
            victim
            for mark in self._marks(record, start.placement)
            for victim in self._bearers[mark]
            if (
                record.level >= self._moved[victim]
                if victim in self._moved
                else may_evict(starter, self._runners[victim])
            )
        }
        return tuple(sorted(found, key=self._order.__getitem__))

    def _marks(self, record: JobRecord, placement: Placement) -> set[Mark]:
        job = record.job
        marks: set[Mark] = {("host", host) for host in placement.hosts}
        if self._limits:
            types = {self._type(worker.host, worker.gpus[0]) for worker in placement.workers if worker.gpus}
            marks |= {
                ("limit", team, t) for team in self._lineage(job.team) for t in types if (team, t) in self._limits
            }
        if self._reserved and record.level == 1:
            marks |= {("pool", *pool) for pool in self._pools(placement)}
        for label in {rule.label for rule in job.anti_affinity}:
            for layer in self._layers[label]:
                marks |= {("label", label, self._paths[host].domain(layer, host)) for host in placement.hosts}
        return marks

    def _pools(self, placement: Placement) -> set[tuple[str, str]]:
        """The reserved pools whose cards the placement holds."""
        used: set[tuple[str, str]] = {
            (self._paths[worker.host].site, self._types[worker.host, index])
            for worker in placement.workers
            for index in worker.gpus
            if worker.host in self._taking and (worker.host, index) not in self._broken
        }
        return used & self._reserved

    def _type(self, host: HostId, index: int) -> str:
        return self._types[host, index]
