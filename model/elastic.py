"""Elastic jobs: the sizes at which they may run, and jobs as they are at one of them (docs/rounds.md, elastic)."""

from __future__ import annotations

from dataclasses import replace

from .job import Job, Role
from .placement import Placement


def sizes(job: Job) -> tuple[int, ...]:
    """Workers of the elastic role that the gang may run with, rising; empty for a gang that is not elastic.

    The data-parallel degree is what varies: a size that tensor and pipeline degrees do not divide is none.
    """
    if job.elastic is None:
        return ()
    replica = _replica(job)
    return tuple(size for size in job.elastic.sizes if size % replica == 0)


def at_size(job: Job, size: int) -> Job:
    """The elastic job as if it asked that many workers of its elastic role."""
    elastic = elastic_role(job)
    if elastic is None or elastic.count == size:
        return job
    shape = elastic.parallelism
    if shape is not None:
        shape = replace(shape, data=size // (shape.tensor * shape.pipeline))
    resized = replace(elastic, count=size, parallelism=shape)
    return replace(job, roles=tuple(resized if role.name == elastic.name else role for role in job.roles))


def placed_size(job: Job, placement: Placement) -> int | None:
    """Workers of the elastic role there; None for a gang that is not elastic."""
    return None if job.elastic is None else sum(worker.role == job.elastic.role for worker in placement.workers)


def as_placed(job: Job, placement: Placement) -> Job:
    """The job at the size it has there; as it is where that is none of its sizes."""
    size = placed_size(job, placement)
    return at_size(job, size) if size is not None and size in sizes(job) else job


def elastic_role(job: Job) -> Role | None:
    """The role whose workers may be more or fewer; None for a job that is not elastic."""
    return None if job.elastic is None else job.role(job.elastic.role)


def _replica(job: Job) -> int:
    """Workers of one data-parallel replica of the elastic role."""
    role = elastic_role(job)
    shape = role.parallelism if role is not None else None
    return shape.tensor * shape.pipeline if shape is not None else 1
