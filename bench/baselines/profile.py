"""What is free on every host from now on: the running work leaves by its limits, and reservations take their part.

Cards are counted by kind, not told apart: workers that start in the order of their times always find whole cards
where the counts say so. A fraction counts as part of a card of its own, unless it starts now on a card in use.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from ...model.host import MILLI
from ...model.ids import HostId
from ...model.job import Role, WorkerRequest
from ...model.placement import Placement
from ...model.policy import Policy
from ...model.snapshot import JobRecord, Snapshot
from ...solver.demand import CardKind, card_memory, card_takes
from .floor import Floor, Ints
from .limits import Limits

_MOST_SLOTS = 160
_EXACT_ENDS = 96
"""Up to that many different ends are kept to the second; more are rounded up to a grid that widens with distance."""

_GRID = ((1_800, 60), (7_200, 300), (28_800, 900), (172_800, 3_600))
_WIDEST_S = 43_200

Use = dict[HostId, list[int]]
"""What a gang takes of each host: cards of each kind, milli-cores, MiB, Mbit/s."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A gang's promised time [s since the epoch] and hosts."""

    start_s: int
    end_s: int
    use: Use


class Profile:
    """Free cards by kind, milli-cores, MiB and Mbit/s of each host in every slot of time.

    `free[slot, resource, host]`; slot k runs from `times[k]` to `times[k + 1]`, the last one for ever.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy, floor: Floor) -> None:
        self.floor = floor
        kinds = {CardKind.of(gpu) for host in floor.hosts for gpu in host.gpus if gpu.healthy}
        self.kinds = tuple(sorted(kinds))
        self.limits = Limits(snapshot, policy)
        self._row = {kind: number for number, kind in enumerate(self.kinds)}
        self._busy: dict[tuple[HostId, int], int] = {}
        self._epoch, self._moved = 0, list[list[int]]()
        self._rooms: dict[tuple[WorkerRequest, str | None], tuple[int, int, Ints]] = {}
        holding = [record for record in snapshot.jobs if record.placement is not None]
        ends = _rounded(snapshot.now_s, {record.id: self.limits.end_s(record) for record in holding})
        self.times = sorted({snapshot.now_s, *ends.values()})
        whole = np.zeros((len(self.kinds) + 3, len(floor.hosts)), dtype=np.int64)
        for number, host in enumerate(floor.hosts):
            for gpu in host.gpus:
                if gpu.healthy:
                    whole[self._row[CardKind.of(gpu)], number] += 1
            whole[-3:, number] = host.cpu_milli, host.memory_mib, host.network_mbps
        self.free: Ints = np.repeat(whole[np.newaxis], len(self.times), axis=0)
        for record in holding:
            if record.placement is not None:
                self._take(record, record.placement, self.slot(ends[record.id]))

    def slot(self, at_s: int) -> int:
        """The slot that `at_s` falls in."""
        return bisect_right(self.times, at_s) - 1

    def slots(self, start: int, length_s: int) -> int:
        """The first slot that a gang which starts with slot `start` no longer touches."""
        return bisect_left(self.times, self.times[start] + length_s)

    def split(self, at_s: int) -> int:
        """The slot that begins at `at_s`, made if need be; the next one to begin where there are too many already."""
        slot = bisect_left(self.times, at_s)
        full = len(self.times) >= _MOST_SLOTS
        if slot < len(self.times) and (self.times[slot] == at_s or full):
            return slot
        if full:
            at_s = _grid(self.times[0], at_s)
        self.times.insert(slot, at_s)
        self.free = np.insert(self.free, slot, self.free[slot - 1], axis=0)
        self._epoch += 1
        return slot

    def start(self, record: JobRecord, placement: Placement) -> bool:
        """Takes what a gang started now holds until its limit; False, with nothing taken, where that is promised."""
        end = self.split(self.times[0] + self.limits.length_s(record))
        hosts = [self.floor.index[name] for name in placement.hosts]
        before = self.free[:, :, hosts].copy()
        busy = dict(self._busy)
        self._take(record, placement, end)
        after = self.free[:, :, hosts]
        if not bool(((after < 0) & (after < before)).any()):
            return True
        self.free[:, :, hosts] = before
        self._busy = busy
        return False

    def take(self, record: JobRecord, placement: Placement) -> None:
        """Takes what a gang started now holds until its limit, whoever else was promised it."""
        self._take(record, placement, self.split(self.times[0] + self.limits.length_s(record)))

    def reserve(self, use: Use, start: int, end: int, sign: int = 1) -> None:
        """Takes that part of each host in the slots from `start` up to `end` (sign -1: gives it back)."""
        hosts = [self.floor.index[name] for name in use]
        amounts = np.array(list(use.values()), dtype=np.int64).T
        self.free[start:end, :, hosts] -= sign * amounts
        self._moved.append(hosts)

    def holds(self, use: Use, start: int, end: int) -> bool:
        """Whether that part of each host is free in all these slots."""
        if any(name not in self.floor.index for name in use):
            return False
        hosts = [self.floor.index[name] for name in use]
        amounts = np.array(list(use.values()), dtype=np.int64).T
        return bool((self.free[start:end, :, hosts] >= amounts)[:, amounts > 0].all())

    def room(self, request: WorkerRequest, gpu_type: str | None) -> Ints:
        """Workers of the request that each host takes in each slot."""
        key = (request, gpu_type)
        epoch, seen, room = self._rooms.get(key, (-1, 0, np.zeros((0, 0), dtype=np.int64)))
        if epoch != self._epoch:
            room = workers(request, gpu_type, self.kinds, self.free)
        elif seen < len(self._moved):
            hosts = sorted({host for moved in self._moved[seen:] for host in moved})
            room[:, hosts] = workers(request, gpu_type, self.kinds, self.free[:, :, hosts])
        self._rooms[key] = (self._epoch, len(self._moved), room)
        return room

    def _take(self, record: JobRecord, placement: Placement, end: int) -> None:
        requests = {role.name: role.request for role in record.job.roles}
        end_s = self.times[end] if end < len(self.times) else self.times[-1] + _WIDEST_S
        for worker in placement.workers:
            host = self.floor.index.get(worker.host)
            request = requests[worker.role]
            if host is None:
                continue
            self.free[:end, -3:, host] -= (request.cpu_milli, request.memory_mib, request.network_mbps)
            for index in worker.gpus:
                gpu = self.floor.hosts[host].gpu(index)
                until_s = self._busy.get((worker.host, index), 0)
                if gpu is not None and gpu.healthy and until_s < end_s:
                    self.free[bisect_left(self.times, until_s) : end, self._row[CardKind.of(gpu)], host] -= 1
                    self._busy[worker.host, index] = end_s
        self._moved.append([self.floor.index[name] for name in placement.hosts if name in self.floor.index])


def per_card(request: WorkerRequest, memory_mib: int) -> int:
    """Fractions of the request that an empty card takes; 1 for whole cards."""
    if not request.fractional:
        return 1
    memory = card_memory(request, memory_mib)
    number = MILLI // request.gpu_milli
    return min(number, memory_mib // memory) if memory else number


def workers(request: WorkerRequest, gpu_type: str | None, kinds: tuple[CardKind, ...], free: Ints) -> Ints:
    """Workers of the request that fit in `free[..., resource, host]`, cards of that type (None: without GPUs)."""
    room: Ints | None = None
    if gpu_type is not None:
        room = np.zeros_like(free[..., 0, :])
        for number, kind in enumerate(kinds):
            if kind.gpu_type == gpu_type and card_takes(request, kind.memory_mib):
                cards = free[..., number, :]
                if request.whole_gpus > 1:
                    room += np.maximum(cards, 0) // request.whole_gpus
                else:
                    room += np.maximum(cards, 0) * per_card(request, kind.memory_mib)
    asked = (request.cpu_milli, request.memory_mib, request.network_mbps)
    for number, amount in enumerate(asked):
        if amount:
            fit = np.maximum(free[..., number - 3, :], 0) // amount
            room = fit if room is None else np.minimum(room, fit)
    return np.zeros_like(free[..., 0, :]) if room is None else room


def cards_for(role: Role, gpu_type: str | None, kinds: tuple[CardKind, ...], column: Ints, number: int) -> list[int]:
    """Cards of each kind that so many workers take of a host with `column` free, least memory first."""
    taken = [0] * len(kinds)
    for row, kind in enumerate(kinds):
        if number and kind.gpu_type == gpu_type and card_takes(role.request, kind.memory_mib):
            each = per_card(role.request, kind.memory_mib)
            cards = max(0, int(column[row]))
            some = min(number, cards * each if role.request.fractional else cards // role.request.whole_gpus)
            taken[row] = -(-some // each) if role.request.fractional else some * role.request.whole_gpus
            number -= some
    return taken


def _rounded(now_s: int, ends: dict[str, int]) -> dict[str, int]:
    if len(set(ends.values())) <= _EXACT_ENDS:
        return ends
    return {name: _grid(now_s, end_s) for name, end_s in ends.items()}


def _grid(now_s: int, end_s: int) -> int:
    """Rounded up to a multiple of a step; wider steps are multiples of narrower ones, so times only get earlier."""
    step = next((step for within, step in _GRID if end_s - now_s < within), _WIDEST_S)
    return -(-end_s // step) * step
