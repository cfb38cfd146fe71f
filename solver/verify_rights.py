"""The verifier's half about who may use what a victim leaves: sides of starts and victims, and flows between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..model.decision import Resize, Start
from ..model.ids import JobId
from ..model.snapshot import JobRecord, Snapshot
from .rights import Runner, Starter, may_evict, rights_of


@dataclass(frozen=True, slots=True)
class Again:
    """A running job that returns: it may use what is free, and what it leaves itself."""

    job: JobId


@dataclass(frozen=True, slots=True)
class Left:
    """What a job that returns leaves. `runner` is its protection where it shrinks; None where it moves as it is."""

    job: JobId
    level: int
    runner: Runner | None


Taker = Starter | Again
"""Whoever comes to a host: a start, or a job that returns."""

Source = Runner | Left
"""Whoever leaves one: a victim, or a job that returns."""


def may_use(taker: Taker, source: Source) -> bool:
    """Whether one may use what the other leaves."""
    if isinstance(taker, Again):
        return isinstance(source, Left) and source.job == taker.job
    if not isinstance(source, Left):
        return may_evict(taker, source)
    return taker.level >= source.level if source.runner is None else may_evict(taker, source.runner)


def returning(resizes: Sequence[Resize]) -> tuple[Start, ...]:
    """The returns as if they were starts."""
    return tuple(Start(job=each.job, attempt=each.attempt, placement=each.placement) for each in resizes)


class Sides:
    """The rights of who comes, and what protects those who leave, of one decision."""

    def __init__(self, snapshot: Snapshot, starts: Sequence[Start], resizes: Sequence[Resize] = ()) -> None:
        self._rights = rights_of(snapshot)
        self._records = {record.id: record for record in snapshot.jobs}
        self._inside = {start.job: start.inside_guarantee for start in reversed(starts)}
        self._workers = {each.job: len(each.placement.workers) for each in resizes}
        self._takers: dict[JobId, Taker] = {}
        self._sources: dict[JobId, Source] = {}

    def taker(self, record: JobRecord) -> Taker:
        """The rights of the job that comes."""
        if record.id not in self._takers:
            inside = self._inside.get(record.id, False)
            starter = self._rights.starter(record, inside=inside)
            self._takers[record.id] = Again(record.id) if record.id in self._workers else starter
        return self._takers[record.id]

    def source(self, record: JobRecord) -> Source:
        """What protects what the job leaves."""
        if record.id not in self._sources:
            runner = self._rights.runner(record)
            source: Source = runner
            if record.id in self._workers:
                before = len(record.placement.workers) if record.placement else 0
                shrinks = self._workers[record.id] < before
                source = Left(record.id, record.level, runner if shrinks else None)
            self._sources[record.id] = source
        return self._sources[record.id]

    def may(self, start: JobRecord, victim: JobRecord) -> bool:
        """Whether the start may use what the victim leaves."""
        return may_use(self.taker(start), self.source(victim))

    def barred(self, start: JobRecord, leaving: Collection[JobRecord]) -> list[JobRecord]:
        """Those whose leaving is not for the start."""
        return [record for record in leaving if not self.may(start, record)]


def unserved(free: int, freed: Mapping[Source, int], asked: Mapping[Taker, int]) -> int:
    """What starts ask beyond what is free and what their own possible victims free: the least that stays without.

    A negative `free` is what running work exceeds its bound by; to each start it counts as asked besides.
    """
    some = {taker: amount for taker, amount in asked.items() if amount > 0}
    if free >= 0:
        return _missing(free, freed, some)
    return max(
        (_missing(0, freed, {**some, taker: amount - free}) for taker, amount in some.items()),
        default=0,
    )


def _missing(free: int, freed: Mapping[Source, int], asked: Mapping[Taker, int]) -> int:
    """The demand that no flow serves, by augmenting paths over what other starts have taken."""
    left: dict[Source | None, int] = {None: free}
    for source, amount in freed.items():
        left[source] = amount
    open_to = {taker: [source for source in left if source is None or may_use(taker, source)] for taker in asked}
    taken: Counter[tuple[Taker, Source | None]] = Counter()
    missing = 0
    for taker, amount in asked.items():
        while amount > 0:
            moved = _augment(taker, amount, left, open_to, taken)
            if not moved:
                break
            amount -= moved
        missing += amount
    return missing


def _augment(
    first: Taker,
    amount: int,
    left: dict[Source | None, int],
    open_to: Mapping[Taker, Sequence[Source | None]],
    taken: Counter[tuple[Taker, Source | None]],
) -> int:
    """Serves the start a part of `amount` along one shortest path; returns how much, 0 where there is no path."""
    # By start on the way: who would get its share of a source, and of which.
    route: dict[Taker, tuple[Taker, Source | None]] = {}
    queue = [first]
    for taker in queue:
        for source in open_to[taker]:
            if left[source] > 0:
                return _shift(first, taker, source, amount, left, route, taken)
            for other in open_to:
                if other != first and other not in route and taken[other, source] > 0:
                    route[other] = (taker, source)
                    queue.append(other)
    return 0


def _shift(
    first: Taker,
    last: Taker,
    source: Source | None,
    amount: int,
    left: dict[Source | None, int],
    route: Mapping[Taker, tuple[Taker, Source | None]],
    taken: Counter[tuple[Taker, Source | None]],
) -> int:
    moves = [(last, source, 1)]
    while last != first:
        before, given = route[last]
        moves += [(last, given, -1), (before, given, 1)]
        last = before
    moved = min(amount, left[source], *(taken[who, what] for who, what, sign in moves if sign < 0))
    left[source] -= moved
    for who, what, sign in moves:
        taken[who, what] += sign * moved
    return moved
