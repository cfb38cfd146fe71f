"""Quota: no team, and no part of the tree of teams, holds more of a GPU type than its limit.

Guarantees, lending and reclaim stand in `guarantee`; this is the hard upper bound.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ortools.sat.python.cp_model import CpModel, LinearExpr, LinearExprT

from ...model.ids import HostId, JobId, TeamId
from ...model.snapshot import JobRecord
from ..classes import Gang, Instance, WorkerClass
from ..lineage import Lineage
from ..variables import Variables
from .cuts import Place, fits

Key = tuple[TeamId, str]


@dataclass(frozen=True, slots=True)
class Part:
    """milli-GPU that each worker of a gang holds, the workers, and how many of them start inside (None: no matter)."""

    gang: Gang
    milli: int
    count: LinearExprT
    inside: LinearExprT | None


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """Bounds what each limited team comes to hold.

    For every team with a limit on type t, and each set of starts that matters there (`cuts`):
        milli-GPU on t of these starts at or below it  <=  limit - held + what the victims of one of them leave
    """
    limits = {
        (team.id, quota.gpu_type): quota.gpu_milli for team in instance.snapshot.teams for quota in team.limit or ()
    }
    if not limits:
        return
    above = Lineage(instance.snapshot)
    starting: dict[Key, list[Part]] = defaultdict(list)
    for gang in instance.coming:
        for workers in gang.workers:
            for gpu_type in workers.gpu_types:
                part = _part(gang, workers, gpu_type, variables)
                for team in above(gang.record.job.team):
                    starting[team, gpu_type].append(part)
    held, leaving = _held(instance, above)
    for key, limit in limits.items():
        place = Place((way,) for way, _ in leaving[key])
        uses = [use for p in starting[key] for use in place.uses(p.gang, p.milli, p.count, p.inside)]
        fits(model, uses, limit - held[key], [(milli, variables.left(way)) for way, milli in leaving[key]])


def _part(gang: Gang, workers: WorkerClass, gpu_type: str, variables: Variables) -> Part:
    slots = (slot for slot in workers.slots if slot.kind is not None and slot.kind.gpu_type == gpu_type)
    inside = variables.inside_on(workers, gpu_type)
    return Part(
        gang,
        workers.role.request.gpu_milli,
        LinearExpr.sum([variables.workers_at(workers, slot) for slot in slots]),
        None if inside is None else workers.role.count * inside,
    )


def _held(instance: Instance, above: Lineage) -> tuple[dict[Key, int], dict[Key, list[tuple[JobId, int]]]]:
    """milli-GPU by team and type that running work holds, and what each that may leave holds of it, in each way."""
    types = {(host.id, gpu.index): gpu.gpu_type for host in instance.snapshot.hosts for gpu in host.gpus}
    held: dict[Key, int] = defaultdict(int)
    leaving: dict[Key, list[tuple[JobId, int]]] = defaultdict(list)
    for record in instance.snapshot.jobs:
        for gpu_type, milli in held_by_type(record, types).items():
            for team in above(record.job.team):
                held[team, gpu_type] += milli
                leaving[team, gpu_type] += [(way, milli) for way in instance.ways.get(record.id, ())]
    return held, leaving


def held_by_type(record: JobRecord, types: dict[tuple[HostId, int], str]) -> dict[str, int]:
    """milli-GPU that the job holds, by GPU type; `types` tells the type of each card."""
    requests = {role.name: role.request for role in record.job.roles}
    amounts: dict[str, int] = defaultdict(int)
    for worker in record.placement.workers if record.placement else ():
        if worker.gpus:
            amounts[types[worker.host, worker.gpus[0]]] += requests[worker.role].gpu_milli
    return amounts
