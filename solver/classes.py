"""Reduction: what the encoder tells apart, and which host classes each worker class may use.

The encoder knows host classes and worker classes only. At the singleton grain each host is a class of its own and each
role of each job is a class of its own; candidates are pruned to hosts that could take at least one worker, once every
job that may be preempted for it has left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..model.host import Host
from ..model.ids import HostId, JobId
from ..model.job import Role
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.topology import Layer
from .access import Access, Reach
from .confinements import Confinements, confinements
from .demand import Confinement, candidates, victims
from .held import HostClass, Ways, host_classes, ways_out
from .moved import moved_id
from .returning import returners, smaller
from .rights import Rights, only_inside, rights_of
from .sizes import at_size, ways
from .slots import Narrow, Slot, Slots


@dataclass(frozen=True, slots=True)
class WorkerClass:
    """The identical workers of one role of one gang, the slots they may take, and the GPU types a guarantee covers."""

    job: JobId
    role: Role
    slots: tuple[Slot, ...]
    covered: tuple[str, ...] = ()

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """GPU types of its slots, each once, sorted."""
        return tuple(sorted({slot.kind.gpu_type for slot in self.slots if slot.kind is not None}))

    @property
    def enough(self) -> bool:
        """Whether the slots take all workers, each alone."""
        return sum(slot.most for slot in self.slots) >= self.role.count


@dataclass(frozen=True, slots=True)
class Gang:
    """One candidate of the round and its worker classes, in the order of its roles; an elastic one at one size.

    Also a running gang that may return: `back` is how it runs now, and `label` tells it from the job itself.
    `reach`: the possible victims whose capacity it may use; `widest_reach`: the same if it starts inside its guarantee,
    where it can (`may_be_inside`); `only_inside`: it starts so or not at all.
    `members`: the candidates that it stands for where alike ones are merged, each of one worker, in queue order; then
    `record` is the first of them.
    """

    record: JobRecord
    confinement: Confinement
    workers: tuple[WorkerClass, ...]
    reach: Reach
    widest_reach: Reach
    may_be_inside: bool
    only_inside: bool
    label: str = ""
    back: JobRecord | None = None
    members: tuple[JobRecord, ...] = ()

    @property
    def id(self) -> JobId:
        """The job's name; of an elastic or returning gang with its label, which begins with an @."""
        return JobId(self.record.id + self.label)

    @property
    def moved(self) -> bool:
        """Whether it returns at the size it has."""
        return self.back is not None and self.back.job.workers == self.record.job.workers


@dataclass(frozen=True, slots=True)
class Instance:
    """One round, reduced. Gangs without enough slots for some role are left out: they cannot start now.

    `returns`: the ways in which running gangs may return. `ways`: how each job that may leave can do so (`held`).
    """

    snapshot: Snapshot
    policy: Policy
    hosts: dict[HostId, HostClass]
    gangs: tuple[Gang, ...]
    victims: tuple[JobRecord, ...]
    rights: Rights
    returns: tuple[Gang, ...]
    ways: Ways

    @property
    def coming(self) -> tuple[Gang, ...]:
        """All that may come to a place now: starts and returns."""
        return (*self.gangs, *self.returns)

    @property
    def columns(self) -> int:
        """Number of (worker class, slot) pairs and victims; fractional workers count each card of their hosts."""
        total = len(self.victims)
        for gang in self.coming:
            for workers in gang.workers:
                if workers.role.request.fractional:
                    total += sum(len(self.hosts[slot.host].cards) for slot in workers.slots)
                else:
                    total += len(workers.slots)
        return total


class TooLarge(Exception):
    """The instance has more slots than were asked for."""


def reduce(snapshot: Snapshot, policy: Policy, *, most: int | None = None, narrow: Narrow | None = None) -> Instance:
    """The instance of this round at the singleton grain; the snapshot is `settled`.

    `narrow` leaves gangs only some of their hosts. Raises TooLarge once gangs that start have more than `most` slots.
    """
    may_leave, may_return = victims(snapshot, policy), returners(snapshot, policy)
    out = ways_out(may_leave, may_return.movers)
    hosts, rights = host_classes(snapshot, out), rights_of(snapshot)
    access, slots = Access(rights, may_leave, may_return.movers), Slots(snapshot, policy, hosts, narrow)
    confinement = confinements(snapshot, policy)
    starting = (
        _start(record, access, rights, slots, confinement)
        for candidate in candidates(snapshot)
        for record in ways(candidate)
    )
    gangs = _at_most((gang for gang in starting if gang is not None), most)
    kinds = {host.id: host for host in snapshot.hosts}
    smaller_ones = ((r, replace(r, job=at_size(r.job, size))) for r in may_return.shrinkers for size in smaller(r))
    pairs = (*smaller_ones, *((record, record) for record in may_return.movers))
    returning = (_return(now, then, kinds, slots, confinement) for now, then in pairs)
    returns = tuple(gang for gang in returning if gang is not None)
    return Instance(snapshot, policy, hosts, gangs, may_leave, rights, returns, out)


