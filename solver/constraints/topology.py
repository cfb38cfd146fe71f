"""Topology: a gang stays in one domain of its required layer; a tensor group in one NVLink domain."""

from __future__ import annotations

from collections import defaultdict

from ortools.sat.python.cp_model import CpModel, IntVar

from ...model.topology import Layer
from ..classes import Gang, Instance, WorkerClass
from ..later import LaterGang
from ..variables import Variables


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """Confines gangs and tensor groups."""
    for gang in variables.placed:
        # One worker is in one domain whatever it does.
        if gang.confinement.required is not None and gang.record.job.workers > 1:
            _one_domain(model, instance, gang, gang.confinement.required, variables)
        for workers in gang.workers:
            parallelism = workers.role.parallelism
            if parallelism is not None and parallelism.tensor > 1:
                _tensor_groups(model, instance, workers, parallelism.tensor, variables)


def _one_domain(model: CpModel, instance: Instance, gang: Gang | LaterGang, layer: Layer, variables: Variables) -> None:
    """Every role of the gang has all its workers in the one chosen domain.

    sum over domains d of chosen(d) == started, and for every role r and domain d:
        workers of r in d  ==  r.count * chosen(d)      [workers]
    """
    per_role = [by_domain(instance, workers, layer, variables) for workers in gang.workers]
    shared = set.intersection(*(set(members) for members in per_role))
    chosen = {domain: model.new_bool_var(f"chosen[{gang.id},{domain}]") for domain in sorted(shared)}
    model.add(sum(chosen.values()) == variables.started(gang))
    for workers, members in zip(gang.workers, per_role, strict=True):
        for domain, counts in members.items():
            model.add(sum(counts) == workers.role.count * chosen[domain] if domain in chosen else sum(counts) == 0)


def _tensor_groups(model: CpModel, instance: Instance, workers: WorkerClass, tensor: int, variables: Variables) -> None:
    """In every NVLink domain the workers of the role are a whole number of tensor groups."""
    for domain, counts in by_domain(instance, workers, Layer.NVLINK, variables).items():
        groups = model.new_int_var(
            0, workers.role.count // tensor, f"groups[{workers.job},{workers.role.name},{domain}]"
        )
        model.add(sum(counts) == tensor * groups)


def by_domain(instance: Instance, workers: WorkerClass, layer: Layer, variables: Variables) -> dict[str, list[IntVar]]:
    """The class's counts, gathered by the domain of the layer that their slot's host lies in."""
    members: dict[str, list[IntVar]] = defaultdict(list)
    for slot in workers.slots:
        domain = instance.hosts[slot.host].host.path.domain(layer, slot.host)
        members[domain].append(variables.workers_at(workers, slot))
    return members
