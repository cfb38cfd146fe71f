"""Reserved pool: work of level 1 leaves the GPUs free that a site keeps for the higher levels."""

from __future__ import annotations

from ortools.sat.python.cp_model import CpModel, IntVar, LinearExprT

from ...model.host import MILLI
from ...model.ids import HostId, JobId
from ...model.policy import ReservedPool
from ...model.snapshot import JobRecord, Snapshot
from ..classes import Gang, Instance, WorkerClass
from ..demand import placeable
from ..variables import Variables
from .cuts import Place, Use, fits

LEVEL = 1
"""The level that the pools are kept from; level 0 is lent their idle part."""


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """Bounds what level 1 comes to hold.

    For every reserved pool (site s, type t), and each set of starts of level 1 that matters there (`cuts`):
        milli-GPU on t at s of these starts  <=  healthy cards of placeable hosts - reserved - held by level 1
                                                 + what the victims of level 1 leave that one of them may evict
    """
    for pool in instance.policy.reserved:
        cards = {
            (host.id, gpu.index)
            for host in instance.snapshot.hosts
            for gpu in host.gpus
            if placeable(host) and host.path.site == pool.site and gpu.gpu_type == pool.gpu_type and gpu.healthy
        }
        held = _held(instance.snapshot, cards)
        leaving = [(way, held[job]) for job, ways in instance.ways.items() if job in held for way in ways]
        place = Place((way,) for way, _ in leaving)
        uses: list[Use] = []
        for gang in instance.coming:
            for workers in gang.workers if gang.record.level == LEVEL else ():
                counts = _counts(instance, workers, pool, variables)
                if counts:
                    inside = _inside(model, gang, workers, pool, counts, place, variables)
                    uses += place.uses(gang, workers.role.request.gpu_milli, sum(counts), inside)
        free = MILLI * len(cards) - pool.gpu_milli - sum(held.values())
        fits(model, uses, free, [(milli, variables.left(way)) for way, milli in leaving])


def _held(snapshot: Snapshot, cards: set[tuple[HostId, int]]) -> dict[JobId, int]:
    """What each running job of level 1 holds of these cards."""
    held = {record.id: on_cards(record, cards) for record in snapshot.jobs if record.level == LEVEL}
    return {job: milli for job, milli in held.items() if milli}


def on_cards(record: JobRecord, cards: set[tuple[HostId, int]]) -> int:
    """milli-GPU that the job holds of these cards."""
    requests = {role.name: role.request for role in record.job.roles}
    return sum(
        requests[worker.role].gpu_milli if requests[worker.role].fractional else MILLI
        for worker in (record.placement.workers if record.placement else ())
        for index in worker.gpus
        if (worker.host, index) in cards
    )


def _counts(instance: Instance, workers: WorkerClass, pool: ReservedPool, variables: Variables) -> list[IntVar]:
    """The class's counts on the pool's cards; a spare's are in none."""
    return [
        variables.workers_at(workers, slot)
        for slot in workers.slots
        if slot.kind is not None
        and slot.kind.gpu_type == pool.gpu_type
        and instance.hosts[slot.host].host.path.site == pool.site
        and placeable(instance.hosts[slot.host].host)
    ]


def _inside(
    model: CpModel,
    gang: Gang,
    workers: WorkerClass,
    pool: ReservedPool,
    counts: list[IntVar],
    place: Place,
    variables: Variables,
) -> LinearExprT | None:
    """How many of these workers are of an inside start, where that lets them use more."""
    on_type = variables.inside_on(workers, pool.gpu_type)
    if on_type is None or gang.only_inside or place.bits(gang.reach) == place.bits(gang.widest_reach):
        return None
    name = f"inside_pool[{gang.id},{workers.role.name},{pool.site},{pool.gpu_type}]"
    inside = model.new_int_var(0, workers.role.count, name)
    model.add(inside <= workers.role.count * on_type)
    model.add(inside <= sum(counts))
    return inside
