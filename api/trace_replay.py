"""A plain scheduler for the past of a trace: in order of submission, whatever fits starts, on the first hosts that fit.

It stands in for the scheduler that ran the trace, so that a snapshot at time T has running jobs at all. It knows
gangs, GPU types, whole cards and shares of cards, CPU and memory, and places as the default confinement wants (a job
that fits on one host is on one host; a larger one in one site). It knows no priorities, no fair share, no eviction.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..model.host import MILLI, Host
from ..model.ids import JobId, TeamId
from ..model.job import Role, WorkerRequest
from ..model.placement import Placement, WorkerPlacement
from .trace_csv import TraceJob


class _Machine:
    """What is free on one host; cards are counted in milli-GPU, and a shared card belongs to one team."""

    __slots__ = ("cards", "cpu", "host", "kind", "memory", "owners", "whole")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.kind = host.gpus[0].gpu_type if host.gpus else ""
        self.cards = [MILLI] * len(host.gpus)
        self.owners: list[TeamId | None] = [None] * len(host.gpus)
        self.whole = len(host.gpus)
        self.cpu = host.cpu_milli
        self.memory = host.memory_mib

    def holds(self, request: WorkerRequest, team: TeamId) -> int:
        """How many such workers it could take now, at most 100,000; for a share of a card whether it takes one."""
        count = 100_000
        if request.gpu_milli >= MILLI:
            count = self.whole // request.whole_gpus
        elif request.gpu_milli:
            count = int(self._card(request.gpu_milli, team) is not None)
        if request.cpu_milli:
            count = min(count, self.cpu // request.cpu_milli)
        return min(count, self.memory // request.memory_mib) if request.memory_mib else count

    def take(self, request: WorkerRequest, team: TeamId) -> tuple[int, ...]:
        """Books one worker that fits; returns its cards, the lowest indices."""
        self.cpu -= request.cpu_milli
        self.memory -= request.memory_mib
        if request.gpu_milli >= MILLI:
            free = [index for index, left in enumerate(self.cards) if left == MILLI][: request.whole_gpus]
        elif request.gpu_milli:
            card = self._card(request.gpu_milli, team)
            free = [] if card is None else [card]
        else:
            free = []
        for index in free:
            self.whole -= self.cards[index] == MILLI
            self.cards[index] -= min(request.gpu_milli, MILLI)
            self.owners[index] = team
        return tuple(free)

    def give(self, request: WorkerRequest, cards: Sequence[int]) -> None:
        """Undoes `take`."""
        self.cpu += request.cpu_milli
        self.memory += request.memory_mib
        for index in cards:
            self.cards[index] += min(request.gpu_milli, MILLI)
            if self.cards[index] == MILLI:
                self.whole += 1
                self.owners[index] = None

    def _card(self, milli: int, team: TeamId) -> int | None:
        """The fullest card of the team that still takes this share, else a free one."""
        shared = [
            (left, index)
            for index, left in enumerate(self.cards)
            if left >= milli and left < MILLI and self.owners[index] == team
        ]
        if shared:
            return min(shared)[1]
        return next((index for index, left in enumerate(self.cards) if left == MILLI), None)


class Fleet:
    """The hosts of a trace and what is free on each."""

    def __init__(self, hosts: Iterable[Host]) -> None:
        self._machines = [_Machine(host) for host in hosts]
        self._by_id = {machine.host.id: machine for machine in self._machines}
        self._groups: dict[tuple[str, str], list[_Machine]] = {}
        for machine in self._machines:
            self._groups.setdefault((machine.host.path.site, machine.kind), []).append(machine)
        self._fits_one: dict[tuple[Role, TeamId], bool] = {}

    def place(self, role: Role, team: TeamId) -> Placement | None:
        """Books the whole gang and says where it is, or books nothing and says None."""
        groups = self._acceptable(role)
        if self._fits_on_one(role, team):
            for machines in groups:
                for machine in machines:
                    if self._all_on(machine, role, team):
                        return self._book(role, team, [machine] * role.count)
            return None
        for machines in groups:
            chosen: list[_Machine] = []
            for machine in machines:
                chosen.extend([machine] * min(machine.holds(role.request, team), role.count - len(chosen)))
                if len(chosen) == role.count:
                    return self._book(role, team, chosen)
        return None

    def free(self, role: Role, placement: Placement) -> None:
        """Gives back what `place` booked."""
        for worker in placement.workers:
            self._by_id[worker.host].give(role.request, worker.gpus)

    def _acceptable(self, role: Role) -> list[list[_Machine]]:
        """Groups of one site and GPU type; work without GPUs goes to hosts without GPUs first."""
        if not role.request.gpu_milli:
            return [group for _, group in sorted(self._groups.items(), key=lambda item: item[0][1] != "")]
        return [group for (_, kind), group in self._groups.items() if kind and role.throughput_milli(kind) is not None]

    def _fits_on_one(self, role: Role, team: TeamId) -> bool:
        """Whether the whole gang fits on some empty host, which then confines it to one."""
        key = (role, team)
        if key not in self._fits_one:
            shapes = {
                (len(m.cards), m.host.cpu_milli, m.host.memory_mib): m.host for g in self._acceptable(role) for m in g
            }
            self._fits_one[key] = role.count == 1 or any(self._all_on(_Machine(h), role, team) for h in shapes.values())
        return self._fits_one[key]

    def _all_on(self, machine: _Machine, role: Role, team: TeamId) -> bool:
        if role.count == 1 or not role.request.fractional:
            return machine.holds(role.request, team) >= role.count
        taken: list[tuple[int, ...]] = []
        while len(taken) < role.count and machine.holds(role.request, team):
            taken.append(machine.take(role.request, team))
        for cards in taken:
            machine.give(role.request, cards)
        return len(taken) == role.count

    def _book(self, role: Role, team: TeamId, machines: Sequence[_Machine]) -> Placement:
        return Placement(
            workers=tuple(
                WorkerPlacement(role=role.name, index=i, host=m.host.id, gpus=m.take(role.request, team))
                for i, m in enumerate(machines)
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What the replay left at its end: start time and placement of each running job, and the jobs that wait."""

    running: dict[JobId, tuple[int, Placement]]
    waiting: frozenset[JobId]


