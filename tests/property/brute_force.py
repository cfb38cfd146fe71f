"""Every way to place the gangs of a tiny round, and whether such ways fit together; `brute_search` tries them all."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, product

from phalanx.model.decision import Resize, Start
from phalanx.model.ids import HostId, JobId
from phalanx.model.job import Role
from phalanx.model.placement import WorkerPlacement
from phalanx.model.policy import Policy
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.books import Books
from phalanx.solver.demand import CardKind
from phalanx.solver.layout import lay_out
from phalanx.solver.returning import returners, smaller
from phalanx.solver.rights import may_evict, rights_of
from phalanx.solver.sizes import at_size, ways
from phalanx.solver.verify import verify_starts
from phalanx.solver.verify_returning import returns

Seat = tuple[HostId, CardKind | None, int | None]


@dataclass(frozen=True)
class Option:
    """One way to place one gang: for each role the seats of its workers; inside its guarantee or not.

    `record` is the gang at the size it has then; `back` a running gang as it is, if that is the one that returns;
    `act` the start or return if the gang were alone.
    """

    record: JobRecord
    seats: tuple[tuple[str, tuple[Seat, ...]], ...]
    inside: bool
    back: JobRecord | None = None
    act: Start | Resize | None = None

    @property
    def moved(self) -> bool:
        return self.back is not None and self.back.job.workers == self.record.job.workers

    @property
    def counts(self) -> dict[str, dict[tuple[HostId, CardKind | None], int]]:
        return {role: dict(Counter((host, kind) for host, kind, _ in seats)) for role, seats in self.seats}

    @property
    def cards(self) -> dict[str, list[tuple[HostId, int]]]:
        return {
            role: [(host, card) for host, _, card in seats if card is not None]
            for role, seats in self.seats
            if any(card is not None for _, _, card in seats)
        }


class TooLarge(Exception):
    """The instance has more combinations of that kind than a test should try."""


def options(
    record: JobRecord, snapshot: Snapshot, policy: Policy, leaving: Collection[JobId], limit: int
) -> Iterator[Option]:
    """Every way to place the gang alone, at each of its sizes, on what these victims and all returns leave."""
    # What is promised is judged with the plans.
    named = returners(snapshot, policy)
    left = {*leaving, *(other.id for other in (*named.shrinkers, *named.movers))}
    jobs = tuple(other for other in snapshot.jobs if other.id not in left)
    gone = replace(snapshot, jobs=jobs, reservations=())
    guaranteed = any(team.guarantee for team in snapshot.teams)
    for sized in ways(record):
        for way in _ways(sized, snapshot, limit):
            for inside in (False, True) if guaranteed else (False,):
                option = Option(sized, way, inside)
                acts = together((option,), gone, ())
                if acts is not None and not verify_starts(gone, policy, acts[0]):
                    yield replace(option, act=acts[0][0])


def return_options(snapshot: Snapshot, policy: Policy, limit: int) -> dict[JobId, list[Option]]:
    """Every way in which each job may return that stays otherwise: smaller, or as it is."""
    named = returners(snapshot, policy)
    found: dict[JobId, list[Option]] = {}
    pairs = [(now, replace(now, job=at_size(now.job, size))) for now in named.shrinkers for size in smaller(now)]
    for now, then in (*pairs, *((now, now) for now in named.movers)):
        returning = found.setdefault(now.id, [])
        for way in _ways(then, snapshot, limit):
            option = Option(then, way, inside=False, back=now)
            acts = together((option,), snapshot, ())
            if acts is not None and not any(True for _ in returns(snapshot, policy, (), (), acts[1])):
                returning.append(replace(option, act=acts[1][0]))
    return found


def _ways(record: JobRecord, snapshot: Snapshot, limit: int) -> Iterator[tuple[tuple[str, tuple[Seat, ...]], ...]]:
    """Every way to seat the gang, whatever the rules say; workers of a role are alike."""
    per_role = []
    for role in record.job.roles:
        seatings = list(combinations_with_replacement(list(seats(role, snapshot)), role.count))
        per_role.append([(role.name, seating) for seating in seatings])
    total = 1
    for ways_of_role in per_role:
        total *= len(ways_of_role)
    if total > limit:
        raise TooLarge("ways")
    yield from product(*per_role)


def seats(role: Role, snapshot: Snapshot) -> Iterator[Seat]:
    """Every place a worker of the role might sit, whatever the rules say."""
    for host in snapshot.hosts:
        if not role.request.gpu_milli:
            yield (host.id, None, None)
        elif role.request.fractional:
            for gpu in host.gpus:
                yield (host.id, CardKind.of(gpu), gpu.index)
        else:
            for kind in sorted({CardKind.of(gpu) for gpu in host.gpus}):
                yield (host.id, kind, None)


def together(
    combination: tuple[Option, ...], snapshot: Snapshot, leaving: tuple[JobId, ...]
) -> tuple[tuple[Start, ...], tuple[Resize, ...]] | None:
    """The starts and returns of these options side by side; None where they do not fit together.

    Whole cards are dealt so that each goes to a start that may evict all who leave it.
    """
    books = Books(snapshot)
    left = {*leaving, *(option.record.id for option in combination if option.back is not None)}
    for record in snapshot.jobs:
        if record.id in left:
            for worker in record.placement.workers if record.placement else ():
                books.give(record.job, worker)
    for option in combination:
        for worker in _fractions(option):
            books.take(option.record.job, worker)
    dealt = _deal(combination, snapshot, left, books)
    if dealt is None:
        return None
    starts, resizes = [], []
    for option in combination:
        for worker in _fractions(option):
            books.give(option.record.job, worker)
        try:
            placement = lay_out(option.record, option.counts, books, option.cards, dealt[option.record.id])
        except ValueError:
            return None
        attempt = option.record.attempt + 1
        job, inside = option.record.id, option.inside
        if option.back is not None:
            resizes.append(Resize(job=job, attempt=attempt, placement=placement))
        else:
            starts.append(Start(job=job, attempt=attempt, placement=placement, inside_guarantee=inside))
    return (tuple(starts), tuple(resizes)) if _within(books) else None


def _deal(
    combination: tuple[Option, ...], snapshot: Snapshot, left: Collection[JobId], books: Books
) -> dict[JobId, dict[tuple[HostId, CardKind], list[int]]] | None:
    """Free cards for all whole workers, by host and kind: a matching of cards asked to cards open to them."""
    rights = rights_of(snapshot)
    moved = {option.record.id for option in combination if option.moved}
    holders: dict[tuple[HostId, int], list[JobRecord]] = defaultdict(list)
    for record in snapshot.jobs:
        for worker in record.placement.workers if record.placement and record.id in left else ():
            for index in worker.gpus:
                holders[worker.host, index].append(record)
    asked: list[tuple[Option, HostId, CardKind]] = []
    for option in combination:
        for role in option.record.job.roles:
            for (host, kind), number in option.counts[role.name].items():
                if kind is not None and not role.request.fractional:
                    asked.extend([(option, host, kind)] * (number * role.request.whole_gpus))

    def open_to(wish: int) -> list[tuple[HostId, int]]:
        option, host, kind = asked[wish]
        starter = rights.starter(option.record, inside=option.inside)

        def may_use(holder: JobRecord) -> bool:
            if option.back is not None:
                return holder.id == option.record.id
            if holder.id in moved:
                return option.record.level >= holder.level
            return may_evict(starter, rights.runner(holder))

        free = books.free_cards(host).get(kind, ())
        return [(host, i) for i in free if all(may_use(holder) for holder in holders[host, i])]

    owner: dict[tuple[HostId, int], int] = {}

    def match(wish: int, tried: set[tuple[HostId, int]]) -> bool:
        for card in open_to(wish):
            if card not in tried:
                tried.add(card)
                if card not in owner or match(owner[card], tried):
                    owner[card] = wish
                    return True
        return False

    if not all(match(wish, set()) for wish in range(len(asked))):
        return None
    dealt: dict[JobId, dict[tuple[HostId, CardKind], list[int]]] = {option.record.id: {} for option in combination}
    for (host, index), wish in sorted(owner.items()):
        option, _, kind = asked[wish]
        dealt[option.record.id].setdefault((host, kind), []).append(index)
    return dealt


def _within(books: Books) -> bool:
    for book in books.hosts.values():
        if min(book.cpu_milli, book.memory_mib, book.network_mbps) < 0:
            return False
        if any(card.milli < 0 or card.memory_mib < 0 or len(card.teams) > 1 for card in book.cards.values()):
            return False
    return True


def _fractions(option: Option) -> list[WorkerPlacement]:
    return [
        WorkerPlacement(role=role, index=index, host=host, gpus=(card,))
        for role, seats in option.cards.items()
        for index, (host, card) in enumerate(seats)
    ]
