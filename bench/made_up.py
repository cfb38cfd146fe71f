"""Made-up fleets as worlds that go on: each minute 1 % of what runs ends, and as many jobs as 1 % of the hosts come.

Who reaches its walltime limit ends, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

from ..model.job_state import JobState
from ..model.limits import ran_s
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .full_rules import with_reserved_pool
from .large import Size, fleet, jobs
from .stages import EVERY_S, ended

Change = Callable[[JobRecord], JobRecord]
Equip = Callable[[Snapshot], Snapshot]


class MadeUp:
    """The fleet of a size and a seed.

    `change` makes another job of every job, `equip` another fleet before any job runs: so that growth is measured along
    one thing alone.
    """

    def __init__(
        self,
        size: Size,
        seed: int,
        policy: Policy,
        *,
        change: Change = lambda record: record,
        equip: Equip = lambda snapshot: snapshot,
    ) -> None:
        self.name = f"{size.name}-{seed}"
        self._size, self._seed, self._change = size, seed, change
        self._next = size.pending
        self._draw = random.Random(f"ends/{size.name}/{seed}")
        snapshot = fleet(size, seed, equip=equip, change=change)
        self.policy = with_reserved_pool(policy, snapshot) if size.full else policy
        self.start = replace(snapshot, jobs=(*snapshot.jobs, *map(change, jobs(size, seed, 0, size.pending))))

    def happens(self, now_s: int, records: Iterable[JobRecord]) -> tuple[int, list[JobRecord]]:
        """A minute later."""
        gone = one_in_a_hundred(now_s, records, self._draw)
        count = max(1, self._size.hosts // 100)
        coming = map(self._change, jobs(self._size, self._seed, self._next, count, now_s + EVERY_S))
        self._next += count
        return now_s + EVERY_S, [*gone, *self._overdue(now_s + EVERY_S, records, gone), *coming]

    @staticmethod
    def _overdue(now_s: int, records: Iterable[JobRecord], gone: Iterable[JobRecord]) -> list[JobRecord]:
        """Those whose limit is over by then, among them nobody who is gone."""
        others = {record.id for record in gone}
        running = (r for r in records if r.state is JobState.RUNNING and r.id not in others)
        return [ended(r) for r in running if ran_s(r, now_s) >= (r.job.walltime_limit_s or now_s)]


def one_in_a_hundred(now_s: int, records: Iterable[JobRecord], draw: random.Random) -> list[JobRecord]:
    """1 % of the jobs that ran at `now_s` ended; at least one where any ran."""
    running = [r for r in records if r.state is JobState.RUNNING and r.started_s is not None and r.started_s <= now_s]
    return [ended(record) for record in draw.sample(running, min(len(running), max(1, len(running) // 100)))]
