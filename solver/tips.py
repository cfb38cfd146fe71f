"""What would help a waiting gang, each tried in the world as it is now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from ..model.job import Job, Preemptible, WorkerRequest
from ..model.placement import Placement
from ..model.snapshot import JobRecord
from .admission import most_workers
from .covered import BY_HIGHER
from .unchecked import varied
from .variants import Variant, fewer_gpus, other_types, split_workers, wider_layers, with_request
from .wording import amount, duration
from .worlds import Worlds

MOST_TIPS = 3


def tips(
    record: JobRecord,
    worlds: Worlds,
    types: tuple[str, ...],
    free: Callable[[JobRecord, Placement], bool] | None = None,
) -> tuple[Variant, ...]:
    """At most three changes with which the gang would start at once, the mildest kinds first.

    `free` says whether a gang may have the place that was found for it; by default any.
    """

    def starts(job: Job) -> bool:
        changed = varied(record, job=job)
        if free is None:
            return worlds.could(changed)
        placement = worlds.placement(changed)
        return placement is not None and free(changed, placement)

    found: list[Variant] = []
    for variants in _kinds(record, worlds, types):
        found.extend(islice((variant for variant in variants if starts(variant.job)), 1))
        if len(found) == MOST_TIPS:
            return tuple(found)
    for role in record.job.roles:
        fewer = most_workers(record.job, role, starts)
        if fewer is not None:
            found.append(fewer)
    return tuple(found[:MOST_TIPS])


def _kinds(record: JobRecord, worlds: Worlds, types: tuple[str, ...]) -> Iterator[Iterator[Variant]]:
    """One stream of variants for each kind of change; of each the first that works is told."""
    job = record.job
    yield _less_protected(job)
    yield _shorter(record, worlds)
    yield other_types(job, types)
    # What asks for as many GPUs of the same kinds needs as many free ones.
    if worlds.enough(record):
        yield wider_layers(job, worlds.confinement(job).required)
        yield _less(job)
        yield split_workers(job)
    yield fewer_gpus(job, halving=True)


def _less_protected(job: Job) -> Iterator[Variant]:
    """Preemptible like others, for one that only a guarantee lets be otherwise."""
    if job.preemptible is Preemptible.NEVER:
        yield Variant(BY_HIGHER, varied(job, preemptible=Preemptible.BY_HIGHER))


def _shorter(record: JobRecord, worlds: Worlds) -> Iterator[Variant]:
    """With the longest walltime limit, in whole minutes from a minute on, that ends before enough hosts' windows."""
    found: Variant | None = None
    limits = worlds.shorter_limits(record)
    low, high = 0, len(limits) - 1
    # The shorter the limit, the more hosts there are: what fits with one fits with all below.
    while low <= high:
        middle = (low + high) // 2
        changed = varied(record.job, walltime_limit_s=limits[middle])
        if worlds.fits(record, changed):
            found, low = Variant(f"with a walltime limit of {duration(limits[middle])}", changed), middle + 1
        else:
            high = middle - 1
    if found is not None:
        yield found


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
