"""What the service told waiting jobs in a simulation, to be compared with what came: forecasts, and planned starts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ..api.engine import decide
from ..api.learned import LATEST_RATIOS
from ..model.decision import Decision
from ..model.ids import JobId
from ..model.job import Job
from ..model.policy import Policy
from ..model.snapshot import Snapshot
from ..solver.forecast import forecast

MOST_STEPS = 200
"""Rounds that a forecast is run forward in a simulation; the service's own goes further."""

AT_SUBMISSION_S = 600
"""A forecast counts as one at submission while the job has waited for no longer."""


@dataclass(frozen=True, slots=True)
class Told:
    """The forecast for one job that had not started yet, made at `at_s`; `start_s` is None where none was told."""

    job: JobId
    at_s: int
    submitted_s: int
    start_s: int | None

    @property
    def new(self) -> bool:
        """Whether it was told when the job was submitted."""
        return self.at_s - self.submitted_s <= AT_SUBMISSION_S


@dataclass(slots=True, kw_only=True)
class Slips:
    """Planned starts over a run: how many were made, moved later with a recorded cause and without, and given up.

    `later_s` is by how many seconds they moved, all together.
    """

    planned: int = 0
    moved_with_cause: int = 0
    moved_without: int = 0
    given_up: int = 0
    later_s: int = 0


class Foresight:
    """Collects them round by round. A forecast of the whole queue is made at most every `every_s`; None makes none."""

    def __init__(self, policy: Policy, every_s: int | None) -> None:
        self.told: list[Told] = []
        self.slips = Slips()
        self._policy, self._every_s = policy, every_s
        self._next_s = 0
        self._ratios: deque[int] = deque(maxlen=LATEST_RATIOS)
        self._planned: dict[JobId, int] = {}

    def due(self, now_s: int) -> bool:
        """Whether a forecast is to be made now."""
        return self._every_s is not None and now_s >= self._next_s

    def look(self, snapshot: Snapshot) -> None:
        """Makes the service's forecast of all that waits after a round."""
        self._next_s = snapshot.now_s + (self._every_s or 0)
        fresh = {record.id: record for record in snapshot.jobs if not record.attempt}
        ratios = tuple(self._ratios)
        entries = forecast(snapshot, self._policy, decide=decide, bounds=False, most_steps=MOST_STEPS, ratios=ratios)
        for entry in entries:
            record = fresh.get(entry.job)
            if record is not None:
                self.told.append(Told(entry.job, snapshot.now_s, record.submitted_s, entry.start_s))

    def ran(self, job: Job, seconds: int) -> None:
        """A job has succeeded in its first attempt after so long: its estimate is judged, as the service does."""
        if job.walltime_estimate_s is not None:
            self._ratios.append(1000 * seconds // job.walltime_estimate_s)

    def decided(self, decision: Decision) -> None:
        """A round was committed: what became of the plans that were made before."""
        started = {start.job for start in decision.starts}
        plans = {plan.job: plan for plan in decision.reservations}
        for job, before_s in self._planned.items():
            plan = plans.get(job)
            if plan is None:
                self.slips.given_up += job not in started
            elif plan.planned_start_s > before_s:
                self.slips.moved_with_cause += bool(plan.cause)
                self.slips.moved_without += not plan.cause
                self.slips.later_s += plan.planned_start_s - before_s
        self.slips.planned += len(plans.keys() - self._planned.keys())
        self._planned = {job: plan.planned_start_s for job, plan in plans.items()}
