"""How long jobs like a given one have run, learned from the log; for forecasts only, never for promises."""

from __future__ import annotations

import statistics
from collections.abc import Hashable

from ..adapters.ports import Store, StoredEvent
from ..model.errors import NotFound
from ..model.ids import JobId
from ..model.job import Job
from .eventlog import entries
from .story import parsed

LEAST_RUNS = 3
"""Runs below which nothing is said: two may differ by anything."""

LATEST_RATIOS = 200
"""Only so many of the latest estimates are judged."""

LATEST_RUNS = 20
"""Of each kind of job only so many of the latest runs count."""


class Learned:
    """The median run of jobs of one team, user, name and size that succeeded in their first attempt.

    `ratios` are the runs of all such jobs that had an estimate, in thousandths of it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._after = 0
        self._running_s: dict[str, int] = {}
        self._runs: dict[Hashable, tuple[int, ...]] = {}
        self.ratios: tuple[int, ...] = ()

    def catch_up(self) -> None:
        """Reads what is new in the log."""
        for entry in entries(self._store, self._after):
            self._after = entry.number
            self._feed(entry)

    def __call__(self, job: Job) -> int | None:
        """Seconds that the job is likely to run; None where too few like it have ended, or it has no name."""
        runs = self._runs.get(_kind(job), ()) if job.name else ()
        return round(statistics.median(runs)) if len(runs) >= LEAST_RUNS else None

    def _feed(self, entry: StoredEvent) -> None:
        what, _, name = entry.subject.partition(" ")
        if what != "job" or entry.kind not in ("gang_running", "gang_exited"):
            return
        data = parsed(entry)
        if data.get("attempt") != 1:
            return
        if entry.kind == "gang_running":
            self._running_s.setdefault(name, entry.at_s)
            return
        since_s, exits = self._running_s.pop(name, None), data.get("exits") or ()
        if since_s is None or not exits or any(rank.get("code") for rank in exits):
            return
        try:
            job = self._store.job(JobId(name)).job
        except NotFound:
            return
        if job.walltime_estimate_s is not None:
            ratio = 1000 * max(1, entry.at_s - since_s) // job.walltime_estimate_s
            self.ratios = (*self.ratios, ratio)[-LATEST_RATIOS:]
        if job.name:
            # A new tuple, since other threads may be reading the old one.
            runs = self._runs.get(_kind(job), ())
            self._runs[_kind(job)] = (*runs, max(1, entry.at_s - since_s))[-LATEST_RUNS:]


def _kind(job: Job) -> Hashable:
    return job.team, job.user, job.name, job.gpu_milli
