"""Inside guarantees or outside: how the gangs of a queue may start, for schedulers that serve it in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

from ...model.snapshot import JobRecord
from ...solver.claims import Claims
from ...solver.options import Types

Only = Callable[[Types], bool] | None
"""Which GPU types a gang may take; None for all that it accepts."""


def outside_first(queue: Iterable[JobRecord], claims: Claims) -> Iterator[tuple[JobRecord, bool]]:
    """Each gang once, and whether it starts inside: only those that may start in no other way.

    A gang that may not start at all now is left out.
    """
    for record in queue:
        ways = claims.ways(record)
        if ways:
            yield record, False not in ways


def by_rights(queue: Iterable[JobRecord], claims: Claims) -> Iterator[tuple[JobRecord, bool]]:
    """Level by level, first each gang that may start inside, which gives it rights, then each that may start outside.

    The queue must be by falling level; who has started is passed over by the caller.
    """
    for _, level in groupby(queue, key=lambda record: record.level):
        gangs = list(level)
        for inside in (True, False):
            yield from ((record, inside) for record in gangs if inside in claims.ways(record))


def types_of(record: JobRecord, inside: bool, claims: Claims) -> Only:
    """The types that the gang may take: inside, those of which its guarantee has enough left."""
    return claims.covers(record.job) if inside else None
