"""How long a job has run, may run, and may take to leave: what promises are made of (RULES 5)."""

from __future__ import annotations

from .job import Job, Preemptible
from .policy import Policy
from .snapshot import JobRecord

DEFAULT_GRACE_S = 30
"""Grace of a job without a checkpoint policy."""


def grace_s(job: Job) -> int:
    """Seconds that the job may take from the warning to its exit."""
    return job.checkpoint.grace_s if job.checkpoint else DEFAULT_GRACE_S


def walltime_limit_s(record: JobRecord, has_guarantee: bool, policy: Policy) -> int:
    """The job's own limit, else its pool's: preemptible, team with a guarantee, or shared.

    A job demoted for money keeps its pool's limit: nothing is stopped for money.
    """
    if record.job.walltime_limit_s is not None:
        return record.job.walltime_limit_s
    if record.job.preemptible is Preemptible.ANYTIME:
        return policy.time.limit_preemptible_s
    return policy.time.limit_team_s if has_guarantee else policy.time.limit_shared_s


def ran_s(record: JobRecord, now_s: int) -> int:
    """Seconds of work of this run, over all attempts: what checkpoints saved, and what ran since."""
    if record.started_s is None:
        return record.progress.saved_work_s
    saved_at_s = record.progress.last_checkpoint_s
    since_s = record.started_s if saved_at_s is None else max(record.started_s, saved_at_s)
    return record.progress.saved_work_s + max(0, now_s - since_s)
