"""Fragmentation gradient descent: every worker goes where it raises the fragmentation of the fleet least."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

import numpy as np

from ...model.decision import Decision
from ...model.host import MILLI
from ...model.ids import JobId, TeamId
from ...model.job import Job, Role, WorkerRequest
from ...model.policy import Policy
from ...model.snapshot import Snapshot
from ...solver.books import Books, HostBook
from ...solver.claims import Claims
from .booked import Booked
from .decision import decision_of
from .fifo import by_level, serve
from .floor import Floor, Ints, Types
from .fragmentation import Floats, Fragmentation, Free, Hosts, TaskClass, tasks
from .seating import Share, first_hosts

_DOMAINS = 8
"""Wide domains whose whole gradient is worked out for a gang: those whose cheapest host is cheapest."""


class Fgd:
    """FGD (Weng et al., "Beware of Fragmentation", USENIX ATC 2023, algorithm 1).

    A task goes to the host, and a fraction to the card, where the expected fragmentation F_n(M) grows least, M being
    the distribution of task classes: of `workload` where it is given (the paper's target workload), else of all tasks
    seen so far, waiting, running and ended, which is what a scheduler can know.

    Deviations: the paper places single pods; the workers of a gang are placed one by one, each by the gradient, inside
    the domain where the sum is least. The queue, which the paper leaves to Kubernetes, is by priority level, then
    submission, and what does not fit is passed over. Of equal hosts the first in the order of the fleet is taken. A
    card of any type that a task accepts counts as usable for it. The measure knows neither teams nor the memory of
    cards; the rules of placing do.
    """

    def __init__(self, workload: Iterable[Job] = ()) -> None:
        self._target = tasks(workload)
        self._seen: set[JobId] = set()
        self._history: Counter[TaskClass] = Counter()

    def __call__(self, snapshot: Snapshot, policy: Policy) -> Decision:
        """One round."""
        fresh = [record.job for record in snapshot.jobs if record.id not in self._seen]
        self._seen.update(job.id for job in fresh)
        self._history.update(tasks(fresh))
        books, floor = Books(snapshot, policy.reserved), Floor(snapshot, policy)
        types = {gpu.gpu_type for host in snapshot.hosts for gpu in host.gpus}
        gradient = Gradient(floor, books, Fragmentation(self._target or self._history, types))
        supply = Booked(floor, books, gradient.card)
        queue = by_level(snapshot, policy)
        starts = serve(queue, lambda record, only: supply.place(record, gradient, only=only), False, Claims(snapshot))
        return decision_of(snapshot, policy, starts)


class Gradient:
    """The taste of FGD."""

    def __init__(self, floor: Floor, books: Books, fragmentation: Fragmentation) -> None:
        self._floor, self._measure = floor, fragmentation
        self._free = Free(floor, books, fragmentation.number)
        self._rises: dict[tuple[WorkerRequest, str | None, int], tuple[int, Floats]] = {}

    def scores(self, job: Job, types: Types, of: Ints, domains: Ints, rooms: list[Ints]) -> Iterable[float]:
        """How much the fragmentation grows if the gang goes there; of many wide domains for the nearest few only."""
        total = np.zeros(len(of), dtype=np.float64)
        alone = len(domains) == len(of) or bool((np.bincount(of)[domains] == 1).all())
        for role, name in zip(job.roles, types, strict=True):
            total += self._rise(role, name, role.count if alone else 1)
        able = np.minimum.reduce(rooms) > 0
        least = np.full(int(of.max()) + 1, np.inf)
        np.minimum.at(least, of[able], total[able])
        costs: Floats = least[domains]
        if alone or job.workers == 1 or len(domains) == 1:
            return costs
        near = np.argsort(costs, kind="stable")[:_DOMAINS]
        whole = np.full(len(domains), np.inf)
        for number in near:
            hosts = np.flatnonzero(of == domains[number])
            whole[number] = sum(
                self._descend(role, name, hosts, room[hosts], role.count)[1]
                for role, name, room in zip(job.roles, types, rooms, strict=True)
            )
        return whole

    def fill(self, job: Job, role: Role, gpu_type: str | None, hosts: Ints, room: Ints, number: int) -> Share:
        """One worker after the other where it raises the fragmentation least."""
        return self._descend(role, gpu_type, hosts, room, number)[0]

    def card(self, book: HostBook, request: WorkerRequest, team: TeamId, gpu_type: str) -> int | None:
        """The card on which the fraction raises the fragmentation least; of equals the first."""
        self._free.catch_up()
        index = self._floor.index[book.host.id]
        here = self._free.hosts[np.array([index])]
        order = sorted(book.cards)
        takers = [
            column
            for column, name in enumerate(order)
            if book.cards[name].kind.gpu_type == gpu_type and book.cards[name].shares(request, team)
        ]
        if not takers:
            return None
        after = self._measure.of(_less(here, request, takers))
        return order[takers[int(np.argmin(np.round(after, 6)))]]

    def _descend(self, role: Role, gpu_type: str | None, hosts: Ints, room: Ints, number: int) -> tuple[Share, float]:
        """Which hosts take how many, and how much the fragmentation grows by it."""
        some = room > 0
        hosts, room = hosts[some], room[some]
        rise = self._rise(role, gpu_type, 1)[hosts]
        if number == 1 or role.request.fractional or not len(hosts):
            order = np.argsort(rise, kind="stable")
            share = first_hosts(hosts[order], room[order], number)
            single = dict(zip(hosts.tolist(), rise.tolist(), strict=True))
            return share, sum(single[host] * some for host, some in share)
        totals = [np.zeros(len(hosts)), rise]
        for count in range(2, min(number, int(room.max())) + 1):
            totals.append(self._rise(role, gpu_type, count)[hosts])
        taken: Counter[int] = Counter()
        heap = [(float(cost), place) for place, cost in enumerate(rise)]
        heapq.heapify(heap)
        grown = 0.0
        while heap and taken.total() < number:
            cost, place = heapq.heappop(heap)
            grown += cost
            taken[place] += 1
            count = taken[place]
            if count < min(number, int(room[place])):
                heapq.heappush(heap, (float(totals[count + 1][place] - totals[count][place]), place))
        return [(int(hosts[place]), count) for place, count in sorted(taken.items())], grown

    def _rise(self, role: Role, gpu_type: str | None, count: int) -> Floats:
        """How much the fragmentation of each host grows with `count` workers on it, if they fit there."""
        request, now = role.request, self._free.catch_up()
        key = (request, gpu_type, count)
        seen, rise = self._rises.get(key, (-1, np.zeros(len(self._floor.hosts))))
        stale = np.flatnonzero(self._free.last > seen)
        if len(stale):
            here = self._free.hosts[stale]
            before = self._measure.of(here)
            if request.fractional:
                number = self._measure.number[gpu_type] if gpu_type is not None else -1
                after = np.full(len(stale), np.inf)
                for column in range(here.milli.shape[1]):
                    fits = (here.milli[:, column] >= request.gpu_milli) & (here.types[:, column] == number)
                    then = self._measure.of(_less(here, request, [column] * len(stale)))
                    after = np.where(fits, np.minimum(after, then), after)
                grown = (after - before) * count
            else:
                grown = self._measure.of(self._whole(here, request, gpu_type, count)) - before
            rise[stale] = np.round(grown, 6)
        self._rises[key] = (now, rise)
        return rise

    def _whole(self, here: Hosts, request: WorkerRequest, gpu_type: str | None, count: int) -> Hosts:
        """The hosts with so many workers more, on their first cards that are free."""
        milli = here.milli.copy()
        if gpu_type is not None:
            free = (milli == MILLI) & (here.types == self._measure.number[gpu_type])
            milli[free & (np.cumsum(free, axis=1) <= request.whole_gpus * count)] = 0
        return Hosts(milli, here.types, here.cpu - count * request.cpu_milli, here.memory - count * request.memory_mib)


def _less(here: Hosts, request: WorkerRequest, columns: list[int]) -> Hosts:
    """One host for each column (or each host at its column), with the fraction taken from that card."""
    rows = np.arange(len(columns))
    spread = here if len(here.cpu) == len(columns) else here[np.zeros(len(columns), dtype=np.int64)]
    milli = spread.milli.copy()
    milli[rows, np.array(columns)] -= request.gpu_milli
    return Hosts(milli, spread.types, spread.cpu - request.cpu_milli, spread.memory - request.memory_mib)
