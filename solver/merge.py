"""Merging (DESIGN 3): candidates of one worker that no rule of a round tells apart are one gang with members.

Only goals of levels may be asked of a merged round: in `economy` data sets and labels of each job count, which here
make no difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ..model.ids import JobId
from .classes import Gang, Instance, WorkerClass
from .later import Plans
from .lineage import limited
from .slots import Slot, slots_on


def merged(instance: Instance, plans: Plans) -> Instance:
    """The same round with alike candidates merged; `plans` are of the round as it was.

    Alike are candidates of the same level, request, places, reach and limits, that are over before or after the same
    planned starts; fractions of one team. Each has one worker; none is elastic, named, labelled or may start inside a
    guarantee. Every decision of the one round is one of the other, up to which of them has which of their places.
    """
    named = {record.id for record in plans.named} | {promise.record.id for promise in plans.promises}
    traits = _Traits(instance, plans)
    alike: dict[object, list[Gang]] = defaultdict(list)
    for gang in instance.gangs:
        alike[traits(gang) if gang.record.id not in named and _simple(gang) else gang.id].append(gang)
    gangs = tuple(gangs[0] if len(gangs) == 1 else _merged(gangs, instance) for gangs in alike.values())
    return replace(instance, gangs=gangs)


def _simple(gang: Gang) -> bool:
    job = gang.record.job
    return (
        job.workers == 1
        and len(gang.workers) == 1
        and not job.elastic
        and not job.anti_affinity
        and not gang.may_be_inside
        and not gang.only_inside
    )


class _Traits:
    """What rules see of a gang of one worker."""

    def __init__(self, instance: Instance, plans: Plans) -> None:
        self._over, self._times = plans.over, sorted({at for gang in plans.gangs for at in gang.starts})
        self._limited = limited(instance.snapshot)
        self._slots: dict[int, int] = {}
        self._equal: dict[tuple[Slot, ...], int] = {}

    def __call__(self, gang: Gang) -> object:
        workers, record = gang.workers[0], gang.record
        role, team = workers.role, record.job.team
        limits = tuple(limit for limit in self._limited.get(team, ()) if limit[1] in workers.gpu_types)
        over = tuple(self._over[record.id] > at for at in self._times)
        slots = self._number(workers.slots)
        return (
            record.level,
            role.name,
            role.request,
            slots,
            gang.reach,
            over,
            limits,
            team if role.request.fractional else None,
        )

    def _number(self, slots: tuple[Slot, ...]) -> int:
        """The same number for equal slots; most are the same object, which is quicker to see."""
        if id(slots) not in self._slots:
            self._slots[id(slots)] = self._equal.setdefault(slots, len(self._equal))
        return self._slots[id(slots)]


def _merged(gangs: Sequence[Gang], instance: Instance) -> Gang:
    """One gang for all of these; its slots take as many workers as it has members, as far as they fit."""
    first = gangs[0]
    workers, record = first.workers[0], first.record
    hosts = list(dict.fromkeys(slot.host for slot in workers.slots))
    sites = frozenset(instance.hosts[host].host.path.site for host in hosts)
    role = replace(workers.role, count=len(gangs), parallelism=None)
    found = slots_on((instance.hosts[host] for host in hosts), record.job.team, role, sites, first.reach)
    known = {(slot.host, slot.kind) for slot in workers.slots}
    slots = tuple(slot for slot in found if (slot.host, slot.kind) in known)
    label = f"+{len(gangs) - 1}"
    return replace(
        first,
        label=label,
        workers=(WorkerClass(JobId(record.id + label), workers.role, slots),),
        members=tuple(gang.record for gang in gangs),
    )
