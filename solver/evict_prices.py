"""What it costs to evict running jobs, to compare sets of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..model.ids import JobId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .goals import victim_cost

Cost = tuple[int, ...]
"""What victims cost, by their level from the highest [mGPU*s], then how many they are."""


class Prices:
    """The prices of the jobs that may be evicted in a round."""

    def __init__(self, snapshot: Snapshot, policy: Policy, possible: Iterable[JobRecord]) -> None:
        possible = list(possible)
        self._cost = {record.id: victim_cost(record, snapshot, policy) for record in possible}
        self._levels = sorted({record.level for record in possible}, reverse=True)

    def whole(self, victim: JobRecord) -> tuple[int, int, JobId]:
        """A sort key: the level, then what the whole job costs."""
        return victim.level, self._cost[victim.id], victim.id

    def per_gpu(self, victim: JobRecord) -> tuple[int, int, JobId]:
        """A sort key: the level, then what the job costs for each milli-GPU that it frees."""
        return victim.level, self._cost[victim.id] // max(1, victim.job.gpu_milli), victim.id

    def total(self, leaving: Iterable[JobRecord]) -> Cost:
        """What these cost together."""
        costs: Counter[int] = Counter()
        number = 0
        for victim in leaving:
            costs[victim.level] += self._cost[victim.id]
            number += 1
        return (*(costs[level] for level in self._levels), number)

    def guess(self, pool: Iterable[JobRecord], need: int) -> Cost | None:
        """About what it costs to free that many milli-GPU: those that are cheapest for what they hold go first."""
        taken: list[JobRecord] = []
        for victim in sorted(pool, key=self.per_gpu):
            if need <= 0 and taken:
                break
            taken.append(victim)
            need -= victim.job.gpu_milli
        return self.total(taken) if need <= 0 else None


def steps(levels: list[int]) -> list[int]:
    """Where price limits are tried among many: a quarter of each level, and all of it. `levels` rise."""
    found = {0}
    for level in sorted(set(levels)):
        start, number = max(found), levels.count(level)
        found |= {start + number // 4, start + number}
    return sorted(found - {0})
