"""The forecast as the service tells it: worked out beside the requests, kept until the log has news."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..adapters.ports import Clock, Store
from ..model.ids import JobId
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from ..solver.forecast import Forecast, forecast
from ..solver.walltimes import Learned as Walltime
from . import schemas
from .engine import decide
from .eventlog import newest_number
from .forecast_words import sentence
from .learned import Learned

PATIENCE_S = 1.0
"""Wall seconds that a request waits for a new forecast before it is answered with the one before."""

STALE_S = 60
"""Seconds after which a forecast is made anew though nothing happened: jobs may have passed their estimates."""

AT_SUBMISSION_S = 120
"""A forecast made within this many seconds after a job's submission is recorded, to be judged once it starts."""

REST = 5
"""A forecast that takes long is made again only after this many times as long."""

log = logging.getLogger(__name__)
Forecaster = Callable[[Snapshot, Policy, Walltime], tuple[Forecast, ...]]


def _forecast(snapshot: Snapshot, policy: Policy, learned: Walltime) -> tuple[Forecast, ...]:
    ratios = learned.ratios if isinstance(learned, Learned) else ()
    return forecast(snapshot, policy, decide=decide, learned=learned, ratios=ratios)


@dataclass(frozen=True, slots=True)
class _Told:
    """What was forecast, when (s), and up to which number of the log; `rest_until` on the monotonic clock."""

    at_s: int = -1
    number: int = -1
    rest_until: float = 0.0
    by_job: dict[JobId, Forecast] = field(default_factory=dict)


class Forecasts:
    """Forecasts of the live queue, and what is `learned`. Safe between threads; a fault is logged, never a caller's."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        clock: Clock,
        *,
        forecaster: Forecaster = _forecast,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._store, self._policy, self._clock = store, policy, clock
        self._forecaster, self._patience_s = forecaster, patience_s
        self.learned = Learned(store)
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None
        self._rest = threading.Event()
        self._again = False
        self._told = _Told()
        self._noted: set[JobId] = set()

    def views(self, now_s: int) -> dict[str, schemas.ForecastView]:
        """The newest forecast of each waiting job, made anew where it is out of date and that does not take long."""
        if self._out_of_date(now_s):
            self.refresh(self._patience_s)
        told = self._told
        return {job: view(entry, told.at_s, now_s) for job, entry in told.by_job.items()}

    def refresh(self, wait_s: float = 0.0) -> None:
        """Has a forecast made beside the requests; waits for it for that many wall seconds."""
        with self._lock:
            self._again = True
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="forecast", daemon=True)
                self._worker.start()
            worker = self._worker
        if wait_s:
            worker.join(wait_s)

    def _out_of_date(self, now_s: int) -> bool:
        told = self._told
        if time.monotonic() < told.rest_until:
            return False
        if told.number < 0 or not 0 <= now_s - told.at_s < STALE_S:
            return True
        return newest_number(self._store, told.number) > told.number

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._again:
                    self._worker = None
                    return
                self._again = False
            rest_s = self._told.rest_until - time.monotonic()
            if rest_s > 0:
                self._rest.wait(rest_s)
            try:
                self._make()
            except Exception:
                # Without a forecast all else is still told.
                log.exception("the forecast failed")

    def _make(self) -> None:
        begun = time.monotonic()
        self.learned.catch_up()
        snapshot = self._store.snapshot(self._clock.now_s())
        by_job = {entry.job: entry for entry in self._forecaster(snapshot, self._policy, self.learned)}
        number = self._note(snapshot, by_job)
        done = time.monotonic()
        took = done - begun
        rest_until = done + (REST * took if took > self._patience_s else 0.0)
        self._told = _Told(snapshot.now_s, number, rest_until, by_job)

    def _note(self, snapshot: Snapshot, by_job: dict[JobId, Forecast]) -> int:
        """Records the first forecast of each new job; returns the log's number up to which nothing else happened."""
        number = snapshot.store_version
        self._noted.intersection_update(by_job)
        for record in snapshot.jobs:
            told = by_job.get(record.id)
            if told is None or told.start_s is None or record.id in self._noted or record.attempt:
                continue
            self._noted.add(record.id)
            # What starts with the next round waits for nothing that could be forecast.
            if snapshot.now_s - record.submitted_s <= AT_SUBMISSION_S and told.start_s > snapshot.now_s:
                body = {"start_s": told.start_s, "basis": told.basis, "message": sentence(told, snapshot.now_s)}
                noted = self._store.note("forecast", f"job {record.id}", json.dumps(body), now_s=snapshot.now_s)
                number = noted if noted == number + 1 else number
        return number


def view(entry: Forecast, at_s: int, now_s: int) -> schemas.ForecastView:
    """A forecast made at `at_s` in the shape of the HTTP edge, worded as of now."""
    return schemas.ForecastView(
        sentence=sentence(entry, now_s),
        start_s=entry.start_s,
        earliest_s=entry.earliest_s,
        latest_s=entry.latest_s,
        basis=entry.basis,
        why=entry.why,
        steps=entry.steps,
        at_s=at_s,
    )
