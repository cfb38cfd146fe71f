"""From starts back to the model's variables: the values that a decision at hand stands for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ortools.sat.python.cp_model import IntVar

from ..model.decision import Resize, Start
from ..model.ids import HostId
from ..model.placement import WorkerPlacement
from .classes import Gang, WorkerClass
from .demand import CardKind
from .later import LaterGang
from .plan import Plan
from .variables import Variables


def encode(variables: Variables, plan: Plan) -> list[tuple[IntVar, int]]:
    """Values of the deciding variables (starts, returns, victims, types, counts, cards, plans); others follow.

    `plan` must keep the rules; a start of a gang that the instance left out is ignored.
    """
    by_job: dict[str, Start | Resize] = {start.job: start for start in plan.starts}
    back: dict[str, Start | Resize] = {resize.job: resize for resize in plan.resizes}
    leaving = {preemption.job for preemption in plan.preemptions}
    values = [(variables.evicted(victim.id), int(victim.id in leaving)) for victim in variables.instance.victims]
    shared: set[tuple[str, int]] = set()
    seat = _seats(variables, plan)
    for gang in variables.instance.coming:
        acts = back if gang.back is not None else by_job
        placements: list[WorkerPlacement] = []
        for record, started in variables.starts(gang):
            found = acts.get(record.id)
            act = found if found is not None and _of_its_size(gang, found) else None
            values.append((started, int(act is not None)))
            placements += act.placement.workers if act is not None else ()
            inside = variables.inside(gang)
            if inside is not None and not gang.only_inside:
                values.append((inside, int(isinstance(act, Start) and act.inside_guarantee)))
        for workers in gang.workers:
            placed = [w for w in placements if w.role == workers.role.name]
            if workers.role.request.fractional:
                placed = [replace(w, gpus=tuple(seat.get((w.host, i), i) for i in w.gpus)) for w in placed]
                shared |= {(worker.host, index) for worker in placed for index in worker.gpus}
            values += _of_class(variables, gang, workers, placed)
    for host in variables.instance.hosts.values():
        for card in host.cards:
            variable = variables.shared(host.id, card)
            if variable is not None:
                values.append((variable, int((host.id, card.index) in shared)))
    return values + _plans(variables, plan)


def _seats(variables: Variables, plan: Plan) -> dict[tuple[str, int], int]:
    """The card that stands in the model for each one that the plan shares anew: of those alike the first ones."""
    instance = variables.instance
    fractions = {
        (record.id, workers.role.name)
        for gang in instance.coming
        for workers in gang.workers
        if workers.role.request.fractional
        for record in gang.members or (gang.record,)
    }
    used: dict[HostId, set[int]] = defaultdict(set)
    seats: dict[tuple[str, int], int] = {}
    acts: tuple[Start | Resize, ...] = (*plan.starts, *plan.resizes)
    for act in acts:
        for worker in act.placement.workers:
            if (act.job, worker.role) in fractions:
                used[worker.host].update(worker.gpus)
    for host, indices in used.items():
        for group in instance.hosts[host].alike():
            taken = [card.index for card in group if card.index in indices]
            seats.update({(host, index): card.index for index, card in zip(taken, group, strict=False)})
    return seats


def _of_its_size(gang: Gang, placed: Start | Resize) -> bool:
    """Whether it is the gang with as many workers as it starts, or returns, with."""
    return len(placed.placement.workers) == gang.record.job.workers


def _plans(variables: Variables, plan: Plan) -> list[tuple[IntVar, int]]:
    reserved = {reservation.job: reservation for reservation in plan.reservations}
    values = []
    for gang in variables.plans.gangs:
        reservation = reserved.get(gang.record.id)
        values.append((variables.started(gang), int(reservation is not None)))
        for start_s, chosen in zip(gang.starts, variables.planned_at(gang), strict=True):
            values.append((chosen, int(reservation is not None and reservation.planned_start_s == start_s)))
        for workers in gang.workers:
            there = reservation.placement.workers if reservation else ()
            values += _of_class(variables, gang, workers, [w for w in there if w.role == workers.role.name])
    return values


def _of_class(
    variables: Variables, gang: Gang | LaterGang, workers: WorkerClass, placed: Sequence[WorkerPlacement]
) -> list[tuple[IntVar, int]]:
    hosts = {worker.host for worker in placed}
    kinds = {
        (host.id, gpu.index): CardKind.of(gpu)
        for name in hosts
        if (host := variables.instance.hosts.get(name)) is not None
        for gpu in host.host.gpus
    }
    counts: Counter[tuple[str, CardKind | None]] = Counter()
    cards: Counter[tuple[str, int]] = Counter()
    for worker in placed:
        counts[worker.host, kinds[worker.host, worker.gpus[0]] if worker.gpus else None] += 1
        cards.update((worker.host, index) for index in worker.gpus)
    used = {kind.gpu_type for _, kind in counts if kind is not None}
    values = [(variables.workers_at(workers, slot), counts[slot.host, slot.kind]) for slot in workers.slots]
    if len(workers.gpu_types) > 1:
        types = [(variables.uses_type(workers, t), int(t in used)) for t in workers.gpu_types]
        values += [(variable, value) for variable, value in types if variable is not None]
    if workers.role.request.fractional:
        for host_id in dict.fromkeys(slot.host for slot in workers.slots):
            for card in variables.instance.hosts[host_id].cards:
                variable = variables.on_card(workers, host_id, card)
                if variable is not None:
                    values.append((variable, cards[host_id, card.index]))
    return values
