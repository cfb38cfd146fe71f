"""From a solution of the model to starts: counts become ranks, cards get their indices."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.decision import Start
from ..model.ids import HostId, JobId
from ..model.placement import WorkerPlacement
from ..model.snapshot import JobRecord
from .books import Books
from .classes import Gang, WorkerClass
from .demand import CardKind
from .layout import lay_out
from .variables import Variables


def decode(variables: Variables, solution: Sequence[int]) -> tuple[list[Start], list[JobId]]:
    """The starts and the victims that the solution stands for."""
    instance = variables.instance
    started = [gang for gang in instance.gangs if solution[variables.started(gang).index]]
    leaving = [victim for victim in instance.victims if solution[variables.evicted(victim.id).index]]
    books = Books(instance.snapshot)
    cards = {gang.id: _fraction_cards(gang, variables, solution) for gang in started}
    # All fractions are booked beforehand: whole workers of another gang must not take a card chosen for one.
    for gang in started:
        for worker in _as_placements(cards[gang.id]):
            books.take(gang.record.job, worker)
    starts = []
    # From the lowest level up, each level finding what is free and what the victims below it have left. What a lower
    # level takes of that the higher ones could have taken too, so enough is left for them.
    for gang in sorted(started, key=lambda gang: gang.record.level):
        leaving = _release(leaving, gang.record.level, books)
        for worker in _as_placements(cards[gang.id]):
            books.give(gang.record.job, worker)
        counts = {workers.role.name: _counts(workers, variables, solution) for workers in gang.workers}
        placement = lay_out(gang.record, counts, books, cards[gang.id])
        starts.append(Start(job=gang.id, attempt=gang.record.attempt + 1, placement=placement))
    return starts, [victim.id for victim in instance.victims if solution[variables.evicted(victim.id).index]]


def _release(leaving: list[JobRecord], level: int, books: Books) -> list[JobRecord]:
    """Gives back what victims below the level hold; returns those that are still to leave."""
    for victim in leaving:
        if victim.level < level and victim.placement is not None:
            for worker in victim.placement.workers:
                books.give(victim.job, worker)
    return [victim for victim in leaving if victim.level >= level]


def _counts(
    workers: WorkerClass, variables: Variables, solution: Sequence[int]
) -> dict[tuple[HostId, CardKind | None], int]:
    numbers = {(slot.host, slot.kind): solution[variables.workers_at(workers, slot).index] for slot in workers.slots}
    return {place: number for place, number in numbers.items() if number}


def _fraction_cards(gang: Gang, variables: Variables, solution: Sequence[int]) -> dict[str, list[tuple[HostId, int]]]:
    """For each fractional role of the gang the card of every worker."""
    chosen: dict[str, list[tuple[HostId, int]]] = {}
    for workers in gang.workers:
        if not workers.role.request.fractional:
            continue
        seats = chosen.setdefault(workers.role.name, [])
        for host_id in dict.fromkeys(slot.host for slot in workers.slots):
            for card in variables.instance.hosts[host_id].cards:
                variable = variables.on_card(workers, host_id, card)
                if variable is not None:
                    seats.extend([(host_id, card.index)] * solution[variable.index])
    return chosen


def _as_placements(cards: dict[str, list[tuple[HostId, int]]]) -> list[WorkerPlacement]:
    return [
        WorkerPlacement(role=role, index=index, host=host, gpus=(card,))
        for role, seats in cards.items()
        for index, (host, card) in enumerate(seats)
    ]
