"""Reduction: what the encoder tells apart, and which host classes each worker class may use.

The encoder knows host classes and worker classes only. At the singleton grain each host is a class of its own and each
role of each job is a class of its own; candidates are pruned to hosts that could take at least one worker, once every
job that may be preempted for it has left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from .domains import Domains
from .held import HostClass
from .leaving import Ways, as_all_may_leave
from .lineage import limited
from .moved import moved_id
from .places import Places
from .remember import remembered
from .returning import returners, smaller
from .rights import Rights, only_inside, rights_of
from .round_slots import Narrow, Slots
from .sizes import at_size, ways
from .slots import Slot


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
    `staying`: possible victims of whom it is known that they are not preempted (`narrow`).
    """

    snapshot: Snapshot
    policy: Policy
    hosts: dict[HostId, HostClass]
    gangs: tuple[Gang, ...]
    victims: tuple[JobRecord, ...]
    rights: Rights
    returns: tuple[Gang, ...]
    ways: Ways
    domains: Domains
    staying: frozenset[JobId] = frozenset()

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


def reduce(snapshot: Snapshot, policy: Policy, *, narrow: Narrow | None = None, least: int = 0) -> Instance:
    """The instance of this round at the singleton grain; the snapshot is `settled`.

    `narrow` leaves gangs only some of their hosts; those of levels below `least` are left out.
    """
    round_, size = _Round(snapshot, policy, narrow), _Size(snapshot)
    asked = (candidate for candidate in candidates(snapshot) if candidate.level >= least)
    return round_.instance([gang for candidate in asked for gang in round_.starts(candidate, size)])


def uppermost(snapshot: Snapshot, policy: Policy, most: int) -> tuple[Instance, int] | None:
    """The round with the gangs of its highest levels, as many as have at most so many slots, and the lowest of these.

    Slots are counted as if gangs were merged wherever they can be. 0 is the lowest level where the round is whole; None
    where the gangs of the highest level have more slots.
    """
    round_, size = _Round(snapshot, policy, None), _Size(snapshot)
    gangs: dict[JobId, list[Gang]] = {}
    least = None
    levels = sorted({record.level for record in candidates(snapshot)}, reverse=True)
    for level in levels:
        asking = [candidate for candidate in candidates(snapshot) if candidate.level == level]
        if level == levels[0] and round_.roughly(asking) > most:
            break
        here = {}
        for candidate in asking:
            if size.slots <= most:
                here[candidate.id] = round_.starts(candidate, size)
        if size.slots > most:
            break
        gangs, least = gangs | here, level
    else:
        least = 0
    if least is None:
        return None
    found = [gang for candidate in candidates(snapshot) for gang in gangs.get(candidate.id, ())]
    return round_.instance(found), least


class _Size:
    """Slots counted as if gangs were merged wherever they can be: those of one worker that are alike once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.slots = 0
        self._limits = limited(snapshot)
        self._known: set[object] = set()

    def add(self, gang: Gang) -> None:
        """Counts one more."""
        record = gang.record
        for workers in gang.workers:
            alike = id(workers.slots), record.level, gang.reach, self._limits.get(record.job.team)
            if record.job.workers > 1 or alike not in self._known:
                self.slots += len(workers.slots)
                self._known.add(alike)


@remembered
def _prepared(snapshot: Snapshot, policy: Policy) -> tuple[Ways, dict[HostId, HostClass], Places, Access, Domains]:
    """How running work may leave, the hosts as it does, their index, whom what it leaves is for, their domains."""
    leaving, movers = victims(snapshot, policy), returners(snapshot, policy).movers
    out, hosts = as_all_may_leave(snapshot, policy)
    access = Access(rights_of(snapshot), leaving, movers)
    return out, hosts, Places(hosts.values()), access, Domains(hosts)


class _Round:
    """What the gangs of a round are made from."""

    def __init__(self, snapshot: Snapshot, policy: Policy, narrow: Narrow | None) -> None:
        self._snapshot, self._policy = snapshot, policy
        self._victims, self._returners = victims(snapshot, policy), returners(snapshot, policy)
        self._out, self._hosts, self._places, self._access, self._domains = _prepared(snapshot, policy)
        self._rights = rights_of(snapshot)
        self._slots = Slots(snapshot, policy, self._hosts, self._places, self._domains, narrow)
        self._confinement = confinements(snapshot, policy)

    def starts(self, candidate: JobRecord, size: _Size) -> list[Gang]:
        """The candidate at each size at which it may start; `size` counts them."""
        found = []
        for record in ways(candidate):
            gang = _start(record, self._access, self._rights, self._slots, self._confinement)
            if gang is not None:
                size.add(gang)
                found.append(gang)
        return found

    def roughly(self, asking: Sequence[JobRecord]) -> int:
        """About how many slots these have, alike gangs of one worker counted once, before most rules are looked at."""
        total, known = 0, set[object]()
        for record in asking:
            reach = self._access.reach(record, inside=self._rights.can_be_inside(record))
            for role in record.job.roles:
                shape = (role.request, role.gpu_types, reach)
                if record.job.workers > 1 or shape not in known:
                    total += len(self._places.among(role, reach))
                    known.add(shape)
        return total

    def instance(self, gangs: Iterable[Gang]) -> Instance:
        """The round with these gangs, and with all that may return."""
        kinds = {host.id: host for host in self._snapshot.hosts}
        shrinkers, movers = self._returners.shrinkers, self._returners.movers
        smaller_ones = ((r, replace(r, job=at_size(r.job, size))) for r in shrinkers for size in smaller(r))
        pairs = (*smaller_ones, *((record, record) for record in movers))
        returning = (_return(now, then, kinds, self._slots, self._confinement) for now, then in pairs)
        returns = tuple(gang for gang in returning if gang is not None)
        return Instance(
            snapshot=self._snapshot,
            policy=self._policy,
            hosts=self._hosts,
            gangs=tuple(gangs),
            victims=self._victims,
            rights=self._rights,
            returns=returns,
            ways=self._out,
            domains=self._domains,
        )


def _start(record: JobRecord, access: Access, rights: Rights, slots: Slots, confinement: Confinements) -> Gang | None:
    """The candidate at its size; None where it cannot start at it."""
    may, only = rights.can_be_inside(record), only_inside(record)
    label = f"@{record.job.workers}" if record.job.elastic else ""
    widest, where = access.reach(record, inside=may), confinement(record.job)
    workers = []
    for role in record.job.roles:
        covered, found = _covered(record, role, rights, may), slots.of(record, role, widest, where.required)
        if covered and only:
            found = tuple(slot for slot in found if slot.kind is not None and slot.kind.gpu_type in covered)
        types = sorted({slot.kind.gpu_type for slot in found if slot.kind is not None} & covered) if covered else ()
        workers.append(WorkerClass(JobId(record.id + label), role, found, tuple(types)))
    may = may and all(w.covered for w in workers if w.role.request.gpu_milli)
    if (only and not may) or not all(w.enough for w in workers):
        return None
    reach = access.reach(record, inside=False)
    return Gang(record, where, tuple(workers), reach, widest if may else reach, may, only, label)


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
        found = (slot for slot in slots.of(then, role, reach, where.required) if slot.host != shut)
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
