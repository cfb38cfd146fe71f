"""Affinity: jobs that carry the same anti-affinity label keep out of each other's domains, as it is after evictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ortools.sat.python.cp_model import CpModel, IntVar

from ...model.ids import JobId
from ...model.job import Job
from ...model.topology import Layer
from ..classes import Gang, Instance
from ..variables import Variables


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """For each label, layer named with it, and domain: at most one job that carries the label has workers there.

    present(g, d) = 1 if g has workers in d;  sum of present <= 1  and, for each job v there, present <= left(v) in the
    ways of which g may use what v leaves; with inside(g) where v leaves so only for inside starts   [jobs]
    """
    layers: dict[str, set[Layer]] = defaultdict(set)
    for record in instance.snapshot.jobs:
        for rule in record.job.anti_affinity:
            layers[rule.label].add(rule.layer)
    for label in sorted(layers):
        carriers = [gang for gang in instance.coming if _carries(gang.record.job, label)]
        for layer in sorted(layers[label]):
            holders = _holders(instance, label, layer)
            presence = _presence(model, instance, carriers, label, layer, variables)
            for domain, coming in presence.items():
                for present, gang in coming:
                    for job in sorted(holders[domain]):
                        _after(model, present, gang, job, instance.ways.get(job, ()), variables)
                model.add_at_most_one(present for present, _ in coming)


def _after(
    model: CpModel, present: IntVar, gang: Gang, job: JobId, ways: Sequence[JobId], variables: Variables
) -> None:
    """The gang comes where that job is only once it has left, and only if it may use what the job leaves so."""
    inside = variables.inside(gang)
    open_ways = [way for way in ways if way in gang.widest_reach]
    model.add(present <= sum(variables.left(way) for way in open_ways))
    for way in open_ways:
        if way not in gang.reach and inside is not None:
            model.add_bool_or(~present, ~variables.left(way), inside)


def _carries(job: Job, label: str) -> bool:
    return any(rule.label == label for rule in job.anti_affinity)


def _holders(instance: Instance, label: str, layer: Layer) -> dict[str, set[JobId]]:
    """The running jobs with the label in each domain."""
    hosts = {host.id: host for host in instance.snapshot.hosts}
    holders: dict[str, set[JobId]] = defaultdict(set)
    for record in instance.snapshot.jobs:
        if record.placement is not None and _carries(record.job, label):
            for host in record.placement.hosts:
                holders[hosts[host].path.domain(layer, host)].add(record.id)
    return holders


def _presence(
    model: CpModel, instance: Instance, carriers: list[Gang], label: str, layer: Layer, variables: Variables
) -> dict[str, list[tuple[IntVar, Gang]]]:
    """For each domain one variable a gang that may come there, 1 if it does, and the gang."""
    presence: dict[str, list[tuple[IntVar, Gang]]] = defaultdict(list)
    for gang in carriers:
        counts: dict[str, list[tuple[int, IntVar]]] = defaultdict(list)
        for workers in gang.workers:
            for slot in workers.slots:
                domain = instance.hosts[slot.host].host.path.domain(layer, slot.host)
                counts[domain].append((slot.most, variables.workers_at(workers, slot)))
        for domain, terms in sorted(counts.items()):
            present = model.new_bool_var(f"present[{gang.id},{label},{domain}]")
            for most, count in terms:
                model.add(count <= most * present)
            presence[domain].append((present, gang))
    return presence
