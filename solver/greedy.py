"""The greedy: a good decision level by level, the most valuable gang per GPU first.

It backfills everything: what does not fit is passed over, and all behind it is still tried.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable

from ..model.decision import Start
from ..model.ids import JobId, TeamId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .books import Books
from .claims import Claims
from .demand import candidates
from .goals import values
from .guard import UNLIMITED, Guard
from .order import Order, order
from .placing import Placer
from .reserve import spare_s
from .sizes import ways

_PRECISION = 1_000_000
"""Values per milli-GPU are compared in millionths of a hundredth."""

_BOTH_ORDERS = 500_000
"""Candidates x hosts up to which both orders are tried."""

Rank = Callable[[JobRecord, Order, int], tuple[int, int]]
"""What starting a gang next is worth, given the milli-GPU that its team starts before it; more goes first."""


def greedy(snapshot: Snapshot, policy: Policy, guard: Guard = UNLIMITED) -> tuple[Start, ...]:
    """Starts that keep every rule, in the order in which they were chosen.

    Within a level the gang goes first that is worth most per milli-GPU, which falls for a team's next gang as the team
    is served; among equals, the head of the queue. Ranking by the whole gang favours small gangs, ranking by its
    first GPU large ones: the better outcome is taken, except that a very large round tries only the former.
    When the guard's time is over no further gang is looked at.
    """
    waiting = candidates(snapshot)
    first = _pass(snapshot, policy, waiting, worth, guard)
    if len(waiting) * len(snapshot.hosts) > _BOTH_ORDERS or guard.remaining_s() <= 0:
        return first
    second = _pass(snapshot, policy, waiting, rate, guard)
    return max((first, second), key=lambda starts: tuple(goal.value for goal in values(snapshot, policy, starts)))


def _pass(
    snapshot: Snapshot, policy: Policy, waiting: tuple[JobRecord, ...], rank: Rank, guard: Guard
) -> tuple[Start, ...]:
    placer = Placer(snapshot, policy, Books(snapshot, policy.reserved), waiting=waiting)
    claims = Claims(snapshot)

    def place(record: JobRecord, inside: bool) -> Placement | None:
        placer.pressure.leaves(record)
        sized = ((way, claims.covers(way.job) if inside else None) for way in ways(record))
        return next((there for way, only in sized if (there := placer.place(way, only=only)) is not None), None)

    return in_order(waiting, order(snapshot, policy), rank, place, claims, guard=guard)


def in_order(
    waiting: tuple[JobRecord, ...],
    numbers: Order,
    rank: Rank,
    place: Callable[[JobRecord, bool], Placement | None],
    claims: Claims,
    begin: Callable[[int, bool], None] = lambda level, inside: None,
    *,
    guard: Guard = UNLIMITED,
) -> tuple[Start, ...]:
    """Starts what `place` finds a place for, level by level, those inside their guarantee first, in order of the rank.

    `begin` is told each level, and whether inside starts are placed. When the guard's time is over the rest waits.
    """
    served: Counter[TeamId] = Counter()
    starts: list[Start] = []
    sides = {record.id: claims.ways(record) for record in waiting}
    placed: set[JobId] = set()
    levels: dict[int, list[JobRecord]] = {}
    for record in waiting:
        levels.setdefault(record.level, []).append(record)
    for level in sorted(levels, reverse=True):
        for inside in (True, False):
            queue: list[tuple[int, int, int, JobRecord, int]] = []
            for record in levels[level]:
                if inside in sides[record.id] and record.id not in placed:
                    before = served[record.job.team]
                    first = rank(record, numbers, before)
                    heapq.heappush(queue, (-first[0], -first[1], numbers.place[record.id], record, before))
            if queue and spare_s(guard, len(starts)) > 0:
                begin(level, inside)
            while queue and spare_s(guard, len(starts)) > 0:
                high, next_to_it, position, record, before = heapq.heappop(queue)
                now = served[record.job.team]
                if now != before:
                    first = rank(record, numbers, now)
                    # A team's credit only falls, so a gang whose rank is unchanged is still the first of all.
                    if (-first[0], -first[1]) != (high, next_to_it):
                        heapq.heappush(queue, (-first[0], -first[1], position, record, now))
                        continue
                placement = place(record, inside)
                if placement is not None:
                    served[record.job.team] += numbers.milli_at(record, placement)
                    if inside:
                        claims.take(record.job, placement)
                    placed.add(record.id)
                    attempt = record.attempt + 1
                    starts.append(Start(job=record.id, attempt=attempt, placement=placement, inside_guarantee=inside))
    return tuple(starts)


def worth(record: JobRecord, numbers: Order, started: int) -> tuple[int, int]:
    """The mean over all milli-GPU of the gang, in millionths of a hundredth; equals in the order of the queue."""
    milli, curve = numbers.milli[record.id], numbers.curve[record.job.team]
    credit = curve.credit(started + milli) - curve.credit(started)
    return numbers.weight[record.id] * _PRECISION + credit * _PRECISION // milli, 0


def rate(record: JobRecord, numbers: Order, started: int) -> tuple[int, int]:
    """What the gang's first milli-GPU is worth, in hundredths; of equals the largest."""
    curve = numbers.curve[record.job.team]
    credit = curve.credit(started + 1) - curve.credit(started)
    return numbers.weight[record.id] + credit, numbers.milli[record.id]
