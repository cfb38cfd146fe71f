"""The verifier's half about reserved pools: what tiers 1 and 2 are promised, level 1 leaves alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence

from ..model.decision import Preemption, Resize, RuleFamily, Start
from ..model.host import MILLI
from ..model.ids import HostId, SiteId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import placeable
from .verify_rights import Again, Sides, Source, Taker, returning, unserved
from .violation import Violation

Pool = tuple[SiteId, str]
"""A site and a GPU type of which the policy reserves a part there."""


def reserved(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    preemptions: Sequence[Preemption] = (),
    resizes: Sequence[Resize] = (),
) -> Iterator[Violation]:
    """Starts of level 1 leave the reserved part of each pool; what victims leave is for those that may evict them."""
    yield from Pooled(snapshot, policy, starts, {act.job for act in preemptions}, resizes).over()


class Pooled:
    """What level 1 holds of each reserved pool [milli-GPU]: what stays, what leaves, what starts."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        starts: Sequence[Start] = (),
        gone: Collection[str] = (),
        resizes: Sequence[Resize] = (),
    ) -> None:
        reserved = {(pool.site, pool.gpu_type): pool.gpu_milli for pool in policy.reserved if pool.gpu_milli}
        self._pool: dict[tuple[HostId, int], Pool] = {
            (host.id, gpu.index): (host.path.site, gpu.gpu_type)
            for host in (snapshot.hosts if reserved else ())
            for gpu in host.gpus
            if placeable(host) and gpu.healthy and (host.path.site, gpu.gpu_type) in reserved
        }
        size = Counter(self._pool.values())
        self.most = {pool: MILLI * size[pool] - milli for pool, milli in reserved.items()}
        self._sides = Sides(snapshot, starts, resizes)
        self._held: Counter[Pool] = Counter()
        self._leaving: dict[Pool, Counter[Source]] = defaultdict(Counter)
        self._coming: dict[Pool, Counter[Taker]] = defaultdict(Counter)
        self._last: dict[Pool, str] = {}
        records = {record.id: record for record in snapshot.jobs}
        leaving = {*gone, *(each.job for each in resizes)}
        for record in snapshot.jobs if reserved else ():
            for pool, milli in self.held(record, record.placement).items():
                self._held[pool] += milli
                if record.id in leaving:
                    self._leaving[pool][self._sides.source(record)] += milli
        for start in (*starts, *returning(resizes)) if reserved else ():
            if start.job in records:
                for pool, milli in self.held(records[start.job], start.placement).items():
                    self._coming[pool][self._sides.taker(records[start.job])] += milli
                    self._last[pool] = start.job

    def held(self, record: JobRecord, placement: Placement | None) -> Counter[Pool]:
        """What the job holds there of each pool, if it is of level 1; other levels count in none."""
        held: Counter[Pool] = Counter()
        if not self._pool or record.level != 1 or placement is None:
            return held
        requests = {role.name: role.request for role in record.job.roles}
        for worker in placement.workers:
            request = requests.get(worker.role)
            for index in worker.gpus if request is not None else ():
                pool = self._pool.get((worker.host, index))
                if pool is not None and request is not None:
                    held[pool] += request.gpu_milli if request.fractional else MILLI
        return held

    def over(self) -> Iterator[Violation]:
        """Each pool of which starts of level 1 take what is reserved."""
        for pool, coming in sorted(self._coming.items()):
            over = min(coming.total(), unserved(self.most[pool] - self._held[pool], self._leaving[pool], coming))
            if over > 0:
                site, gpu_type = pool
                text = (
                    f"level 1 may hold {max(0, self.most[pool])} milli-GPU of {gpu_type} at {site}, the rest is "
                    f"reserved for tiers 1 and 2; job {self._last[pool]} starts beyond it"
                )
                subject = f"{site}/{gpu_type}"
                yield Violation(
                    family=RuleFamily.RESERVED, subject=subject, amount=over, unit="milli-GPU", message=text
                )

    def forbids(self, record: JobRecord) -> bool:
        """Whether starts would take what is reserved if that stopped job still ran."""
        back = self._sides.source(record)
        return any(
            unserved(
                self.most[pool] - self._held[pool],
                {who: freed - (milli if who == back else 0) for who, freed in self._leaving[pool].items()},
                {who: asked for who, asked in self._coming[pool].items() if who != Again(record.id)},
            )
            for pool, milli in self.held(record, record.placement).items()
        )

    def put_back(self, record: JobRecord) -> None:
        """The job that stopped, or returned, still runs where it was."""
        for pool, milli in self.held(record, record.placement).items():
            self._leaving[pool][self._sides.source(record)] -= milli
        for coming in self._coming.values():
            del coming[Again(record.id)]
