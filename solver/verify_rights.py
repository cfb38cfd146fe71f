"""The verifier's half about who may use what a victim leaves: sides of starts and victims, and flows between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from ..model.decision import Start
from ..model.ids import JobId
from ..model.snapshot import JobRecord, Snapshot
from .rights import Runner, Starter, may_evict, rights_of


class Sides:
    """The rights of the starts, and the protection of the running jobs, of one decision."""

    def __init__(self, snapshot: Snapshot, starts: Sequence[Start]) -> None:
        self._rights = rights_of(snapshot)
        self._records = {record.id: record for record in snapshot.jobs}
        self._inside = {start.job: start.inside_guarantee for start in reversed(starts)}
        self._starters: dict[JobId, Starter] = {}
        self._runners: dict[JobId, Runner] = {}

    def starter(self, record: JobRecord) -> Starter:
        """The rights of the job that starts."""
        if record.id not in self._starters:
            inside = self._inside.get(record.id, False)
            self._starters[record.id] = self._rights.starter(record, inside=inside)
        return self._starters[record.id]

    def runner(self, record: JobRecord) -> Runner:
        """The protection of the job that runs."""
        if record.id not in self._runners:
            self._runners[record.id] = self._rights.runner(record)
        return self._runners[record.id]

    def may(self, start: JobRecord, victim: JobRecord) -> bool:
        """Whether the start may use what the victim leaves."""
        return may_evict(self.starter(start), self.runner(victim))

    def barred(self, start: JobRecord, leaving: Collection[JobRecord]) -> list[JobRecord]:
        """Those whose leaving is not for the start."""
        return [record for record in leaving if not self.may(start, record)]


def unserved(free: int, freed: Mapping[Runner, int], asked: Mapping[Starter, int]) -> int:
    """What starts ask beyond what is free and what their own possible victims free: the least that stays without.

    A negative `free` is what running work exceeds its bound by; to each start it counts as asked besides.
    """
    some = {starter: amount for starter, amount in asked.items() if amount > 0}
    if free >= 0:
        return _missing(free, freed, some)
    return max(
        (_missing(0, freed, {**some, starter: amount - free}) for starter, amount in some.items()),
        default=0,
    )


def _missing(free: int, freed: Mapping[Runner, int], asked: Mapping[Starter, int]) -> int:
    """The demand that no flow serves, by augmenting paths over what other starts have taken."""
    left: dict[Runner | None, int] = {None: free}
    for runner, amount in freed.items():
        left[runner] = amount
    open_to = {
        starter: [source for source in left if source is None or may_evict(starter, source)] for starter in asked
    }
    taken: Counter[tuple[Starter, Runner | None]] = Counter()
    missing = 0
    for starter, amount in asked.items():
        while amount > 0:
            moved = _augment(starter, amount, left, open_to, taken)
            if not moved:
                break
            amount -= moved
        missing += amount
    return missing


def _augment(
    starter: Starter,
    amount: int,
    left: dict[Runner | None, int],
    open_to: Mapping[Starter, Sequence[Runner | None]],
    taken: Counter[tuple[Starter, Runner | None]],
) -> int:
    """Serves the start a part of `amount` along one shortest path; returns how much, 0 where there is no path."""
    # By start on the way: who would get its share of a source, and of which.
    route: dict[Starter, tuple[Starter, Runner | None]] = {}
    queue = [starter]
    for taker in queue:
        for source in open_to[taker]:
            if left[source] > 0:
                return _shift(starter, taker, source, amount, left, route, taken)
            for other in open_to:
                if other != starter and other not in route and taken[other, source] > 0:
                    route[other] = (taker, source)
                    queue.append(other)
    return 0


def _shift(
    starter: Starter,
    last: Starter,
    source: Runner | None,
    amount: int,
    left: dict[Runner | None, int],
    route: Mapping[Starter, tuple[Starter, Runner | None]],
    taken: Counter[tuple[Starter, Runner | None]],
) -> int:
    moves = [(last, source, 1)]
    while last != starter:
        before, given = route[last]
        moves += [(last, given, -1), (before, given, 1)]
        last = before
    moved = min(amount, left[source], *(taken[who, what] for who, what, sign in moves if sign < 0))
    left[source] -= moved
    for who, what, sign in moves:
        taken[who, what] += sign * moved
    return moved
