"""Who waits, who has ended, and what became of each job of a simulation."""

from __future__ import annotations

from collections.abc import Sequence

from ..adapters.ports import RoundRecord
from ..model.decision import GoalStatus
from ..model.ids import JobId
from ..model.intent import Intent
from ..model.job_state import JobState
from ..model.snapshot import JobRecord
from .ledger import Ledger
from .run import Outcome, Rounds
from .workload import SimJob


class Tally:
    """The outcomes, and the jobs that are in the queue with the second since when."""

    def __init__(self, jobs: Sequence[SimJob], ledger: Ledger) -> None:
        self.outcomes = {each.job.id: _outcome(each) for each in jobs}
        self.queue: dict[JobId, int] = {}
        self.ended = 0
        self._ledger = ledger

    def submitted(self, job: JobId, now_s: int) -> None:
        """The job is in the queue."""
        self.queue[job] = now_s

    def started(self, intent: Intent, now_s: int) -> None:
        """An attempt of the job is planned, and holds its cards."""
        outcome = self.outcomes[intent.job.id]
        outcome.queued_s += now_s - self.queue.pop(intent.job.id, now_s)
        outcome.attempts = intent.attempt
        if outcome.start_s is None:
            outcome.start_s = now_s
        self._ledger.take(intent.job, intent.attempt, intent.placement, now_s)

    def released(self, record: JobRecord, now_s: int, clean_s: int) -> None:
        """The attempt is gone; the job queues again or has ended."""
        outcome = self.outcomes[record.id]
        outcome.held_gpu_s += self._ledger.give(record.id, now_s)
        outcome.state = record.state
        if record.state is JobState.QUEUED:
            self.queue[record.id] = now_s
        elif record.state.ended:
            # The work ended when the last rank left; verifying the hosts clean is the executor's time, not the job's.
            outcome.end_s = now_s - clean_s
            self.ended += 1

    def dropped(self, record: JobRecord, now_s: int) -> None:
        """The job left the queue for good without a start."""
        self.outcomes[record.id].state = record.state
        self.outcomes[record.id].queued_s += now_s - self.queue.pop(record.id)
        self.ended += 1

    def waiting(self) -> None:
        """Tells the ledger what the round that just ended left in the queue."""
        self._ledger.waiting(len(self.queue), sum(self.outcomes[job].gpu_milli for job in self.queue))

    def unfinished(self, record: JobRecord, now_s: int) -> None:
        """The run ends while the job still holds its cards."""
        self.outcomes[record.id].state = record.state
        self.outcomes[record.id].held_gpu_s += self._ledger.give(record.id, now_s)

    def close(self, now_s: int) -> None:
        """The run ends while these still wait."""
        for job, since_s in self.queue.items():
            self.outcomes[job].queued_s += now_s - since_s


def count(rounds: Rounds, record: RoundRecord) -> None:
    """Adds one round's starts and the statuses of its goals."""
    rounds.starts += len(record.decision.starts)
    rounds.conflicts += record.outcome == "conflict"
    for goal in record.decision.goals:
        rounds.proven += goal.status is GoalStatus.PROVEN
        rounds.within += goal.status is GoalStatus.WITHIN_A_GANG
        rounds.open += goal.status is GoalStatus.OPEN


def _outcome(each: SimJob) -> Outcome:
    job = each.job
    return Outcome(
        job=job.id,
        team=job.team,
        tier=job.tier,
        level=job.level,
        gpu_milli=job.gpu_milli,
        submit_s=each.submit_s,
        measured=not each.carried_in,
        work_s=each.work_s,
    )
