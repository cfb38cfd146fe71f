"""What it costs to evict running jobs, to compare sets of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..model.ids import JobId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .goals import victim_cost
from .rights import rights_of

Cost = tuple[int, ...]
"""What victims cost, by their level from the highest: mGPU inside guarantees, mGPU*s; then how many they are."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to start a gang: where, and who leaves for it."""

    cost: Cost
    placement: Placement
    victims: tuple[JobRecord, ...]


class Prices:
    """The prices of the jobs that may be evicted in a round."""

    def __init__(self, snapshot: Snapshot, policy: Policy, possible: Iterable[JobRecord]) -> None:
        possible, inside = list(possible), rights_of(snapshot).inside
        self._inside = {record.id: record.job.gpu_milli for record in possible if record.id in inside}
        self._cost = {record.id: victim_cost(record, snapshot, policy) for record in possible}
        self._per_gpu: dict[JobId, tuple[int, int, int, JobId]] = {}
        self._levels = sorted({record.level for record in possible}, reverse=True)

    def whole(self, victim: JobRecord) -> tuple[int, int, int, JobId]:
        """A sort key: the level, what it has inside a guarantee, then what the whole job costs."""
        return victim.level, self._inside.get(victim.id, 0), self._cost[victim.id], victim.id

    def per_gpu(self, victim: JobRecord) -> tuple[int, int, int, JobId]:
        """A sort key: the level, whether inside a guarantee, then what it costs for each milli-GPU that it frees."""
        name = victim.id
        key = self._per_gpu.get(name)
        if key is None:
            cost = self._cost[name] // max(1, victim.job.gpu_milli)
            key = self._per_gpu[name] = victim.level, int(name in self._inside), cost, name
        return key

    def total(self, leaving: Iterable[JobRecord]) -> Cost:
        """What these cost together."""
        inside: Counter[int] = Counter()
        costs: Counter[int] = Counter()
        number = 0
        for victim in leaving:
            inside[victim.level] += self._inside.get(victim.id, 0)
            costs[victim.level] += self._cost[victim.id]
            number += 1
        return (*(amount for level in self._levels for amount in (inside[level], costs[level])), number)

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
