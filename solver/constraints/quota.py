"""Quota: no team, and no part of the tree of teams, holds more of a GPU type than its limit.

Guarantees, lending and reclaim are goals and rights to evict, and stand elsewhere; this is the hard upper bound.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ortools.sat.python.cp_model import CpModel, IntVar

from ...model.ids import HostId, TeamId
from ...model.snapshot import JobRecord, Snapshot
from ..classes import Instance
from ..variables import Variables
from .capacity import fits, levels_that_matter

Key = tuple[TeamId, str]


@dataclass(frozen=True, slots=True)
class Part:
    """milli-GPU that each unit of a variable holds, and the level of whose it is."""

    level: int
    milli: int
    variable: IntVar


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """Bounds what each limited team comes to hold.

    For every team with a limit on type t, and each level a that matters there:
        milli-GPU on t of starts of levels <= a at or below it  <=  limit - held + what victims of levels < a leave
    """
    limits = {
        (team.id, quota.gpu_type): quota.gpu_milli for team in instance.snapshot.teams for quota in team.limit or ()
    }
    if not limits:
        return
    above = lineage(instance.snapshot)
    starting: dict[Key, list[Part]] = defaultdict(list)
    for gang in instance.gangs:
        for workers in gang.workers:
            for slot in workers.slots:
                if slot.kind is not None:
                    milli = workers.role.request.gpu_milli
                    part = Part(gang.record.level, milli, variables.workers_at(workers, slot))
                    for team in above(gang.record.job.team):
                        starting[team, slot.kind.gpu_type].append(part)
    held, leaving = _held(instance, variables, above)
    for key, limit in limits.items():
        for level in levels_that_matter((p.level for p in starting[key]), (p.level for p in leaving[key])):
            asked = [(part.milli, part.variable) for part in starting[key] if part.level <= level]
            left = [(part.milli, part.variable) for part in leaving[key] if part.level < level]
            fits(model, asked, limit - held[key], left)


def lineage(snapshot: Snapshot) -> _Lineage:
    """Gives for each team of the snapshot itself and all teams above it."""
    return _Lineage({team.id: team.parent for team in snapshot.teams})


class _Lineage:
    """A team and all teams above it."""

    def __init__(self, parents: dict[TeamId, TeamId | None]) -> None:
        self._parents = parents

    def __call__(self, team: TeamId) -> list[TeamId]:
        line: list[TeamId] = []
        cursor: TeamId | None = team
        while cursor is not None:
            line.append(cursor)
            cursor = self._parents.get(cursor)
        return line


def _held(instance: Instance, variables: Variables, above: _Lineage) -> tuple[dict[Key, int], dict[Key, list[Part]]]:
    """milli-GPU by team and type that running work holds, and what each possible victim holds of it."""
    types = {(host.id, gpu.index): gpu.gpu_type for host in instance.snapshot.hosts for gpu in host.gpus}
    may_leave = {victim.id for victim in instance.victims}
    held: dict[Key, int] = defaultdict(int)
    leaving: dict[Key, list[Part]] = defaultdict(list)
    for record in instance.snapshot.jobs:
        for gpu_type, milli in held_by_type(record, types).items():
            for team in above(record.job.team):
                held[team, gpu_type] += milli
                if record.id in may_leave:
                    leaving[team, gpu_type].append(Part(record.level, milli, variables.evicted(record.id)))
    return held, leaving


def held_by_type(record: JobRecord, types: dict[tuple[HostId, int], str]) -> dict[str, int]:
    """milli-GPU that the job holds, by GPU type; `types` tells the type of each card."""
    requests = {role.name: role.request for role in record.job.roles}
    amounts: dict[str, int] = defaultdict(int)
    for worker in record.placement.workers if record.placement else ():
        if worker.gpus:
            amounts[types[worker.host, worker.gpus[0]]] += requests[worker.role].gpu_milli
    return amounts
