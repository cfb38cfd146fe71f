"""What would help a waiting gang, each tried in the world as it is now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from ..model.job import Job, WorkerRequest
from ..model.snapshot import JobRecord
from .admission import most_workers
from .variants import Variant, fewer_gpus, other_types, split_workers, wider_layers, with_request
from .wording import amount
from .worlds import Worlds

MOST_TIPS = 3


def tips(record: JobRecord, worlds: Worlds, types: tuple[str, ...]) -> tuple[Variant, ...]:
    """At most three changes with which the gang would start at once, the mildest kinds first."""
    found: list[Variant] = []
    for variants in _kinds(record.job, worlds, types):
        found.extend(islice((variant for variant in variants if worlds.fits(record, variant.job)), 1))
        if len(found) == MOST_TIPS:
            return tuple(found)
    for role in record.job.roles:
        fewer = most_workers(record.job, role, lambda job: worlds.fits(record, job))
        if fewer is not None:
            found.append(fewer)
    return tuple(found[:MOST_TIPS])


def _kinds(job: Job, worlds: Worlds, types: tuple[str, ...]) -> Iterator[Iterator[Variant]]:
    """One stream of variants for each kind of change; of each the first that works is told."""
    yield other_types(job, types)
    yield wider_layers(job, worlds.placer().confinement(job).required)
    yield _less(job)
    yield split_workers(job)
    yield fewer_gpus(job, halving=True)


def _less(job: Job) -> Iterator[Variant]:
    """Three quarters, half and a quarter of the CPU, memory or network for each worker."""
    for field, unit, what in (
        ("cpu_milli", "milli-cores", ""),
        ("memory_mib", "MiB", " of memory"),
        ("network_mbps", "Mbit/s", " of network"),
    ):
        for quarters in (3, 2, 1):
            changed = with_request(job, partial(_scaled, field, quarters))
            if changed is not None:
                amounts = sorted({int(getattr(role.request, field)) for role in changed.roles} - {0})
                shown = " and ".join(amount(value, unit) for value in amounts)
                yield Variant(f"with {shown}{what} per worker", changed)


def _scaled(field: str, quarters: int, request: WorkerRequest) -> WorkerRequest:
    return replace(request, **{field: int(getattr(request, field)) * quarters // 4})