def _at_most(gangs: Iterable[Gang], most: int | None) -> tuple[Gang, ...]:
    """The gangs; raises TooLarge as soon as they have more than so many slots."""
    found, total = [], 0
    for gang in gangs:
        found.append(gang)
        total += sum(len(workers.slots) for workers in gang.workers)
        if most is not None and total > most:
            raise TooLarge(f"more than {most} slots")
    return tuple(found)


def _start(record: JobRecord, access: Access, rights: Rights, slots: Slots, confinement: Confinements) -> Gang | None:
    """The candidate at its size; None where it cannot start at it."""
    may, only = rights.can_be_inside(record), only_inside(record)
    label = f"@{record.job.workers}" if record.job.elastic else ""
    widest = access.reach(record, inside=may)
    workers = []
    for role in record.job.roles:
        covered, found = _covered(record, role, rights, may), slots.of(record, role, widest)
        if covered and only:
            found = tuple(slot for slot in found if slot.kind is not None and slot.kind.gpu_type in covered)
        types = sorted({slot.kind.gpu_type for slot in found if slot.kind is not None} & covered) if covered else ()
        workers.append(WorkerClass(JobId(record.id + label), role, found, tuple(types)))
    may = may and all(w.covered for w in workers if w.role.request.gpu_milli)
    if (only and not may) or not all(w.enough for w in workers):
        return None
    reach = access.reach(record, inside=False)
    return Gang(record, confinement(record.job), tuple(workers), reach, widest if may else reach, may, only, label)


def _covered(record: JobRecord, role: Role, rights: Rights, may: bool) -> frozenset[str]:
    """The GPU types on which the role fits into what is left of a guarantee of its team."""
    if not may or not role.request.gpu_milli:
        return frozenset()
    return frozenset(
        gpu_type
        for (team, gpu_type), left in rights.left.items()
        if left >= role.gpu_milli and rights.holder(record.job.team, gpu_type) == team
    )


def _return(
    now: JobRecord, then: JobRecord, hosts: dict[HostId, Host], slots: Slots, confinement: Confinements
) -> Gang | None:
    """The running gang as it may return: on what is free and what it leaves itself, each role on its GPU type."""
    moved, where = then is now, confinement(then.job)
    label = "@again" if moved else f"@again{then.job.workers}"
    reach = frozenset({moved_id(now.id) if moved else now.id})
    held = _holds(now, hosts)
    shut = _pointless(now, where, hosts) if moved else None
    workers = []
    for role in then.job.roles:
        found = (slot for slot in slots.of(then, role, reach) if slot.host != shut)
        on_type = tuple(s for s in found if s.kind is None or s.kind.gpu_type in held[role.name])
        workers.append(WorkerClass(JobId(now.id + label), role, on_type))
    if not all(w.enough for w in workers):
        return None
    return Gang(then, where, tuple(workers), reach, reach, False, False, label, now)


def _holds(record: JobRecord, hosts: dict[HostId, Host]) -> dict[str, set[str]]:
    """The GPU types on which each role runs: one, if it was started by these rules."""
    types: dict[str, set[str]] = {role.name: set() for role in record.job.roles}
    for worker in record.placement.workers if record.placement else ():
        gpu = hosts[worker.host].gpu(worker.gpus[0]) if worker.gpus else None
        if gpu is not None:
            types[worker.role].add(gpu.gpu_type)
    return types


def _pointless(record: JobRecord, where: Confinement, hosts: dict[HostId, Host]) -> HostId | None:
    """The host to which a gang on one host would be moved for nothing: all of it again, and on like cards."""
    used = record.placement.hosts if record.placement else ()
    if len(used) != 1 or not (record.job.workers == 1 or where.required is Layer.HOST):
        return None
    cards = {(gpu.gpu_type, gpu.memory_mib) for gpu in hosts[used[0]].gpus}
    return used[0] if len(cards) == len({gpu_type for gpu_type, _ in cards}) else None
