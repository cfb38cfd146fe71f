"""What would help a waiting gang, each tried in the world as it is now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from ..model.job import Job, Preemptible, WorkerRequest
from ..model.snapshot import JobRecord
from .admission import most_workers
from .covered import BY_HIGHER
from .drain_reasons import DrainReasons
from .unchecked import varied
from .variants import Variant, fewer_gpus, other_types, split_workers, wider_layers, with_request
from .wording import amount, duration
from .worlds import Worlds

MOST_TIPS = 3


def tips(record: JobRecord, worlds: Worlds, types: tuple[str, ...], drains: DrainReasons) -> tuple[Variant, ...]:
    """At most three changes with which the gang would start at once, beside all plans, the mildest kinds first."""

    def starts(job: Job) -> bool:
        changed = varied(record, job=job)
        if not drains or not drains.binds(changed):
            return worlds.could(changed)
        spot = worlds.spot(changed)
        return spot is not None and drains.leaves(changed, spot.hosts)

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
        yield _wider(record, worlds)
        yield _less(record, worlds)
        yield _split(record, worlds)
    yield _fewer(record, worlds)


def _fits(record: JobRecord, worlds: Worlds, mildest: Variant) -> bool:
    """Whether one of several variants may fit, of which that asks least; True where that is not sure.

    What asks more never fits better, unless it need not stay together as closely.
    """
    job = record.job
    alike = worlds.confinement(mildest.job).required is worlds.confinement(job).required
    return not alike or len(job.roles) > 1 or worlds.fits(record, mildest.job)


def _wider(record: JobRecord, worlds: Worlds) -> Iterator[Variant]:
    job = record.job
    variants = tuple(wider_layers(job, worlds.confinement(job).required))
    if variants and (len(job.roles) > 1 or worlds.fits(record, variants[-1].job)):
        yield from variants


def _split(record: JobRecord, worlds: Worlds) -> Iterator[Variant]:
    variants = tuple(split_workers(record.job))
    # All of them stay together equally closely.
    if variants and (len(record.job.roles) > 1 or worlds.fits(record, variants[-1].job)):
        yield from variants


def _fewer(record: JobRecord, worlds: Worlds) -> Iterator[Variant]:
    variants = tuple(fewer_gpus(record.job, halving=True))
    if variants and _fits(record, worlds, variants[-1]):
        yield from variants


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


def _less(record: JobRecord, worlds: Worlds) -> Iterator[Variant]:
    """Three quarters, half and a quarter of the CPU, memory or network for each worker."""
    all_three = _quarters(record.job, 1, *(field for field, _, _ in _AMOUNTS))
    if all_three is not None and not _fits(record, worlds, Variant("", all_three)):
        return
    for field, unit, what in _AMOUNTS:
        for quarters in (3, 2, 1):
            changed = _quarters(record.job, quarters, field)
            if changed is not None:
                amounts = sorted({int(getattr(role.request, field)) for role in changed.roles} - {0})
                shown = " and ".join(amount(value, unit) for value in amounts)
                yield Variant(f"with {shown}{what} per worker", changed)


_AMOUNTS = (
    ("cpu_milli", "milli-cores", ""),
    ("memory_mib", "MiB", " of memory"),
    ("network_mbps", "Mbit/s", " of network"),
)


def _quarters(job: Job, quarters: int, *names: str) -> Job | None:
    """The gang with so many quarters of these amounts for each worker; None where nothing changes or is asked then."""

    def scaled(request: WorkerRequest) -> WorkerRequest:
        return replace(request, **{name: int(getattr(request, name)) * quarters // 4 for name in names})

    return with_request(job, scaled)
