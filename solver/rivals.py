"""Running work whose room a waiting gang could be given: by its level, or inside its guarantee (docs/rounds.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import victims
from .ranks import Ranks, rank
from .rights import Starter, may_evict, only_inside, rights_of

Parts = tuple[list[JobRecord], list[JobRecord], list[JobRecord]]
"""Those below a rank: all, those that may leave, and those that may not."""


class Rivals:
    """The running jobs of one decision by who may evict them; `staying` keep their room, `leaving` give it up."""

    def __init__(
        self, snapshot: Snapshot, policy: Policy, staying: Sequence[JobRecord], leaving: Iterable[JobRecord]
    ) -> None:
        self._staying, self._ranks, self._rights = staying, Ranks(snapshot), rights_of(snapshot)
        self._victims = {record.id for record in victims(snapshot, policy)}
        # Whether any of these is outside a guarantee at level 1, so that one inside may come before it.
        self.borrowed = any(self._ranks.bar(each) == rank(1, inside=False) for each in (*leaving, *staying))
        self._bars = {record.id: self._ranks.bar(record) for record in staying}
        self._known: dict[int, Parts] = {}
        self._own: dict[Starter, list[JobRecord]] = {}

    def ways(self, record: JobRecord) -> tuple[bool, ...]:
        """How the gang is tried: outside guarantees (False), or inside, or both where inside it has more rights."""
        if only_inside(record):
            return (True,)
        gains = self.borrowed and record.level == 1 and self._rights.can_be_inside(record)
        return (False, True) if gains else (False,)

    def own(self, record: JobRecord) -> list[JobRecord]:
        """Inside work of level 1 that a gang of level 2 may evict, as it is of the gang's own guarantee.

        This right is in no rank.
        """
        if record.level != 2 or not self._rights.guarantee:
            return []
        starter = self._rights.starter(record, inside=False)
        if starter not in self._own:
            _, _, protected = self.below(rank(2, inside=False))
            self._own[starter] = [
                other for other in protected if other.id in self._victims and self.reaches(record, other)
            ]
        return self._own[starter]

    def reaches(self, record: JobRecord, other: JobRecord) -> bool:
        """Whether the gang is of level 2 and has the right to evict that running job, if it may leave at all."""
        return record.level == 2 and may_evict(self._rights.starter(record, inside=False), self._rights.runner(other))

    def below(self, at: int) -> Parts:
        """Who keeps room that jobs of that rank come before."""
        if at not in self._known:
            bars = self._bars
            lower = [record for record in self._staying if record.level < at // 2 or bars[record.id] < at]
            able = [record.id in self._victims and bars[record.id] < at for record in lower]
            leaving = [record for record, may in zip(lower, able, strict=True) if may]
            staying = [record for record, may in zip(lower, able, strict=True) if not may]
            self._known[at] = lower, leaving, staying
        return self._known[at]
