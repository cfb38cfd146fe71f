"""What would help a waiting gang, each tried in the world as it is now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from ..model.job import Job, WorkerRequest
from ..model.snapshot import JobRecord
from .admission import most_workers
from .variants import Variant, fewer_gpus, other_types, split_workers, wider_layers, with_request
from .wording import amount
from .worlds import Worlds

MOST_TIPS = 3


def tips(record: JobRecord, worlds: Worlds, types: tuple[str, ...]) -> tuple[str, ...]:
    """At most three changes with which the gang would start at once, the mildest kinds first."""
    found: list[str] = []
    for variants in _kinds(record.job, worlds, types):
        text = next((variant.text for variant in variants if worlds.fits(record, variant.job)), None)
        if text is not None:
            found.append(f"starts at once {text}")
        if len(found) == MOST_TIPS:
            return tuple(found)
    for role in record.job.roles:
        fewer = most_workers(record.job, role, lambda job: worlds.fits(record, job))
        if fewer is not None and len(found) < MOST_TIPS:
            found.append(f"starts at once {fewer.text}")
    return tuple(found)


def _kinds(job: Job, worlds: Worlds, types: tuple[str, ...]) -> Iterator[Iterator[Variant]]:
    """One stream of variants for each kind of change; of each the first that works is told."""
    yield other_types(job, types)
    yield wider_layers(job, worlds.placer().confinement(job).required)
    yield _less(job)
    yield split_workers(job)
    yield fewer_gpus(job)


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
