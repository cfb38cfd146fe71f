"""The verifier's half about limits and reserved pools at planned starts: what plans take beside what is held then."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ..model.ids import JobId, SiteId, TeamId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .remember import remembered
from .verify_quota import Holdings
from .verify_reserved import Pooled

if TYPE_CHECKING:
    from .verify_planned import Planned

Key = tuple[str, str, str]
"""What allows so much and no more: "limit", a team and a GPU type, or "pool", a site and a GPU type."""


class Allowances:
    """How much limits, and what reserved pools leave to level 1, allow [milli-GPU], and what counts against them."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._holdings, self._pooled = Holdings(snapshot, (), ()), Pooled(snapshot, policy)
        self.most: dict[Key, int] = {("limit", *key): milli for key, milli in self._holdings.limits.items()}
        self.most.update({("pool", *key): milli for key, milli in self._pooled.most.items()})
        self._parent = {team.id: team.parent for team in snapshot.teams}
        self._jobs = snapshot.jobs

    @cached_property
    def running(self) -> list[tuple[JobRecord, Counter[Key]]]:
        """The jobs with a place that count against any of it, and how much; worked out only where there are plans."""
        if not self.most:
            return []
        held = ((record, self.held(record, record.placement)) for record in self._jobs if record.placement)
        return [(record, counted) for record, counted in held if counted]

    def held(self, record: JobRecord, placement: Placement | None) -> Counter[Key]:
        """What counts of the job there."""
        found: Counter[Key] = Counter()
        if self.most:
            found.update({("limit", *key): milli for key, milli in self._holdings.held(record.job, placement).items()})
            found.update({("pool", *key): milli for key, milli in self._pooled.held(record, placement).items()})
        return found

    def counting(self, record: JobRecord, site: SiteId, gpu_type: str) -> Iterator[Key]:
        """What would count GPUs of that type that the job held at that site."""
        team: TeamId | None = record.job.team
        while team is not None:
            if ("limit", team, gpu_type) in self.most:
                yield "limit", team, gpu_type
            team = self._parent.get(team)
        if record.level == 1 and ("pool", site, gpu_type) in self.most:
            yield "pool", site, gpu_type


@remembered
def allowances(snapshot: Snapshot, policy: Policy) -> Allowances:
    """The allowances of that round."""
    return Allowances(snapshot, policy)


class Allowed:
    """Whether limits and pools allow some plans at their starts.

    `gone` are jobs that leave in this round, `coming` its starts, over when `over_s` says.
    """

    def __init__(
        self,
        allowed: Allowances,
        plans: Sequence[Planned],
        coming: Iterable[tuple[JobRecord, Placement]],
        gone: Collection[JobId],
        clear: Callable[[JobRecord, JobRecord], int],
        over_s: dict[JobId, int],
    ) -> None:
        self._allowed, self._clear, self._over_s = allowed, clear, over_s
        self._plans: dict[Key, list[tuple[Planned, int]]] = defaultdict(list)
        for plan in plans if allowed.most else ():
            for key, milli in allowed.held(plan.record, plan.placement).items():
                self._plans[key].append((plan, milli))
        self._work: dict[Key, list[tuple[JobRecord, int]]] = defaultdict(list)
        self._coming: dict[Key, list[tuple[JobRecord, int]]] = defaultdict(list)
        if self._plans:
            staying = ((record, held) for record, held in allowed.running if record.id not in gone)
            self._enter(self._work, staying)
            self._enter(self._coming, ((record, allowed.held(record, placement)) for record, placement in coming))

    def _enter(
        self, there: dict[Key, list[tuple[JobRecord, int]]], entries: Iterable[tuple[JobRecord, Counter[Key]]]
    ) -> None:
        for record, held in entries:
            for key in held.keys() & self._plans.keys():
                there[key].append((record, held[key]))

    def over(self, plan: Planned) -> Iterator[tuple[Key, int]]:
        """Each limit and pool that the plan needs more of than there is at its start, and how much more."""
        for key, plans in self._plans.items():
            beyond = self._beyond(key, plan)
            if beyond > 0 and any(other is plan for other, _ in plans):
                yield key, beyond

    def forbids(self, record: JobRecord) -> bool:
        """Whether a plan would no longer be allowed if that stopped job still ran."""
        held = self._allowed.held(record, record.placement) if self._plans else Counter[Key]()
        return any(
            self._clear(record, plan.record) > plan.at_s and self._beyond(key, plan, milli, without=record.id) > 0
            for key, milli in held.items()
            for plan, _ in self._plans.get(key, ())
        )

    def put_back(self, record: JobRecord) -> None:
        """The job that stopped, or returned, still runs where it was."""
        if self._plans:
            for key, entries in self._coming.items():
                self._coming[key] = [entry for entry in entries if entry[0].id != record.id]
            self._enter(self._work, [(record, self._allowed.held(record, record.placement))])

    def sharing(self, plan: Planned) -> list[Planned]:
        """The other plans that need some limit or pool that the plan needs."""
        shared = [plans for plans in self._plans.values() if any(other is plan for other, _ in plans)]
        return [other for plans in shared for other, _ in plans if other is not plan]

    def _beyond(self, key: Key, plan: Planned, more: int = 0, without: str = "") -> int:
        planned = sum(milli for other, milli in self._plans[key] if other.at_s <= plan.at_s)
        work = sum(
            milli
            for record, milli in self._work.get(key, ())
            if record.id != without and self._clear(record, plan.record) > plan.at_s
        )
        coming = sum(
            milli
            for record, milli in self._coming.get(key, ())
            if record.id != without and self._over_s[record.id] > plan.at_s
        )
        return planned + work + coming + more - self._allowed.most[key]
