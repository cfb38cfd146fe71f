"""From a solution of the model to starts and returns: counts become ranks, cards get their indices."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..model.decision import Resize, Start
from ..model.ids import HostId, JobId
from .access import Reach
from .allot import allot
from .books import Books
from .classes import Gang, Instance, WorkerClass
from .demand import CardKind
from .layout import lay_out
from .variables import Variables

Where = tuple[HostId, CardKind]
Counts = dict[str, dict[tuple[HostId, CardKind | None], int]]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A gang that starts or returns: whether inside, its counts by role and place, and the cards of its fractions."""

    gang: Gang
    inside: bool
    counts: Counts
    fractions: dict[str, list[tuple[HostId, int]]]

    @property
    def reach(self) -> Reach:
        return self.gang.widest_reach if self.inside else self.gang.reach


def decode(variables: Variables, solution: Sequence[int]) -> tuple[list[Start], list[JobId], list[Resize]]:
    """The starts, the victims and the returns that the solution stands for."""
    instance = variables.instance
    chosen = [
        one
        for gang in instance.coming
        if solution[variables.started(gang).index]
        for one in _apart(_chosen(gang, variables, solution), variables, solution)
    ]
    # From the lowest level up: a lower level leaves the cards that only higher ones may use, and takes its own first.
    chosen.sort(key=lambda one: (one.gang.record.level, one.inside))
    leaving = [victim for victim in instance.victims if solution[variables.evicted(victim.id).index]]
    books = Books(instance.snapshot)
    for gone in (*leaving, *(one.gang.back for one in chosen if one.gang.back is not None)):
        for worker in gone.placement.workers if gone.placement is not None else ():
            books.give(gone.job, worker)
    ways = frozenset(w for ways in instance.ways.values() for w in ways if solution[variables.left(w).index])
    allotted = _allotted(instance, chosen, ways)
    starts, returns = [], []
    for one in chosen:
        record = one.gang.record
        placement = lay_out(record, one.counts, books, one.fractions, allotted[one.gang.id])
        attempt = record.attempt + 1
        if one.gang.back is None:
            starts.append(Start(job=record.id, attempt=attempt, placement=placement, inside_guarantee=one.inside))
        else:
            returns.append(Resize(job=record.id, attempt=attempt, placement=placement))
    return starts, [victim.id for victim in leaving], returns


def _chosen(gang: Gang, variables: Variables, solution: Sequence[int]) -> _Chosen:
    inside = variables.inside(gang)
    counts = {workers.role.name: _counts(workers, variables, solution) for workers in gang.workers}
    return _Chosen(
        gang=gang,
        inside=inside is not None and bool(solution[inside.index]),
        counts=counts,
        fractions=_fraction_cards(gang, variables, solution),
    )


def _apart(one: _Chosen, variables: Variables, solution: Sequence[int]) -> Iterator[_Chosen]:
    """The gang, or those of its members that start, each with one of its places."""
    if not one.gang.members:
        yield one
        return
    role = one.gang.workers[0].role.name
    starting = (record for record, started in variables.starts(one.gang) if solution[started.index])
    cards = one.fractions.get(role)
    places = [place for place, number in one.counts[role].items() for _ in range(number)]
    for number, record in enumerate(starting):
        gang = replace(one.gang, record=record, label="", members=())
        if cards is not None:
            yield replace(one, gang=gang, fractions={role: [cards[number]]})
        else:
            yield replace(one, gang=gang, counts={role: {places[number]: 1}})


def _allotted(instance: Instance, chosen: Sequence[_Chosen], gone: Reach) -> dict[JobId, dict[Where, list[int]]]:
    """The whole cards of each gang that starts or returns, by host and kind; `gone`: who leaves, and in which way."""
    shared = {card for one in chosen for cards in one.fractions.values() for card in cards}
    asking: dict[Where, list[tuple[_Chosen, int]]] = defaultdict(list)
    for one in chosen:
        for where, number in _whole_cards(one).items():
            asking[where].append((one, number))
    allotted: dict[JobId, dict[Where, list[int]]] = {one.gang.id: {} for one in chosen}
    for (host, kind), parts in asking.items():
        left = [
            (card.index, gone.intersection(card.leaving))
            for card in instance.hosts[host].cards
            if card.kind == kind and (host, card.index) not in shared and card.may_empty(gone)
        ]
        given = allot([(number, one.reach) for one, number in parts], left)
        for (one, _), cards in zip(parts, given, strict=True):
            allotted[one.gang.id][host, kind] = cards
    return allotted


def _whole_cards(one: _Chosen) -> dict[Where, int]:
    """How many whole cards the gang takes, by host and kind."""
    taken: dict[Where, int] = defaultdict(int)
    for workers in one.gang.workers:
        if not workers.role.request.fractional:
            for (host, kind), number in one.counts[workers.role.name].items():
                if kind is not None:
                    taken[host, kind] += number * workers.role.request.whole_gpus
    return taken


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
