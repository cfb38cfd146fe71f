"""The states of a job and the one table of transitions between them (RULES 9)."""

from __future__ import annotations

from enum import StrEnum

from .errors import IllegalTransition


class JobState(StrEnum):
    """Where a job is in its life. Capacity is held by planned, starting, running and stopping; by nothing else."""

    QUEUED = "queued"
    HELD = "held"
    BLOCKED = "blocked"
    PLANNED = "planned"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    EXPIRED = "expired"

    @property
    def holds_capacity(self) -> bool:
        """Whether the job's placement occupies its hosts."""
        return self in HOLDING

    @property
    def ended(self) -> bool:
        """Whether the job will never run again by itself."""
        return self in ENDED


class StopCause(StrEnum):
    """Why an attempt is stopping; it decides the state that follows once its hosts are verified clean."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    HELD = "held"
    PREEMPTED = "preempted"
    HOST_LOST = "host_lost"
    START_FAILED = "start_failed"
    START_TIMEOUT = "start_timeout"
    LIMIT = "limit"
    REQUEUED = "requeued"


HOLDING = frozenset({JobState.PLANNED, JobState.STARTING, JobState.RUNNING, JobState.STOPPING})
ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.REJECTED, JobState.EXPIRED})
WAITING = frozenset({JobState.QUEUED, JobState.HELD, JobState.BLOCKED})

S = JobState
TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    S.QUEUED: frozenset({S.PLANNED, S.HELD, S.BLOCKED, S.CANCELLED, S.REJECTED, S.EXPIRED}),
    S.HELD: frozenset({S.QUEUED, S.BLOCKED, S.CANCELLED, S.EXPIRED}),
    S.BLOCKED: frozenset({S.QUEUED, S.HELD, S.CANCELLED, S.EXPIRED, S.FAILED}),
    S.PLANNED: frozenset({S.STARTING, S.STOPPING}),
    S.STARTING: frozenset({S.RUNNING, S.STOPPING}),
    S.RUNNING: frozenset({S.STOPPING}),
    S.STOPPING: frozenset({S.SUCCEEDED, S.FAILED, S.CANCELLED, S.QUEUED, S.HELD}),
    S.SUCCEEDED: frozenset(),
    S.FAILED: frozenset({S.QUEUED}),
    S.CANCELLED: frozenset({S.QUEUED}),
    S.REJECTED: frozenset(),
    S.EXPIRED: frozenset({S.QUEUED}),
}
"""Which states may follow which. A failed, cancelled or expired job comes back only by an explicit requeue."""


def check_transition(job: str, old: JobState, new: JobState, story: str = "") -> None:
    """Raises IllegalTransition, carrying the job's story, unless `new` may follow `old`."""
    if new not in TRANSITIONS[old]:
        allowed = ", ".join(sorted(TRANSITIONS[old])) or "nothing"
        tail = f" Its story: {story}" if story else ""
        raise IllegalTransition(f"job {job} is {old} and cannot become {new}; from {old} may follow {allowed}.{tail}")
