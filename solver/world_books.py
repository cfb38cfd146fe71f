"""The books of what-if worlds, each derived from the nearest world's whose books are known."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.decision import Start
from ..model.host import Host
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .books import Books, holding
from .empty_fleet import well
from .ranks import Ranks
from .rivals import Rivals
from .unchecked import unchecked
from .withheld import holds
from .world import World


class WorldBooks:
    """Gives the books of a world for jobs of a rank, beside one decision's starts and victims."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        starts: Sequence[Start],
        leaving: Sequence[JobRecord],
        rivals: Rivals,
        ranks: Ranks,
    ) -> None:
        self._snapshot, self._policy, self._starts = snapshot, policy, starts
        self._leaving, self._rivals, self._ranks = leaving, rivals, ranks
        self._bases: dict[tuple[bool, bool], Books] = {}
        self._running: dict[tuple[object, ...], Books] = {}
        self._lifted: dict[tuple[object, ...], Books] = {}
        self._well: tuple[Host, ...] | None = None

    @property
    def well(self) -> tuple[Host, ...]:
        """All hosts, each ready for work and with no card broken."""
        if self._well is None:
            self._well = tuple(map(well, self._snapshot.hosts))
        return self._well

    def __call__(self, world: World, at: int) -> Books:
        """The books of that world for jobs of that rank; the caller may write to them."""
        books = self._without_rules(world, at).fork()
        if not world.no_running:
            self._book(books, world, at)
        return books

    def _without_rules(self, world: World, at: int) -> Books:
        """Who runs on there, without the rules that are lifted."""
        books = self._running_on(world, at)
        if not (world.no_limits or world.no_reserve):
            return books
        gone = _gone(world)
        key = world.all_hosts, world.no_running, gone, at if gone else 0, world.no_limits, world.no_reserve
        if key not in self._lifted:
            lifted = self._lifted[key] = books.fork()
            lifted.ledger = books.ledger.without(limits=world.no_limits, pools=world.no_reserve)
        return self._lifted[key]

    def _running_on(self, world: World, at: int) -> Books:
        """The books of the jobs that run on in that world."""
        if world.no_running:
            return self._base(world.all_hosts, empty=True)
        gone = _gone(world)
        key = world.all_hosts, gone, at if gone else 0
        if key not in self._running:
            lower, victims, _ = self._rivals.below(at)
            books = self._running[key] = self._base(world.all_hosts, empty=False).fork()
            for record in (*self._leaving, *(lower if gone == "lower" else victims if gone else ())):
                for worker in record.placement.workers if record.placement else ():
                    books.give(record.job, worker)
        return self._running[key]

    def _base(self, all_hosts: bool, *, empty: bool) -> Books:
        """The books of all that run, or of none, on the hosts as they are or with all hosts ready and whole."""
        key = all_hosts, empty
        if key not in self._bases:
            snapshot = unchecked(self._snapshot, jobs=()) if empty else self._snapshot
            if all_hosts and self._policy.reserved:
                # What pools keep depends on which cards are whole.
                self._bases[key] = Books(unchecked(snapshot, hosts=self.well), self._policy.reserved)
            elif all_hosts:
                books = self._bases[key] = self._base(False, empty=empty).fork()
                healed = [new for new, old in zip(self.well, self._snapshot.hosts, strict=True) if new is not old]
                books.refit(healed, holding(snapshot))
            else:
                self._bases[key] = Books(snapshot, self._policy.reserved)
        return self._bases[key]

    def _book(self, books: Books, world: World, at: int) -> None:
        """Books the starts, and what the victims left over that the rank must not use."""
        coming = self._ranks.coming(() if world.no_starts else self._starts, self._leaving)
        for _, record, placement in coming:
            for worker in placement.workers:
                books.take(record.job, worker)
        leaving = self._ranks.leaving(self._leaving)
        for name, hold in holds(at, leaving, coming, books).items():
            hold.book(books.own(name), 1)
            books.changed.append(name)
        books.keep_back(at, leaving, coming)


def _gone(world: World) -> str:
    """Who of the running jobs has left, beside the round's victims."""
    return "" if world.no_running else "lower" if world.no_lower else "victims" if world.no_victims else ""
