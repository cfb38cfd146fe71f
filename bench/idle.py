"""Why GPUs stood idle while jobs waited: what each round left free, by the first thing that kept it from the queue.

A tool for finding losses, not a measure: gangs are packed greedily, the largest first, so shares are near, not exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import mean

from ..model.host import Host, HostState
from ..model.job_state import JobState
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..solver.books import Books
from ..solver.demand import allowed_sites, placeable
from ..solver.placing import Placer
from .tables import Results, Table

CAUSES = {
    "closed": "on hosts that take no work now: spares, hosts being verified, hosts held for a gang that lost one",
    "no demand": "all that waits asks for fewer GPUs of these types",
    "too few": "no further gang fits, even if what is free of a type at a site were one host",
    "scattered": "it would fit there, and not on the hosts as they are, or in the site or rack that it must keep to",
    "held": "it fits on the hosts as they are: back-offs, room kept for a drain, limits",
    "next round": "freed since the last round",
}
"""The causes in the order in which they are taken off, with what each means."""

Pool = tuple[str, str]
"""A site and a GPU type."""


@dataclass(slots=True)
class Idle:
    """Idle milli-GPU-seconds by cause, over the time in which the last round had left jobs with GPUs waiting.

    Where it is not `told`, nothing is looked at and nothing added up.
    """

    policy: Policy
    told: bool
    total: Counter[str] = field(default_factory=Counter)
    _left: Counter[str] = field(default_factory=Counter)
    _waits: bool = False

    def decided(self, look: Callable[[], Snapshot]) -> None:
        """A round is over; `look` tells how it left the fleet."""
        if not self.told:
            return
        snapshot = look()
        self._waits = bool(_queued(snapshot))
        self._left = causes(snapshot, self.policy) if self._waits else Counter()

    def passed(self, idle_milli: int, lasts_s: int) -> None:
        """So much was idle for that long since: what the round left, and what was freed after it."""
        if not self._waits or idle_milli <= 0 or lasts_s <= 0:
            return
        left = self._left.total()
        for cause, milli in self._left.items():
            self.total[cause] += (milli if left <= idle_milli else milli * idle_milli // left) * lasts_s
        self.total["next round"] += max(0, idle_milli - left) * lasts_s


def causes(snapshot: Snapshot, policy: Policy) -> Counter[str]:
    """Idle milli-GPU of the snapshot by cause; what takes part is all that is queued, back-offs included."""
    books, taking = Books(snapshot, policy.reserved), [host for host in snapshot.hosts if placeable(host)]
    up = [host for host in snapshot.hosts if host.state is not HostState.DOWN]
    free = {host.id: sum(max(0, c.milli) for c in books.hosts[host.id].cards.values() if c.healthy) for host in up}
    queue = sorted(_queued(snapshot), key=lambda record: (-record.job.gpu_milli, len(_types(record)), record.id))
    pools = _pools(taking, books)
    open_milli = sum(free[host.id] for host in taking)
    wanted = _most_wanted(queue, pools)
    pooled = _packed(queue, dict(pools), snapshot, policy)
    placer = Placer(snapshot, policy, Books(snapshot, policy.reserved), hosts=taking)
    placed = sum(record.job.gpu_milli for record in queue if placer.place(record) is not None)
    found = {
        "closed": sum(free.values()) - open_milli,
        "no demand": open_milli - wanted,
        "too few": wanted - max(pooled, placed),
        "scattered": max(pooled, placed) - placed,
        "held": placed,
    }
    return Counter({cause: milli for cause, milli in found.items() if milli > 0})


def table_of(results: Results) -> Table | None:
    """Why GPUs stood idle while jobs waited, in GPU-hours by cause; None where it was not asked for."""
    if not any(each.idle_gpu_h for found in results.values() for each in found):
        return None
    rows = tuple(
        (
            name,
            *(f"{mean(each.idle_gpu_h.get(cause, 0.0) for each in found):,.0f}" for cause in CAUSES),
            f"{mean(sum(each.idle_gpu_h.values()) for each in found):,.0f}",
        )
        for name, found in results.items()
    )
    told = "; ".join(f"{cause}: {meaning}" for cause, meaning in CAUSES.items())
    return Table(
        title="GPU-hours idle while jobs waited",
        columns=("scheduler", *CAUSES, "in all"),
        rows=rows,
        notes=(f"Means over seeds. {told[0].upper()}{told[1:]}.",),
    )


def _queued(snapshot: Snapshot) -> tuple[JobRecord, ...]:
    return tuple(record for record in snapshot.jobs if record.state is JobState.QUEUED and record.job.gpu_milli)


def _types(record: JobRecord) -> frozenset[str]:
    return frozenset(choice.gpu_type for role in record.job.roles for choice in role.gpu_types)


def _accepts(record: JobRecord, gpu_type: str) -> bool:
    return any(role.request.gpu_milli and role.throughput_milli(gpu_type) is not None for role in record.job.roles)


def _pools(taking: Iterable[Host], books: Books) -> Counter[Pool]:
    free: Counter[Pool] = Counter()
    for host in taking:
        for card in books.hosts[host.id].cards.values():
            if card.healthy:
                free[host.path.site, card.kind.gpu_type] += max(0, card.milli)
    return free


def _most_wanted(queue: Sequence[JobRecord], pools: Mapping[Pool, int]) -> int:
    """The most milli-GPU that the queue could take if gangs were divisible: a cut between types and jobs."""
    free: Counter[str] = Counter()
    for (_, gpu_type), milli in pools.items():
        free[gpu_type] += milli
    asked: Counter[frozenset[str]] = Counter()
    for record in queue:
        asked[frozenset(name for name in free if _accepts(record, name))] += record.job.gpu_milli
    cuts = []
    for size in range(len(free) + 1):
        for full in combinations(sorted(free), size):
            rest = sum(milli for accepted, milli in asked.items() if accepted and not accepted <= set(full))
            cuts.append(sum(free[name] for name in full) + rest)
    return min(cuts)


def _packed(queue: Sequence[JobRecord], pools: dict[Pool, int], snapshot: Snapshot, policy: Policy) -> int:
    """milli-GPU of the gangs that fit, the largest first, into the pools taken as one host each; the tightest pool."""
    total = 0
    for record in queue:
        milli, sites = record.job.gpu_milli, allowed_sites(record.job, snapshot, policy)
        fitting = [
            pool for pool, left in pools.items() if left >= milli > 0 and pool[0] in sites and _accepts(record, pool[1])
        ]
        if fitting:
            pools[min(fitting, key=lambda pool: (pools[pool], pool))] -= milli
            total += milli
    return total
