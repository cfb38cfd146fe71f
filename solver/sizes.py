"""Elastic gangs: the sizes at which they may run, and jobs as they are at one of them (docs/rounds.md, elastic)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ..model.elastic import as_placed, at_size, elastic_role, placed_size, sizes
from ..model.job import Job
from ..model.placement import Placement
from ..model.snapshot import JobRecord, Snapshot
from .same import Same
from .unchecked import unchecked

__all__ = ["as_started", "at_size", "least", "placed_size", "settled", "sizes", "start_sizes", "ways"]


def start_sizes(record: JobRecord) -> tuple[int, ...]:
    """The sizes at which a waiting gang may start, rising; empty for a gang that is not elastic.

    At most what it asks, or the size for which its last attempt left if that is more: gangs grow only where nobody
    waits.
    """
    role = elastic_role(record.job)
    if role is None:
        return ()
    most = max(role.count, record.resized_to or 0)
    return tuple(size for size in sizes(record.job) if size <= most)


def as_started(record: JobRecord, placement: Placement) -> Job:
    """The job at the size that it has there, where it may run with it; else at the size asked.

    A waiting gang may start with some of its sizes, one that runs return with any.
    """
    size = placed_size(record.job, placement)
    able = sizes(record.job) if record.state.holds_capacity else start_sizes(record)
    return at_size(record.job, size) if size is not None and size in able else record.job


def ways(record: JobRecord) -> tuple[JobRecord, ...]:
    """The waiting gang at each size at which it may start, the largest first; itself where it is not elastic."""
    able = start_sizes(record)
    if not able:
        return (record,)
    return tuple(replace(record, job=at_size(record.job, size)) for size in reversed(able))


def least(record: JobRecord) -> JobRecord:
    """The waiting gang at the smallest size at which it may start; itself where it is not elastic."""
    return ways(record)[-1]


def settled(snapshot: Snapshot) -> Snapshot:
    """The snapshot with each elastic job that holds capacity as if it asked the size it has; itself if none differs.

    What reads a settled snapshot may take a running job's roles for what it holds.
    """
    if all(record.job.elastic is None or record.placement is None for record in snapshot.jobs):
        return snapshot
    return _settled(Same(snapshot))


@lru_cache(maxsize=4)
def _settled(same: Same) -> Snapshot:
    snapshot = same.snapshot
    jobs = tuple(
        record
        if record.placement is None or (job := as_placed(record.job, record.placement)) is record.job
        else replace(record, job=job)
        for record in snapshot.jobs
    )
    changed = any(new is not old for new, old in zip(jobs, snapshot.jobs, strict=True))
    return unchecked(snapshot, jobs=jobs) if changed else snapshot
