"""The greedy: a good decision in one pass, level by level, the most valuable gang per GPU first.

It backfills everything: what does not fit is passed over, and all behind it is still tried.
"""

from __future__ import annotations

import heapq
from collections import Counter

from ..model.decision import Start
from ..model.ids import TeamId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .books import Books
from .demand import candidates
from .order import Order, order
from .placing import Placer

_PRECISION = 1_000_000
"""Values per milli-GPU are compared in millionths of a hundredth."""


def greedy(snapshot: Snapshot, policy: Policy) -> tuple[Start, ...]:
    """Starts that keep every rule, in the order in which they were chosen.

    Within a level the gang goes first whose start adds most to the level's goal per milli-GPU, which falls for a
    team's next gang as the team is served; among equals, the head of the queue.
    """
    waiting = candidates(snapshot)
    placer = Placer(snapshot, policy, Books(snapshot), waiting=waiting)
    numbers = order(snapshot, policy)
    served: Counter[TeamId] = Counter()
    starts: list[Start] = []
    for level in sorted({record.level for record in waiting}, reverse=True):
        queue = [
            (-worth(record, numbers, served), numbers.place[record.id], record)
            for record in waiting
            if record.level == level
        ]
        heapq.heapify(queue)
        while queue:
            before, place, record = heapq.heappop(queue)
            now = -worth(record, numbers, served)
            # A team's credit only falls, so a gang whose worth is unchanged is still the first of all.
            if now != before:
                heapq.heappush(queue, (now, place, record))
                continue
            placer.pressure.leaves(record)
            placement = placer.place(record)
            if placement is not None:
                served[record.job.team] += numbers.milli[record.id]
                starts.append(Start(job=record.id, attempt=record.attempt + 1, placement=placement))
    return tuple(starts)


def worth(record: JobRecord, numbers: Order, served: Counter[TeamId]) -> int:
    """What starting the gang next adds to its level's goal for each milli-GPU, in millionths of a hundredth."""
    milli, curve = numbers.milli[record.id], numbers.curve[record.job.team]
    started = served[record.job.team]
    credit = curve.credit(started + milli) - curve.credit(started)
    return numbers.weight[record.id] * _PRECISION + credit * _PRECISION // milli
