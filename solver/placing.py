"""Places one gang whole or not at all: the cheapest domain that holds it, then few hosts, each the tightest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ..model.host import Host
from ..model.ids import HostId, SiteId, TeamId
from ..model.job import Job, Role, WorkerRequest
from ..model.placement import Placement, WorkerPlacement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.topology import Layer
from .appetite import appetite
from .bars import OPEN, Bar, Bars
from .books import Books
from .demand import CardKind, Confinement, card_takes, usable
from .goals import fleet_types
from .ground import ground
from .layout import lay_out
from .options import Fleet, Options, Shape, Types
from .pressure import Pressure
from .remember import remembered
from .rooms import Path, Rooms, Tree, depth
from .seats import Seats, at_first
from .shapes import Shapes, shapes

_TRIES = 16
"""Options that are tried for a gang of several roles; of one role the first always holds."""

_NOWHERE: list[HostId] = []
"""The hosts of a type that none has."""

_Counts = dict[str, Counter[tuple[HostId, CardKind | None]]]


class Placer:
    """Places gangs one after the other on the free part of some hosts, and books them.

    `hosts` are those that take work; by default the snapshot's usable ones. Types that gangs of `waiting` cannot do
    without are left to them where there is a choice. `tries` counts the options tried, a deterministic measure of work.
    `shape` and `free` (milli-GPU by type) are worked out where they are not given.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        books: Books,
        *,
        hosts: Iterable[Host] | None = None,
        waiting: Iterable[JobRecord] = (),
        shape: Shapes | None = None,
        free: Mapping[str, int] | None = None,
    ) -> None:
        taking = usable(snapshot) if hosts is None else tuple(hosts)
        self.books = books
        free = books.free_milli(taking) if free is None else free
        self.pressure = Pressure((books.hosts[host.id] for host in taking), waiting, free)
        self.tries = 0
        self._snapshot, self._policy = snapshot, policy
        self.shape = shapes(snapshot, policy, taking) if shape is None else shape
        self._ground = ground(taking)
        self._measures: Fleet | None = None
        self._options: dict[Shape, Options] = {}
        self._rooms: dict[tuple[object, ...], Rooms] = {}
        self._seated: dict[tuple[object, ...], Seats] = {}
        self._views: dict[Shape, list[Seats]] = {}

    def place(
        self, record: JobRecord, within: Confinement | None = None, only: Callable[[Types], bool] | None = None
    ) -> Placement | None:
        """Books the gang and returns where it runs, or changes nothing and returns None.

        `within` replaces the confinement that the gang's own demands give; `only` says which types it may take.
        """
        job, shape = record.job, self.shape(record, within)
        if shape not in self._options and self._hopeless(job, shape):
            return None
        options = self._options_of(shape, job.team)
        number = 1 if len(job.roles) == 1 else _TRIES
        for types, node in options.best(number, self.pressure, self._may(job, only), self._there(record, shape)):
            self.tries += 1
            placement = self._try(record, types, node, shape)
            if placement is not None:
                self.pressure.takes(job.roles, types)
                return placement
        return None

    def spot(
        self, record: JobRecord, within: Confinement | None = None, only: Callable[[Types], bool] | None = None
    ) -> tuple[Types, tuple[HostId, ...]] | None:
        """The types and hosts that `place` would choose for a gang of one role; nothing is booked."""
        job, shape = record.job, self.shape(record, within)
        if shape not in self._options and self._hopeless(job, shape):
            return None
        (role,), options = job.roles, self._options_of(shape, job.team)
        for types, node in options.best(1, self.pressure, self._may(job, only), self._there(record, shape)):
            rooms = self.rooms(role, job.team, types[0], shape.sites, shape.bar)
            return types, tuple(rooms.fill(node, role.count, _replica(role)))
        return None

    def could(
        self, record: JobRecord, within: Confinement | None = None, only: Callable[[Types], bool] | None = None
    ) -> bool:
        """Whether `place` would find a place; for a gang of one role told from the rooms, without choosing one."""
        job, shape = record.job, self.shape(record, within)
        if len(job.roles) > 1:
            placement = self.place(record, within, only)
            if placement is not None:
                self.remove(record, placement)
            return placement is not None
        if self._hopeless(job, shape):
            return False
        (role,), may, there = job.roles, self._may(job, only), self._there(record, shape)
        end = depth(shape.confinement.required)
        for name in self.types(role):
            if may is None or may((name,)):
                rooms = self.rooms(role, job.team, name, shape.sites, shape.bar)
                roomy = (node for node in rooms.nodes() if len(node) == end and rooms[node] >= role.count)
                if any(there is None or there((name,), node) for node in roomy):
                    return True
        return False

    @property
    def confinement(self) -> Callable[[Job], Confinement]:
        """Gives each gang the confinement that its own demands give."""
        return self.shape.confinement

    @property
    def bar(self) -> Bars:
        """Gives each gang the hosts that are closed to it."""
        return self.shape.bar

    def remove(self, record: JobRecord, placement: Placement) -> None:
        """Gives back what `place` booked."""
        kinds = {worker.role: self._kind(worker) for worker in placement.workers}
        roles = [role for role in record.job.roles if kinds[role.name]]
        self.pressure.takes(roles, [kind.gpu_type for role in roles if (kind := kinds[role.name])], sign=-1)
        for worker in placement.workers:
            self.books.give(record.job, worker)

    def _may(self, job: Job, only: Callable[[Types], bool] | None) -> Callable[[Types], bool] | None:
        """Whether the gang may take cards of these types, by the limits of its team and `only`; None: any."""
        ledger = self.books.ledger
        if not ledger.limited:
            return only
        return lambda types: ledger.allows(job.team, by_type(job, types)) and (only is None or only(types))

    def _there(self, record: JobRecord, shape: Shape) -> Callable[[Types, Path], bool] | None:
        """Whether reserved pools let the gang take cards of these types in a domain; None where none keeps any."""
        ledger, job = self.books.ledger, record.job
        if not ledger.pooled(record):
            return None
        site = self._ground.site
        return lambda types, node: ledger.pools_allow(site[node[0]] if node else None, by_type(job, types))

    def _options_of(self, shape: Shape, team: TeamId) -> Options:
        options = self._options.get(shape)
        if options is None:
            tree = self.tree(shape.sites)
            rooms = [
                {name: self.rooms(role, team, name, shape.sites, shape.bar) for name in self.types(role)}
                for role in shape.roles
            ]
            options = self._options[shape] = Options(shape, tree, self.books, self._fleet(), rooms)
        return options

    def _fleet(self) -> Fleet:
        """What costs are measured against; many placers are only asked for their rooms."""
        if self._measures is None:
            self._measures = _measures(self._snapshot, self._policy)
        return self._measures

    def types(self, role: Role) -> list[str | None]:
        """The acceptable types of which these hosts have a card with memory enough; [None] for a role without GPUs."""
        if not role.request.gpu_milli:
            return [None]
        return [
            name
            for name, memory in sorted(self._ground.memory.items())
            if role.throughput_milli(name) is not None and card_takes(role.request, memory)
        ]

    def tree(self, sites: frozenset[SiteId]) -> Tree:
        """The domains of these hosts at those sites."""
        return self._ground.tree(sites)

    def rooms(self, role: Role, team: TeamId, gpu_type: str | None, sites: frozenset[SiteId], bar: Bar = OPEN) -> Rooms:
        """The room for workers of the role on cards of that type at those sites, as it is now, behind that bar."""
        request = role.request
        tensor = role.parallelism.tensor if role.parallelism else 1
        key = (request, team if request.fractional else None, gpu_type, tensor, sites, bar)
        if key not in self._rooms:
            closed = bar.closed(self.books.ledger)
            seats = self._seats_of(request, team, gpu_type)
            self._rooms[key] = Rooms(self.tree(sites), self.books, request, team, gpu_type, tensor, closed, seats)
        rooms = self._rooms[key]
        rooms.catch_up()
        return rooms

    def _seats_of(self, request: WorkerRequest, team: TeamId, gpu_type: str | None) -> Seats:
        """The counts that all views of one request share."""
        key = (request, team if request.fractional else None, gpu_type)
        if key not in self._seated:
            hosts = self._ground.of_type.get(gpu_type, _NOWHERE)
            self._seated[key] = Seats(hosts, self.books, request, team, gpu_type)
        return self._seated[key]

    def _hopeless(self, job: Job, shape: Shape) -> bool:
        """Whether the hosts' counts alone say that the gang, of one role, has no place; saves the view of its domains.

        True only where `Options` would find nothing: closed hosts, sites and domains only take from these counts.
        """
        if len(job.roles) != 1:
            return False
        (role,) = job.roles
        if not self.books.grown and self._hopeless_at_first(role, job.team, shape):
            return True
        if shape not in self._views:
            self._views[shape] = [self._seats_of(role.request, job.team, name) for name in self.types(role)]
        for seats in self._views[shape]:
            seats.catch_up()
            if _enough(seats.room.values(), role, shape):
                return False
        return True

    def _hopeless_at_first(self, role: Role, team: TeamId, shape: Shape) -> bool:
        """As `_hopeless`, before anything was booked; worked out once for all books of the snapshot."""
        key = id(self._ground), shape
        known = self.books.first.hopeless.get(key)
        if known is None:
            hosts = self._ground.of_type
            rooms = (
                at_first(hosts.get(name, _NOWHERE), self.books, role.request, team, name).room.values()
                for name in self.types(role)
            )
            known = self.books.first.hopeless[key] = self._ground, not any(_enough(each, role, shape) for each in rooms)
        return known[1]

    def _try(self, record: JobRecord, types: Types, node: Path, shape: Shape) -> Placement | None:
        """Chooses hosts for one role after the other, the most demanding first, then ranks for all."""
        job, booked = record.job, list[WorkerPlacement]()
        counts: _Counts = {}
        cards: dict[str, list[tuple[HostId, int]]] = {}
        chosen = zip(job.roles, types, strict=True)
        hardest = sorted(chosen, key=lambda pair: (pair[0].request.fractional, -pair[0].request.gpu_milli))
        for role, gpu_type in hardest:
            rooms = self.rooms(role, job.team, gpu_type, shape.sites, shape.bar)
            if rooms[node] < role.count:
                break
            for name, number in rooms.fill(node, role.count, _replica(role)).items():
                seats = self._seats(job, role, gpu_type, name, number)
                booked.extend(seats)
                if role.request.fractional:
                    cards.setdefault(role.name, []).extend((name, seat.gpus[0]) for seat in seats)
                else:
                    counts.setdefault(role.name, Counter()).update((name, self._kind(seat)) for seat in seats)
        for worker in booked:
            self.books.pencil(job, worker, -1)
        return lay_out(record, counts, self.books, cards) if len(booked) == job.workers else None

    def _seats(
        self, job: Job, role: Role, gpu_type: str | None, name: HostId, number: int
    ) -> Sequence[WorkerPlacement]:
        """Books that many workers of the role on the host for the time being, to see what is left for other roles."""
        book, seats = self.books.own(name), list[WorkerPlacement]()
        for index in range(number):
            gpus: tuple[int, ...] = ()
            if role.request.fractional and gpu_type is not None:
                card = book.share(role.request, job.team, gpu_type)
                gpus = () if card is None else (card,)
            elif gpu_type is not None:
                kind = book.kinds(role.request, gpu_type)[0]
                gpus = tuple(book.free[kind][: role.request.whole_gpus])
            seat = WorkerPlacement(role=role.name, index=index, host=name, gpus=gpus)
            self.books.pencil(job, seat, 1)
            seats.append(seat)
        return seats

    def _kind(self, seat: WorkerPlacement) -> CardKind | None:
        return self.books.hosts[seat.host].cards[seat.gpus[0]].kind if seat.gpus else None


@remembered
def _measures(snapshot: Snapshot, policy: Policy) -> Fleet:
    """What costs are measured against, with the worth of hosts that was asked for, for all searches of a round."""
    return Fleet(dict(fleet_types(snapshot)), policy.objective, appetite(snapshot))


def by_type(job: Job, types: Types) -> Counter[str]:
    """milli-GPU that the gang takes of each type, its roles on these."""
    amounts: Counter[str] = Counter()
    for role, gpu_type in zip(job.roles, types, strict=True):
        if gpu_type is not None:
            amounts[gpu_type] += role.gpu_milli
    return amounts


def _enough(rooms: Collection[int], role: Role, shape: Shape) -> bool:
    """Whether hosts with that room could hold the role, closed ones and domains wider than a host aside."""
    if shape.confinement.required is Layer.HOST:
        return any(room >= role.count for room in rooms)
    return sum(rooms) >= role.count


def _replica(role: Role) -> int:
    return role.parallelism.tensor * role.parallelism.pipeline if role.parallelism else 1
