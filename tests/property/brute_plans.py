"""The best plans for starving gangs beside given starts of a tiny round, by trying every place and every candidate start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, product
from typing import NamedTuple

from phalanx.model.decision import Resize, Start
from phalanx.model.host import MILLI
from phalanx.model.ids import HostId, JobId, ReservationId, TeamId
from phalanx.model.job import Role
from phalanx.model.placement import Placement
from phalanx.model.policy import Policy
from phalanx.model.reservation import Reservation
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.solver.books import Books
from phalanx.solver.demand import CardKind, surely_over_s
from phalanx.solver.drain_starts import candidate_starts
from phalanx.solver.drains import clear_s, named, promises
from phalanx.solver.goals import values
from phalanx.solver.layout import lay_out
from phalanx.solver.order import value_milli
from phalanx.solver.plan import assemble
from phalanx.solver.verify import verify_starts
from phalanx.solver.verify_planned import Board, Planned
from phalanx.solver.verify_promise import placement_faults

Place = tuple[HostId, CardKind | None]
Counts = tuple[tuple[str, tuple[tuple[Place, int], ...]], ...]
Choice = tuple[JobRecord, int, Counts]
Check = Callable[[int], None]
"""Counts the combinations tried; raises where they are too many."""


class Leaves(NamedTuple):
    """A victim, as far as goals ask."""

    job: JobId


class Planner:
    """Tries plans for the named gangs of one round."""

    def __init__(self, snapshot: Snapshot, policy: Policy, check: Check) -> None:
        self._snapshot, self._policy, self._check = snapshot, policy, check
        self._named = named(snapshot, policy)
        self._ways = {
            record.id: list(product([record], candidate_starts(record, snapshot, policy), self._counts(record)))
            for record in self._named
        }
        self._clear = lru_cache(None)(lambda job, gang: clear_s(job, gang, snapshot, policy))

    def __bool__(self) -> bool:
        return bool(self._named)

    def ideal(self, starting: Collection[JobId]) -> dict[str, int]:
        """What `keep` and `plan` of each level cannot exceed where these of the named gangs start."""
        found: Counter[str] = Counter()
        for promise in promises(self._snapshot, self._policy):
            found[f"keep[{promise.level}]"] += value_milli(promise.record, self._policy)
        for record in self._named:
            firsts = [at_s for _, at_s, _ in self._ways[record.id]]
            if record.id in starting or firsts:
                ahead_s = 0 if record.id in starting else min(firsts) - self._snapshot.now_s
                left_s = self._policy.time.plan_horizon_s - ahead_s
                found[f"plan[{record.level}]"] += value_milli(record, self._policy) * left_s
        return dict(found)

    def best(
        self,
        starts: Sequence[Start],
        leaving: tuple[JobId, ...],
        resizes: Sequence[Resize],
        known: tuple[int, ...] | None,
    ) -> tuple[int, ...] | None:
        """The best values of the goals with these starts, victims and returns; None where none are above the known."""
        starting = {start.job for start in starts}
        coming, gone = (*starts, *resizes), (*leaving, *(act.job for act in resizes))
        per_gang: list[list[Choice | None]] = [
            [None, *(way for way in self._ways[record.id] if self._planned([way], coming, gone))]
            for record in self._named
            if record.id not in starting
        ]
        found = []
        for combination in product(*per_gang):
            self._check(1)
            planned = self._planned([way for way in combination if way is not None], coming, gone)
            if planned is not None:
                reached = self._values(starts, leaving, planned, resizes)
                if known is None or reached > known:
                    found.append((reached, planned))
        for reached, planned in sorted(found, key=lambda each: each[0], reverse=True):
            plan = assemble(self._snapshot, self._policy, starts, leaving, planned, resizes)
            if not verify_starts(
                self._snapshot, self._policy, plan.starts, plan.preemptions, plan.reservations, plan.resizes
            ):
                return reached
        return None

    def _values(
        self,
        starts: Sequence[Start],
        leaving: tuple[JobId, ...],
        planned: Sequence[Planned],
        resizes: Sequence[Resize],
    ) -> tuple[int, ...]:
        plans = [
            Reservation(
                id=ReservationId(plan.record.id),
                job=plan.record.id,
                placement=plan.placement,
                planned_start_s=plan.at_s,
                created_s=self._snapshot.now_s,
            )
            for plan in planned
        ]
        gone = [Leaves(job) for job in leaving]
        attained = values(self._snapshot, self._policy, starts, gone, plans, resizes)
        return tuple(goal.value for goal in attained)

    def _counts(self, record: JobRecord) -> Iterator[Counts]:
        """Every way to spread the gang over places, whatever the rules say."""
        per_role = []
        for role in record.job.roles:
            ways = list(combinations_with_replacement(list(_places(role, self._snapshot)), role.count))
            self._check(len(ways))
            per_role.append([(role.name, tuple(Counter(way).items())) for way in ways])
        yield from product(*per_role)

    def _planned(
        self, ways: Sequence[Choice], starts: Sequence[Start | Resize], leaving: tuple[JobId, ...]
    ) -> list[Planned] | None:
        """The plans with cards of their own; None where they do not fit beside all that is still there."""
        cards = self._cards(ways, starts, leaving)
        if cards is None:
            return None
        planned = []
        for (record, at_s, counts), mine in zip(ways, cards, strict=True):
            placement = self._placement(record, counts, mine)
            if placement is None:
                return None
            planned.append(Planned(record, placement, at_s))
        records = {record.id: record for record in self._snapshot.jobs}
        coming = [(records[start.job], start.placement) for start in starts]
        board = Board(self._snapshot, self._policy, planned, coming, set(leaving))
        for plan in planned:
            if any(True for _ in placement_faults(plan, self._snapshot, self._policy)):
                return None
            if any(True for _ in board.overfull(plan)) or any(True for _ in board.contested(plan)):
                return None
        return planned

    def _cards(
        self, ways: Sequence[Choice], starts: Sequence[Start | Resize], leaving: tuple[JobId, ...]
    ) -> list[set[tuple[HostId, int]]] | None:
        """Cards for each plan that are clear by its start and in no other plan, by trying all sets."""
        asks: list[tuple[int, HostId, int, list[int]]] = []
        for number, (record, at_s, counts) in enumerate(ways):
            need: Counter[Place] = Counter()
            for role_name, places in counts:
                role = record.job.role(role_name)
                assert role is not None
                for place, workers in places:
                    need[place] += workers * role.request.whole_gpus
            for (host_id, kind), amount in need.items():
                if kind is not None:
                    asks.append((number, host_id, amount, self._free(record, at_s, host_id, kind, starts, leaving)))
        given: list[set[tuple[HostId, int]]] = [set() for _ in ways]

        def seat(position: int, used: frozenset[tuple[HostId, int]]) -> bool:
            if position == len(asks):
                return True
            number, host_id, amount, free = asks[position]
            for chosen in combinations([index for index in free if (host_id, index) not in used], amount):
                keys = {(host_id, index) for index in chosen}
                given[number] |= keys
                if seat(position + 1, used | keys):
                    return True
                given[number] -= keys
            return False

        return given if seat(0, frozenset()) else None

    def _free(
        self,
        record: JobRecord,
        at_s: int,
        host_id: HostId,
        kind: CardKind,
        starts: Sequence[Start | Resize],
        leaving: tuple[JobId, ...],
    ) -> list[int]:
        records = {other.id: other for other in self._snapshot.jobs}
        there: list[Placement] = [
            other.placement
            for other in self._snapshot.jobs
            if other.placement and other.id not in leaving and self._clear(other, record) > at_s
        ]
        there += [
            start.placement
            for start in starts
            if surely_over_s(records[start.job], self._snapshot, self._policy) > at_s
        ]
        held = {i for placement in there for w in placement.workers if w.host == host_id for i in w.gpus}
        host = next(host for host in self._snapshot.hosts if host.id == host_id)
        return [g.index for g in host.gpus if g.healthy and CardKind.of(g) == kind and g.index not in held]

    def _placement(self, record: JobRecord, counts: Counts, cards: set[tuple[HostId, int]]) -> Placement | None:
        books = Books(replace(self._snapshot, jobs=()))
        for book in map(books.own, tuple(books.hosts)):
            for index in book.cards:
                if (book.host.id, index) not in cards:
                    book.book_card(index, TeamId("others"), MILLI, book.cards[index].kind.memory_mib, 1)
        try:
            return lay_out(record, {role: dict(places) for role, places in counts}, books)
        except ValueError:
            return None


def _places(role: Role, snapshot: Snapshot) -> Iterator[Place]:
    for host in snapshot.hosts:
        if not role.request.gpu_milli:
            yield (host.id, None)
        else:
            for kind in sorted({CardKind.of(gpu) for gpu in host.gpus}):
                yield (host.id, kind)
