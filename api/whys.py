"""Why one job waits, as somebody asks: the round's reason, or one worked out now where the round left it open."""

from __future__ import annotations

import logging
import threading

from ..adapters.ports import RoundRecord, Store
from ..model.decision import Reason
from ..model.errors import NotFound
from ..model.ids import JobId
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from ..solver.wording import left_open
from . import engine

log = logging.getLogger(__name__)


class Whys:
    """Reasons of single jobs of the newest round, each worked out once. Safe between threads."""

    def __init__(self, store: Store, policy: Policy, why: engine.Explain = engine.why) -> None:
        self._store, self._policy, self._why = store, policy, why
        # One at a time: a page that many look at must not take the machine from the scheduler.
        self._lock = threading.Lock()
        self._number = 0
        self._snapshot: Snapshot | None = None
        self._known: dict[JobId, Reason] = {}

    def reason(self, record: RoundRecord | None, job: JobId) -> Reason | None:
        """Why the job waits after that round; None where the round has not looked at it.

        Where the round had no work left to find a reason, it is found now from the snapshot kept with the round; the
        round's own reason stands where none is kept.
        """
        told = None if record is None else _told(record, job)
        if record is None or told is None or not left_open(told):
            return told
        with self._lock:
            snapshot = self._look(record.number)
            if snapshot is None:
                return told
            if job not in self._known:
                self._known[job] = self._find(snapshot, record, told)
            return self._known[job]

    def _look(self, number: int) -> Snapshot | None:
        """The snapshot of that round; what is known of an earlier one is forgotten."""
        if number != self._number:
            self._number, self._known = number, {}
            try:
                self._snapshot = self._store.round(number).snapshot
            except NotFound:
                self._snapshot = None
        return self._snapshot

    def _find(self, snapshot: Snapshot, record: RoundRecord, told: Reason) -> Reason:
        try:
            return self._why(snapshot, self._policy, record.decision, told.job) or told
        except Exception:
            # All else about the job is still told.
            log.exception("no reason could be worked out for job %s", told.job)
            return told


def _told(record: RoundRecord, job: JobId) -> Reason | None:
    """What the round itself says of the job; a rejection comes before a reason to wait."""
    decision = record.decision
    rejected = next((entry.reason for entry in decision.rejections if entry.job == job), None)
    return rejected or next((entry for entry in decision.waiting if entry.job == job), None)
