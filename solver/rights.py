"""Guarantees: whose they are, which running jobs they cover, and who may therefore evict whom (docs/rounds.md).

Derived once a round from the snapshot; encoder, greedy and verifier read it, and state the rules independently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ..model.host import MILLI
from ..model.ids import HostId, JobId, TeamId
from ..model.job import Job, Preemptible
from ..model.placement import Placement
from ..model.snapshot import JobRecord, Snapshot
from .same import Same
from .sizes import at_size, start_sizes

Key = tuple[TeamId, str]
"""A team that holds a guarantee, and a GPU type that it lists."""

Holders = tuple[tuple[str, TeamId], ...]
"""By GPU type, sorted: the team whose guarantee counts there."""


@dataclass(frozen=True, slots=True)
class Starter:
    """What gives a start its rights: its tier and level, whether it starts inside, and all holders of its team."""

    tier: int
    level: int
    inside: bool
    holders: Holders


@dataclass(frozen=True, slots=True)
class Runner:
    """What protects a running job: its tier and level, whether it is inside, and the holders for the types it uses."""

    tier: int
    level: int
    inside: bool
    holders: Holders


def may_evict(start: Starter, victim: Runner) -> bool:
    """Whether the start may use what the victim leaves.

    An inside job gives way to a higher level of its own guarantee, and to a higher level of tier 1; one outside to any
    higher level, and at tiers 3 and 4 to an inside start of its own level.
    """
    if start.level > victim.level:
        return not victim.inside or start.tier == 1 or set(victim.holders) <= set(start.holders)
    return start.level == victim.level and start.inside and not victim.inside and victim.tier in (3, 4)


class Rights:
    """The guarantees of one snapshot. Amounts in milli-GPU."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.guarantee: dict[Key, int] = {
            (team.id, quota.gpu_type): quota.gpu_milli for team in snapshot.teams for quota in team.guarantee
        }
        self._snapshot = snapshot
        self._parent = {team.id: team.parent for team in snapshot.teams}
        self._types: dict[tuple[HostId, int], str] = {}
        self._holders: dict[TeamId, dict[str, TeamId]] = {}
        if self.guarantee:
            self._types = {(host.id, gpu.index): gpu.gpu_type for host in snapshot.hosts for gpu in host.gpus}

    @cached_property
    def inside(self) -> frozenset[JobId]:
        """The jobs that hold capacity and are covered by their team's guarantee now."""
        return frozenset(self._covered()) if self.guarantee else frozenset()

    def holder(self, team: TeamId, gpu_type: str) -> TeamId | None:
        """The nearest team at or above that one whose guarantee lists the type."""
        return self._holders_of(team).get(gpu_type)

    def guaranteed(self, team: TeamId, gpu_type: str) -> int:
        """What the guarantee that counts for the team has of the type; 0 without a holder."""
        holder = self.holder(team, gpu_type)
        return 0 if holder is None else self.guarantee[holder, gpu_type]

    def uses(self, job: Job, placement: Placement | None) -> Counter[str]:
        """What the job holds there, by GPU type; empty where nobody has a guarantee."""
        used: Counter[str] = Counter()
        requests = {role.name: role.request for role in job.roles}
        for worker in placement.workers if placement is not None and self._types else ():
            request = requests.get(worker.role)
            for index in worker.gpus if request is not None else ():
                gpu_type = self._types.get((worker.host, index))
                if gpu_type is not None and request is not None:
                    used[gpu_type] += request.gpu_milli if request.fractional else MILLI
        return used

    def counted(self, job: Job, placement: Placement | None) -> Counter[Key]:
        """What the job holds there of each guarantee; types without a holder are left out."""
        counted: Counter[Key] = Counter()
        for gpu_type, milli in self.uses(job, placement).items():
            holder = self.holder(job.team, gpu_type)
            if holder is not None:
                counted[holder, gpu_type] += milli
        return counted

    @cached_property
    def left(self) -> dict[Key, int]:
        """What of each guarantee starts may still claim: less all that running work of levels >= 1 uses; 0 or more."""
        used: Counter[Key] = Counter()
        for record in self._snapshot.jobs if self.guarantee else ():
            if record.state.holds_capacity and record.level >= 1:
                used.update(self.counted(record.job, record.placement))
        return {key: max(0, milli - used[key]) for key, milli in self.guarantee.items()}

    def coverable(self, job: Job, placement: Placement | None) -> bool:
        """Whether the job uses GPUs there, all of types for which its team has a holder."""
        used = self.uses(job, placement)
        return bool(used) and all(self.holder(job.team, gpu_type) is not None for gpu_type in used)

    def can_be_inside(self, record: JobRecord) -> bool:
        """Whether a candidate could start inside at all: of level 1 or above, enough left for each GPU role alone.

        An elastic one at its smallest size.
        """
        held = self._holders_of(record.job.team)
        if not held or record.level < 1:
            return False
        able = start_sizes(record)
        job = at_size(record.job, able[0]) if able else record.job
        roles = [role for role in job.roles if role.request.gpu_milli]
        return bool(roles) and all(
            any(
                role.throughput_milli(gpu_type) is not None and self.left[holder, gpu_type] >= role.gpu_milli
                for gpu_type, holder in held.items()
            )
            for role in roles
        )

    def ways(self, record: JobRecord) -> tuple[bool, ...]:
        """How the candidate may start: outside, inside, both, or not at all."""
        return (*(() if only_inside(record) else (False,)), *((True,) if self.can_be_inside(record) else ()))

    def starter(self, record: JobRecord, *, inside: bool) -> Starter:
        """The rights of a start of that job."""
        holders = tuple(sorted(self._holders_of(record.job.team).items()))
        return Starter(record.job.tier, record.level, inside, holders)

    def runner(self, record: JobRecord) -> Runner:
        """The protection of a job that holds capacity."""
        inside = record.id in self.inside
        used = self.uses(record.job, record.placement) if inside else ()
        held = self._holders_of(record.job.team)
        return Runner(record.job.tier, record.level, inside, tuple(sorted((t, held[t]) for t in used)))

    def _covered(self) -> Iterator[JobId]:
        """Those flagged inside first, then the others, the longest running first, while the guarantees last."""
        left = Counter(self.guarantee)
        holding = [r for r in self._snapshot.jobs if r.state.holds_capacity and r.level >= 1]
        for record in sorted(holding, key=lambda r: (not r.inside_guarantee, _since_s(r), r.id)):
            used = self.counted(record.job, record.placement)
            if self.coverable(record.job, record.placement) and all(left[key] >= used[key] for key in used):
                left -= used
                yield record.id

    def _holders_of(self, team: TeamId) -> dict[str, TeamId]:
        held = self._holders.get(team)
        if held is None:
            parent = self._parent.get(team)
            held = dict(self._holders_of(parent)) if parent is not None and self.guarantee else {}
            held.update({gpu_type: holder for holder, gpu_type in self.guarantee if holder == team})
            self._holders[team] = held
        return held


def never(record: JobRecord) -> bool:
    """Whether the job must not be preempted: so it asks, and it is not demoted for budget."""
    return record.job.preemptible is Preemptible.NEVER and not record.demoted


def only_inside(record: JobRecord) -> bool:
    """Whether the job starts only inside a guarantee: tiers 3 and 4 have no other right never to be preempted."""
    return never(record) and record.job.tier in (3, 4)


def rights_of(snapshot: Snapshot) -> Rights:
    """The guarantees of that snapshot; remembered for the last few, as one round asks for them in many places."""
    return _remembered(Same(snapshot)) if any(team.guarantee for team in snapshot.teams) else Rights(snapshot)


def inside_now(snapshot: Snapshot) -> frozenset[JobId]:
    """The jobs that hold capacity and are covered by their team's guarantee now."""
    return rights_of(snapshot).inside


@lru_cache(maxsize=2)
def _remembered(same: Same) -> Rights:
    return Rights(same.snapshot)


def _since_s(record: JobRecord) -> int:
    return record.started_s or record.planned_s or 0
