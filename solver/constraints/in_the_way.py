"""Victims beside plans: nobody leaves for a promise's sake; whoever leaves is in the way of a start.

Elsewhere that follows from the goals, but a promise may gain where somebody leaves that no start needs gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ortools.sat.python.cp_model import CpModel, IntVar, LinearExpr, LinearExprT

from ...model.ids import HostId, TeamId
from ...model.job import Job
from ...model.snapshot import JobRecord
from ...model.topology import Layer
from ..classes import Gang, Instance
from ..demand import placeable
from ..lineage import Lineage
from ..variables import Variables
from .quota import held_by_type


@dataclass(frozen=True, slots=True)
class _Place:
    """Workers of a gang that may come to a slot: how many do, and where."""

    gang: Gang
    count: IntVar
    host: HostId
    gpu_type: str | None


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """evicted(v) <= workers of starts that may evict v on its hosts, under its limits, in its pools and domains."""
    near = _Near(instance, variables)
    for victim in instance.victims:
        clear = variables.plans.clear
        if clear is None or all(
            clear(victim, gang.record) <= instance.snapshot.now_s for gang in variables.plans.gangs
        ):
            continue
        ways: list[LinearExprT] = []
        for gang, workers_near in near(victim):
            inside = variables.inside(gang)
            if victim.id in gang.reach or gang.only_inside:
                ways += workers_near
            elif inside is not None:
                # Only as an inside start may it come after this victim.
                after = model.new_bool_var(f"after[{gang.id},{victim.id}]")
                model.add_implication(after, inside)
                model.add(after <= sum(workers_near))
                ways.append(after)
        model.add(variables.evicted(victim.id) <= LinearExpr.sum(ways))


class _Near:
    """The workers that would be in a victim's way, or the victim in theirs, gang by gang."""

    def __init__(self, instance: Instance, variables: Variables) -> None:
        snapshot = instance.snapshot
        self._paths = {host.id: host.path for host in snapshot.hosts}
        self._types = {(host.id, gpu.index): gpu.gpu_type for host in snapshot.hosts for gpu in host.gpus}
        self._pools = {(pool.site, pool.gpu_type) for pool in instance.policy.reserved}
        self._pooled = {host.id for host in snapshot.hosts if self._pools and placeable(host)}
        self._broken = {(host.id, gpu.index) for host in snapshot.hosts for gpu in host.gpus if not gpu.healthy}
        self._limits = {(team.id, quota.gpu_type) for team in snapshot.teams for quota in team.limit or ()}
        self._line = Lineage(snapshot)
        self._layers: dict[str, set[Layer]] = {}
        for record in snapshot.jobs:
            for rule in record.job.anti_affinity:
                self._layers.setdefault(rule.label, set()).add(rule.layer)
        self._places = [
            _Place(gang, variables.workers_at(workers, slot), slot.host, slot.kind.gpu_type if slot.kind else None)
            for gang in instance.gangs
            for workers in gang.workers
            for slot in workers.slots
        ]
        self._under: dict[object, list[int]] = defaultdict(list)
        for number, place in enumerate(self._places):
            for key in self._keys(place):
                self._under[key].append(number)

    def __call__(self, victim: JobRecord) -> Iterator[tuple[Gang, list[IntVar]]]:
        """Each gang that may evict the victim and has workers near it, in order, with the counts of these."""
        found: dict[str, tuple[Gang, list[IntVar]]] = {}
        numbers = {number for key in self._keys_of(victim) for number in self._under.get(key, ())}
        for place in (self._places[number] for number in sorted(numbers)):
            if victim.id in place.gang.widest_reach:
                found.setdefault(place.gang.id, (place.gang, []))[1].append(place.count)
        yield from found.values()

    def _keys(self, place: _Place) -> Iterator[object]:
        """The host, the limits, the reserved pool and the domains of labels that such workers use."""
        yield place.host
        path, record = self._paths[place.host], place.gang.record
        if place.gpu_type is not None:
            yield from self._limited(record.job.team, place.gpu_type)
            if record.level == 1 and place.host in self._pooled and (path.site, place.gpu_type) in self._pools:
                yield path.site, place.gpu_type
        yield from self._labelled(record.job, [place.host])

    def _keys_of(self, victim: JobRecord) -> Iterator[object]:
        """The same of what the victim holds."""
        hosts = victim.placement.hosts if victim.placement else ()
        yield from hosts
        for gpu_type in held_by_type(victim, self._types):
            yield from self._limited(victim.job.team, gpu_type)
        for worker in victim.placement.workers if victim.placement and victim.level == 1 else ():
            for index in worker.gpus:
                pool = (self._paths[worker.host].site, self._types[worker.host, index])
                counts = worker.host in self._pooled and (worker.host, index) not in self._broken
                if counts and pool in self._pools:
                    yield pool
        yield from self._labelled(victim.job, hosts)

    def _limited(self, team: TeamId, gpu_type: str) -> Iterator[object]:
        for above in self._line(team):
            if (above, gpu_type) in self._limits:
                yield "limit", above, gpu_type

    def _labelled(self, job: Job, hosts: Sequence[HostId]) -> Iterator[object]:
        for label in {rule.label for rule in job.anti_affinity}:
            for layer in self._layers[label]:
                for host in hosts:
                    yield "label", label, layer, self._paths[host].domain(layer, host)
