"""Ranks: the rights to evict as one chain, for searches that go from the top down (docs/rounds.md, guarantee).

A start of rank r may use what a victim with a bar below r leaves. Only one right is not in the chain: a start of level
2 may evict inside work of level 1 of its own guarantee. `Ranks` counts it where it was used; searches leave it out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..model.decision import Start
from ..model.placement import Placement
from ..model.snapshot import JobRecord, Snapshot
from .rights import may_evict, rights_of

TOP = 7
"""Above every rank."""

Placed = tuple[int, JobRecord, Placement]
"""A start with its rank, or a victim with its bar, and where."""


def rank(level: int, *, inside: bool) -> int:
    """The rank of a start: only at level 1 being inside gives a right."""
    return 2 * level + (1 if inside and level == 1 else 0)


class Ranks:
    """Ranks and bars of the jobs of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._rights = rights_of(snapshot)
        self._records = {record.id: record for record in snapshot.jobs}

    def bar(self, record: JobRecord) -> int:
        """The highest rank that may not evict the running job."""
        if record.level == 1 and record.id in self._rights.inside:
            return rank(2, inside=False)
        # A start of level 2 has an odd rank where it uses its own right; no start of level 2 evicts another.
        return 2 * record.level + (1 if record.level == 2 else 0)

    def leaving(self, victims: Iterable[JobRecord]) -> list[Placed]:
        """The victims with their bars where they were."""
        return [(self.bar(record), record, record.placement) for record in victims if record.placement is not None]

    def coming(self, starts: Iterable[Start], victims: Iterable[JobRecord]) -> list[Placed]:
        """The starts with their ranks; one of level 2 has the next where it evicts inside work of its guarantee."""
        leaving = [self._rights.runner(record) for record in victims]
        placed = []
        for start in starts:
            record = self._records[start.job]
            at = rank(record.level, inside=start.inside_guarantee)
            starter = self._rights.starter(record, inside=start.inside_guarantee)
            if record.level == 2 and any(runner.inside and may_evict(starter, runner) for runner in leaving):
                at += 1
            placed.append((at, record, start.placement))
        return placed


def most_kept(rank: int, freed: Mapping[int, int], used: Mapping[int, int]) -> int:
    """The most, for any rank from that one up, that victims with bars there or above left and higher starts leave."""
    limits = {rank, *(at for at in freed if at > rank)}
    return max(
        0,
        *(
            sum(milli for at, milli in freed.items() if at >= limit)
            - sum(milli for at, milli in used.items() if at > limit)
            for limit in limits
        ),
    )
