"""The verifier's half about limits: no team, and no part of the tree of teams, comes to hold more than it may."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence

from ..model.decision import Preemption, Resize, RuleFamily, Start
from ..model.host import MILLI
from ..model.ids import HostId, JobId, TeamId
from ..model.job import Job
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .remember import remembered
from .verify_rights import Again, Sides, Source, Taker, returning, unserved
from .violation import Violation

Key = tuple[TeamId, str]
"""A team with a limit, and a GPU type that the limit lists."""


def quota(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    preemptions: Sequence[Preemption] = (),
    resizes: Sequence[Resize] = (),
) -> Iterator[Violation]:
    """No start takes a team, or one above it, beyond a limit; what victims leave is for those that may evict them."""
    yield from Holdings(snapshot, starts, {act.job for act in preemptions}, resizes).over()


class Limits:
    """The limits of one snapshot, and what all that holds capacity in it holds of them [milli-GPU]."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.most: dict[Key, int] = {
            (team.id, quota.gpu_type): quota.gpu_milli for team in snapshot.teams for quota in team.limit or ()
        }
        self._parent = {team.id: team.parent for team in snapshot.teams}
        self._above: dict[TeamId, dict[str, list[Key]]] = {}
        self._types: dict[tuple[HostId, int], str] = {}
        self.records: dict[JobId, JobRecord] = {}
        self.running: list[tuple[JobRecord, Counter[Key]]] = []
        self.in_all: Counter[Key] = Counter()
        if self.most:
            self._types = {(host.id, gpu.index): gpu.gpu_type for host in snapshot.hosts for gpu in host.gpus}
            self.records = {record.id: record for record in snapshot.jobs}
        for record in snapshot.jobs if self.most else ():
            held = self.held(record.job, record.placement)
            if held:
                self.running.append((record, held))
                self.in_all.update(held)

    def held(self, job: Job, placement: Placement | None) -> Counter[Key]:
        """What the job holds there, for each team at or above its own; empty where no limit counts it."""
        held: Counter[Key] = Counter()
        counting = self._counting(job.team) if self.most and placement is not None else {}
        if not counting or placement is None:
            return held
        each = {role.name: role.request.gpu_milli if role.request.fractional else MILLI for role in job.roles}
        for worker in placement.workers:
            milli = each.get(worker.role)
            for index in worker.gpus if milli is not None else ():
                for key in counting.get(self._types.get((worker.host, index), ""), ()):
                    held[key] += milli or 0
        return held

    def _counting(self, team: TeamId) -> dict[str, list[Key]]:
        """The limits of the team and of those above it, by GPU type."""
        if team not in self._above:
            found: dict[str, list[Key]] = defaultdict(list)
            cursor: TeamId | None = team
            while cursor is not None:
                for name, gpu_type in self.most:
                    if name == cursor:
                        found[gpu_type].append((name, gpu_type))
                cursor = self._parent.get(cursor)
            self._above[team] = dict(found)
        return self._above[team]


@remembered
def _limits(snapshot: Snapshot) -> Limits:
    return Limits(snapshot)


class Holdings:
    """What each limited team holds of each type that its limit lists [milli-GPU]: what stays, and what starts."""

    def __init__(
        self, snapshot: Snapshot, starts: Sequence[Start], gone: Collection[str], resizes: Sequence[Resize] = ()
    ) -> None:
        self._all = _limits(snapshot)
        self.limits = self._all.most
        self._sides = Sides(snapshot, starts, resizes)
        self._held = self._all.in_all
        self._leaving: dict[Key, Counter[Source]] = defaultdict(Counter)
        self._coming: dict[Key, Counter[Taker]] = defaultdict(Counter)
        self._starters: dict[Key, list[str]] = defaultdict(list)
        leaving = {*gone, *(each.job for each in resizes)}
        for record, held in self._all.running if leaving else ():
            if record.id in leaving:
                for key, milli in held.items():
                    self._leaving[key][self._sides.source(record)] += milli
        for start in (*starts, *returning(resizes)):
            if start.job in self._all.records:
                record = self._all.records[start.job]
                for key, milli in self.held(record.job, start.placement).items():
                    self._coming[key][self._sides.taker(record)] += milli
                    self._starters[key].append(start.job)

    def over(self) -> Iterator[Violation]:
        """Each limit that what starts goes beyond; what stays is not at fault, even where it is beyond already."""
        for key, limit in self.limits.items():
            team, gpu_type = key
            coming = self._coming[key]
            beyond = unserved(limit - self._held[key], self._leaving[key], coming)
            if beyond > 0:
                text = (
                    f"team {team} may hold {limit} milli-GPU of {gpu_type} and would hold {limit + beyond}, with "
                    f"job {self._starters[key][-1]} started"
                )
                over = min(beyond, coming.total())
                yield Violation(family=RuleFamily.QUOTA, subject=team, amount=over, unit="milli-GPU", message=text)

    def forbids(self, record: JobRecord) -> bool:
        """Whether some limit would be exceeded, by the starts, if that stopped job still ran."""
        back = self._sides.source(record)
        return any(
            unserved(
                self.limits[key] - self._held[key],
                {who: freed - (milli if who == back else 0) for who, freed in self._leaving[key].items()},
                {who: asked for who, asked in self._coming[key].items() if who != Again(record.id)},
            )
            for key, milli in self.held(record.job, record.placement).items()
        )

    def put_back(self, record: JobRecord) -> None:
        """The job that stopped, or returned, still runs where it was."""
        for key, milli in self.held(record.job, record.placement).items():
            self._leaving[key][self._sides.source(record)] -= milli
        for coming in self._coming.values():
            del coming[Again(record.id)]

    def held(self, job: Job, placement: Placement | None) -> Counter[Key]:
        """What the job holds there, for each team at or above its own; empty where no limit counts it."""
        return self._all.held(job, placement)
