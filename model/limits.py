"""How long a job may run and how long it may take to leave: what promises are made of (RULES 5)."""

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
    """The job's own limit, else its pool's: preemptible, team with a guarantee, or shared."""
    if record.job.walltime_limit_s is not None:
        return record.job.walltime_limit_s
    if record.demoted or record.job.preemptible is Preemptible.ANYTIME:
        return policy.time.limit_preemptible_s
    return policy.time.limit_team_s if has_guarantee else policy.time.limit_shared_s
