"""What a job is called that leaves its place to be moved, beside itself as a victim."""

from __future__ import annotations

from ..model.ids import JobId


def moved_id(job: JobId) -> JobId:
    """The name of the job as one that is moved: no job's name has an @."""
    return JobId(f"{job}@moved")
