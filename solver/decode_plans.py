"""From a solution of the model to plans: named gangs get cards that are clear by their planned starts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ..model.decision import Resize, Start
from ..model.host import MILLI
from ..model.ids import HostId, JobId, TeamId
from ..model.placement import Placement
from .books import Books
from .demand import CardKind
from .later import LaterGang, usable_cards
from .layout import lay_out
from .variables import Variables
from .verify_planned import Planned

Place = tuple[HostId, CardKind | None]


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A plan that was made: when, and how many workers of each role go where."""

    gang: LaterGang
    start_s: int
    counts: dict[str, dict[Place, int]]

    def cards(self, host: HostId, kind: CardKind) -> int:
        """Cards of that kind that it asks of the host."""
        roles = {workers.role.name: workers.role.request.whole_gpus for workers in self.gang.workers}
        return sum(roles[role] * number.get((host, kind), 0) for role, number in self.counts.items())


def decode_plans(
    variables: Variables, solution: Sequence[int], starts: Sequence[Start | Resize], victims: Collection[JobId]
) -> list[Planned]:
    """The plans that the solution stands for, beside these starts and returns, the victims gone."""
    chosen = [_chosen(variables, solution, gang) for gang in variables.plans.gangs]
    made = [plan for plan in chosen if plan is not None]
    if not made:
        return []
    gone = {*victims, *(act.job for act in starts if isinstance(act, Resize))}
    cards = _assign(variables, made, starts, gone)
    return [Planned(plan.gang.record, _placement(variables, plan, cards[plan.gang.id]), plan.start_s) for plan in made]


def _chosen(variables: Variables, solution: Sequence[int], gang: LaterGang) -> _Chosen | None:
    at = zip(gang.starts, variables.planned_at(gang), strict=True)
    start_s = next((start_s for start_s, variable in at if solution[variable.index]), None)
    if start_s is None:
        return None
    counts: dict[str, dict[Place, int]] = defaultdict(dict)
    for workers in gang.workers:
        for slot in workers.slots:
            number = solution[variables.workers_at(workers, slot).index]
            if number:
                counts[workers.role.name][slot.host, slot.kind] = number
    return _Chosen(gang, start_s, dict(counts))


def _assign(
    variables: Variables, made: Sequence[_Chosen], starts: Sequence[Start | Resize], victims: Collection[JobId]
) -> dict[JobId, set[tuple[HostId, int]]]:
    """The cards of each plan; its earlier ones where it may keep them, else the lowest."""
    late: dict[tuple[HostId, int], int] = {}
    for start in starts:
        for worker in start.placement.workers:
            for index in worker.gpus:
                key = (worker.host, index)
                late[key] = max(late.get(key, 0), variables.plans.over[start.job])
    given: dict[JobId, set[tuple[HostId, int]]] = {plan.gang.id: set() for plan in made}
    places = sorted({place for plan in made for counts in plan.counts.values() for place in counts}, key=str)
    for host, kind in places:
        if kind is None:
            continue
        # A plan of several cards is as many askers, each for one card.
        askers = [plan for plan in made for _ in range(plan.cards(host, kind))]
        able = {
            plan.gang.id: _clear_cards(variables, plan, host, kind, late, victims) for plan in made if plan in askers
        }
        for number, index in _match([able[plan.gang.id] for plan in askers]).items():
            given[askers[number].gang.id].add((host, index))
    return given


def _clear_cards(
    variables: Variables,
    plan: _Chosen,
    host: HostId,
    kind: CardKind,
    late: dict[tuple[HostId, int], int],
    victims: Collection[JobId],
) -> list[int]:
    """The cards of the kind that are the plan's to take on the host, those of its earlier plan first."""
    staying = variables.plans.staying(host, plan.gang, plan.start_s)
    held = {index for stay in staying if stay.record.id not in victims for index in stay.cards}
    promise = plan.gang.promise
    earlier = {
        index
        for worker in (promise.reservation.placement.workers if promise else ())
        if worker.host == host
        for index in worker.gpus
    }
    cards = [gpu.index for gpu in usable_cards(variables.instance.hosts[host])[kind]]
    free = [index for index in cards if index not in held and late.get((host, index), 0) <= plan.start_s]
    return sorted(free, key=lambda index: (index not in earlier, index))


def _match(able: Sequence[Sequence[int]]) -> dict[int, int]:
    """A card for each asker out of those it may take, by augmenting paths; raises ValueError where there is none."""
    owner: dict[int, int] = {}

    def seat(asker: int, seen: set[int]) -> bool:
        for index in able[asker]:
            if index not in seen:
                seen.add(index)
                if index not in owner or seat(owner[index], seen):
                    owner[index] = asker
                    return True
        return False

    for asker in range(len(able)):
        if not seat(asker, set()):
            raise ValueError(f"the plans ask for {len(able)} cards, and fewer are clear in time: {able}")
    return {asker: index for index, asker in owner.items()}


def _placement(variables: Variables, plan: _Chosen, cards: Collection[tuple[HostId, int]]) -> Placement:
    """Ranks for all workers, on exactly these cards."""
    snapshot = variables.instance.snapshot
    names = {host for counts in plan.counts.values() for host, _ in counts}
    hosts = tuple(host for host in snapshot.hosts if host.id in names)
    books = Books(replace(snapshot, hosts=hosts, jobs=(), reservations=()))
    for name in names:
        book = books.own(name)
        for index in book.cards:
            if (book.host.id, index) not in cards:
                book.book_card(index, TeamId("others"), MILLI, book.cards[index].kind.memory_mib, 1)
    counts = {role: Counter(number) for role, number in plan.counts.items()}
    return lay_out(plan.gang.record, counts, books)
