"""From the checkpoints that attempts report to events: how much of their work is saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..model.event import GangProgress
from ..model.ids import JobId
from ..model.intent import Intent, Observation
from ..model.limits import ran_s
from ..model.snapshot import JobRecord
from .reports import REPORTS, SAVED, last_saved

Key = tuple[JobId, int]
EVERY_S = 60
"""Seconds after which more saved work of an attempt is told of again, unless it is leaving: then at once."""


class ProgressReader:
    """Reads the reports below `folder` (`<job>/<attempt>/reports`); what it remembers only saves work.

    Ids follow from attempt and checkpoint, so that a restarted adapter tells nothing twice.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[Key, tuple[int, int]] = {}
        self._told_s: dict[Key, int] = {}

    def events(
        self, intents: Sequence[Intent], observation: Observation, record_of: Callable[[JobId], JobRecord], now_s: int
    ) -> tuple[GangProgress, ...]:
        """One event for each attempt seen that has saved more since the last."""
        wanted = {(intent.job.id, intent.attempt) for intent in intents}
        leaving = {(g.job, g.attempt) for g in observation.gangs if g.stopping or g.exits}
        keys = [(gang.job, gang.attempt) for gang in observation.gangs if (gang.job, gang.attempt) in wanted]
        self._seen = {key: at for key, at in self._seen.items() if key in wanted}
        self._told_s = {key: at for key, at in self._told_s.items() if key in wanted}
        due = [key for key in keys if key in leaving or now_s >= self._told_s.get(key, 0) + EVERY_S]
        found = (self._event(key, record_of, now_s) for key in due)
        return tuple(event for event in found if event is not None)

    def _event(self, key: Key, record_of: Callable[[JobId], JobRecord], now_s: int) -> GangProgress | None:
        job, attempt = key
        folder = self._folder / job / str(attempt) / REPORTS
        try:
            facts = (folder / SAVED).stat()
        except OSError:
            return None
        state = (facts.st_size, facts.st_mtime_ns)
        if self._seen.get(key) == state:
            return None
        saved, record = last_saved(folder), record_of(job)
        if saved is None or record.attempt != attempt or record.started_s is None:
            return None
        self._seen[key] = state
        if saved.at_s < max(record.started_s, record.progress.last_checkpoint_s or 0):
            return None
        self._told_s[key] = now_s
        return GangProgress(
            id=f"{job}/{attempt}/saved/{saved.at_s}",
            at_s=saved.at_s,
            job=job,
            attempt=attempt,
            saved_work_s=ran_s(record, saved.at_s),
        )
