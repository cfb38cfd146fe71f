"""How the service has done: waits, allocation, rounds and goals, summed up from the log as it grows."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..adapters.ports import RoundRecord, Store, StoredEvent
from ..model.errors import NotFound
from ..model.host import MILLI, HostState
from ..model.ids import JobId
from ..model.job_state import JobState
from . import schemas_rounds
from .eventlog import entries
from .forecast_errors import ForecastErrors
from .story import parsed

RECENT_ROUNDS = 1_000
"""Goals and outcomes are counted over this many of the latest rounds."""

HEALTHY = frozenset({HostState.READY, HostState.CORDONED})


class Capacity:
    """milli-GPU-seconds that healthy hosts offered, from the log's entries about hosts."""

    def __init__(self) -> None:
        self.since_s: int | None = None
        self._cards: dict[str, int] = {}
        self._state: dict[str, str] = {}
        self._sum = 0
        self._at_s = 0

    def feed(self, host: str, entry: StoredEvent, data: Mapping[str, Any]) -> None:
        """Takes a new inventory or a change of state."""
        self._sum, self._at_s = self.until(entry.at_s), max(self._at_s, entry.at_s)
        if entry.kind == "host_inventory":
            if self.since_s is None:
                self.since_s = entry.at_s
            cards = [card for card in data.get("gpus", ()) if card.get("healthy", True)]
            self._cards[host] = MILLI * len(cards)
        self._state[host] = str(data.get("state", HostState.READY))

    def until(self, now_s: int) -> int:
        """The sum up to a time."""
        offered = sum(cards for host, cards in self._cards.items() if self._state[host] in HEALTHY)
        return self._sum + offered * max(0, now_s - self._at_s)


class Tally:
    """Sums over the log and the rounds, fed only with what is new. Safe between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._after = 0
        self._capacity = Capacity()
        self._submitted_s: dict[str, int] = {}
        self._gpu_milli: dict[str, int] = {}
        self._waits: dict[str, int] = {}
        self._forecasts = ForecastErrors()
        self._held: dict[tuple[str, int], int] = {}
        self._held_sum = 0
        self._ended: dict[str, JobState | None] = {}
        self._rounds: dict[int, RoundRecord] = {}

    def summary(self, now_s: int) -> schemas_rounds.SummaryView:
        """The sums as of now."""
        with self._lock:
            for entry in entries(self._store, self._after):
                self._after = entry.number
                self._feed(entry)
            self._feed_rounds()
            return self._view(now_s)

    def _feed(self, entry: StoredEvent) -> None:
        what, _, name = entry.subject.partition(" ")
        data = parsed(entry)
        if what == "host":
            self._capacity.feed(name, entry, data)
        elif what == "job":
            self._ended[name] = None
            self._feed_job(name, entry, data)

    def _feed_job(self, job: str, entry: StoredEvent, data: Mapping[str, Any]) -> None:
        attempt = (job, int(data.get("attempt", 0)))
        self._forecasts.feed(job, entry, data)
        if entry.kind == "submitted":
            self._submitted_s.setdefault(job, entry.at_s)
        elif entry.kind == "planned":
            self._held[attempt] = entry.at_s
        elif entry.kind == "gang_running" and job in self._submitted_s:
            self._waits.setdefault(job, max(0, entry.at_s - self._submitted_s[job]))
        elif entry.kind == "gang_released" and attempt in self._held:
            self._held_sum += self._gpus(job) * (entry.at_s - self._held.pop(attempt))

    def _gpus(self, job: str) -> int:
        if job not in self._gpu_milli:
            self._gpu_milli[job] = self._store.job(JobId(job)).job.gpu_milli
        return self._gpu_milli[job]

    def _state(self, job: str) -> JobState | None:
        try:
            return self._store.job(JobId(job)).state
        except NotFound:
            # The log also has what executors told of jobs of another store.
            return None

    def _feed_rounds(self) -> None:
        known, before = max(self._rounds, default=0), None
        fresh: dict[int, RoundRecord] = {}
        while len(fresh) < RECENT_ROUNDS:
            page = self._store.rounds(limit=200, before=before)
            fresh |= {record.number: record for record in page if record.number > known}
            if not page or page[-1].number <= known + 1:
                break
            before = page[-1].number
        kept = sorted({**self._rounds, **fresh}.items())[-RECENT_ROUNDS:]
        self._rounds = dict(kept)

    def _view(self, now_s: int) -> schemas_rounds.SummaryView:
        live = {record.id: record.state for record in self._store.snapshot(now_s).jobs}
        for job, state in self._ended.items():
            if state is None and job not in live:
                self._ended[job] = self._state(job)
        ended = [state for job, state in self._ended.items() if state is not None and job not in live]
        held = self._held_sum + sum(self._gpus(job) * max(0, now_s - at_s) for (job, _), at_s in self._held.items())
        rounds = self._rounds.values()
        return schemas_rounds.SummaryView(
            now_s=now_s,
            since_s=self._capacity.since_s if self._capacity.since_s is not None else now_s,
            states=dict(sorted(Counter(str(state) for state in [*live.values(), *ended]).items())),
            waits=_waits(sorted(self._waits.values())),
            allocation=_allocation(held, self._capacity.until(now_s)),
            rounds=max(self._rounds, default=0),
            outcomes=dict(Counter(record.outcome for record in rounds)),
            goal_statuses=dict(Counter(str(goal.status) for record in rounds for goal in record.decision.goals)),
            forecasts=self._forecasts.view(),
        )


def _waits(waits: list[int]) -> schemas_rounds.WaitsView:
    if not waits:
        return schemas_rounds.WaitsView(jobs=0, mean_s=0, p50_s=0, p90_s=0)
    mean_s = sum(waits) // len(waits)
    return schemas_rounds.WaitsView(jobs=len(waits), mean_s=mean_s, p50_s=_at(waits, 50), p90_s=_at(waits, 90))


def _at(rising: list[int], percent: int) -> int:
    """The nearest-rank percentile."""
    return rising[max(0, math.ceil(len(rising) * percent / 100) - 1)]


def _allocation(held_milli_s: int, capacity_milli_s: int) -> schemas_rounds.AllocationView:
    share = held_milli_s * 1000 // capacity_milli_s if capacity_milli_s else 0
    return schemas_rounds.AllocationView(
        held_gpu_s=held_milli_s // MILLI, capacity_gpu_s=capacity_milli_s // MILLI, share_milli=share
    )