def replay(hosts: Iterable[Host], jobs: Sequence[TraceJob], until_s: int, start_until_s: int) -> Past:
    """Runs the trace up to `until_s`, and starts nothing from `start_until_s` on.

    `jobs` stand in order of submission, none later than `until_s`.
    """
    run = _Replay(hosts, jobs, start_until_s)
    for number, job in enumerate(jobs):
        run.advance(job.submit_s)
        run.submit(number)
    run.advance(until_s)
    return run.past()


class _Replay:
    """Queues by shape and team, oldest first: jobs of one queue are equal but for their age."""

    def __init__(self, hosts: Iterable[Host], jobs: Sequence[TraceJob], start_until_s: int) -> None:
        self._start_until_s = start_until_s
        self._fleet = Fleet(hosts)
        self._jobs = jobs
        self._queues: dict[tuple[Role, TeamId], deque[int]] = {}
        self._ends: list[tuple[int, int]] = []
        self._running: dict[int, tuple[int, Placement]] = {}

    def submit(self, number: int) -> None:
        """One job joins its queue, and starts if it is alone there and fits."""
        job = self._jobs[number]
        queue = self._queues.setdefault((job.job.roles[0], job.job.team), deque())
        queue.append(number)
        if len(queue) == 1:
            self._start([queue], job.submit_s)

    def advance(self, until_s: int) -> None:
        """Lets jobs end until then; what each moment frees goes to those who wait, the oldest first."""
        while self._ends and self._ends[0][0] <= until_s:
            now_s = self._ends[0][0]
            while self._ends and self._ends[0][0] == now_s:
                number = heapq.heappop(self._ends)[1]
                self._fleet.free(self._jobs[number].job.roles[0], self._running.pop(number)[1])
            self._start(list(self._queues.values()), now_s)

    def past(self) -> Past:
        """Where everything stands now."""
        names = [job.job.id for job in self._jobs]
        return Past(
            running={names[number]: told for number, told in self._running.items()},
            waiting=frozenset(names[number] for queue in self._queues.values() for number in queue),
        )

    def _start(self, queues: Sequence[deque[int]], now_s: int) -> None:
        """Starts what fits, in order of age; once the head of a queue does not fit, the rest of it needs no try."""
        if now_s >= self._start_until_s:
            return
        order = [(queue[0], index) for index, queue in enumerate(queues) if queue]
        heapq.heapify(order)
        while order:
            number, index = heapq.heappop(order)
            job = self._jobs[number]
            placement = self._fleet.place(job.job.roles[0], job.job.team)
            if placement is None:
                continue
            queue = queues[index]
            queue.popleft()
            self._running[number] = (now_s, placement)
            if job.duration_s is not None:
                heapq.heappush(self._ends, (now_s + job.duration_s, number))
            if queue:
                heapq.heappush(order, (queue[0], index))
