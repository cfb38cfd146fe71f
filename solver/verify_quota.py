"""The verifier's half about limits: no team, and no part of the tree of teams, comes to hold more than it may."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence

from ..model.decision import Preemption, Resize, RuleFamily, Start
from ..model.host import MILLI
from ..model.ids import HostId, TeamId
from ..model.job import Job
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
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


class Holdings:
    """What each limited team holds of each type that its limit lists [milli-GPU]: what stays, and what starts."""

    def __init__(
        self, snapshot: Snapshot, starts: Sequence[Start], gone: Collection[str], resizes: Sequence[Resize] = ()
    ) -> None:
        self.limits: dict[Key, int] = {
            (team.id, quota.gpu_type): quota.gpu_milli for team in snapshot.teams for quota in team.limit or ()
        }
        self._parent = {team.id: team.parent for team in snapshot.teams}
        self._sides = Sides(snapshot, starts, resizes)
        self._held: Counter[Key] = Counter()
        self._leaving: dict[Key, Counter[Source]] = defaultdict(Counter)
        self._coming: dict[Key, Counter[Taker]] = defaultdict(Counter)
        self._starters: dict[Key, list[str]] = defaultdict(list)
        self._types: dict[tuple[HostId, int], str] = {}
        if not self.limits:
            return
        self._types = {(host.id, gpu.index): gpu.gpu_type for host in snapshot.hosts for gpu in host.gpus}
        records = {record.id: record for record in snapshot.jobs}
        leaving = {*gone, *(each.job for each in resizes)}
        for record in snapshot.jobs:
            for key, milli in self.held(record.job, record.placement).items():
                self._held[key] += milli
                if record.id in leaving:
                    self._leaving[key][self._sides.source(record)] += milli
        for start in (*starts, *returning(resizes)):
            if start.job in records:
                record = records[start.job]
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
        held: Counter[Key] = Counter()
        if not self.limits or placement is None:
            return held
        requests = {role.name: role.request for role in job.roles}
        by_type: Counter[str] = Counter()
        for worker in placement.workers:
            request = requests.get(worker.role)
            for index in worker.gpus if request is not None else ():
                gpu_type = self._types.get((worker.host, index))
                if gpu_type is not None and request is not None:
                    by_type[gpu_type] += request.gpu_milli if request.fractional else MILLI
        team: TeamId | None = job.team
        while team is not None:
            for gpu_type, milli in by_type.items():
                if (team, gpu_type) in self.limits:
                    held[team, gpu_type] += milli
            team = self._parent.get(team)
        return held
