"""How fragmented hosts are for a workload (Weng et al., USENIX ATC 2023, section 4): GPUs that its tasks cannot use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ...model.host import MILLI
from ...model.ids import HostId
from ...model.job import Job, Role
from ...solver.books import Books, HostBook
from .floor import Floor, Ints

Floats = NDArray[np.float64]

_COVERED = 0.95
"""The most frequent classes that together make up this share of all tasks are the typical ones, as its authors do."""


@dataclass(frozen=True, slots=True, order=True)
class TaskClass:
    """Tasks (workers) that ask the same: cores, memory, cards and how much of each [milli], types (() for any)."""

    cpu_milli: int
    memory_mib: int
    cards: int
    card_milli: int
    types: tuple[str, ...]

    @staticmethod
    def of(role: Role) -> TaskClass:
        """The class of the workers of that role; those without GPUs ask for no cards."""
        request = role.request
        return TaskClass(
            cpu_milli=request.cpu_milli,
            memory_mib=request.memory_mib,
            cards=1 if request.fractional else request.whole_gpus,
            card_milli=min(request.gpu_milli, MILLI),
            types=tuple(sorted(choice.gpu_type for choice in role.gpu_types)),
        )


def tasks(jobs: Iterable[Job]) -> Counter[TaskClass]:
    """How many tasks of each class these jobs have."""
    number: Counter[TaskClass] = Counter()
    for job in jobs:
        for role in job.roles:
            number[TaskClass.of(role)] += role.count
    return number


@dataclass(frozen=True, slots=True)
class Hosts:
    """Unallocated milli-GPU of every card [host, card], its type's number (-1: no card), milli-cores and MiB [host]."""

    milli: Ints
    types: Ints
    cpu: Ints
    memory: Ints

    def __getitem__(self, which: Ints) -> Hosts:
        """Copies of those hosts."""
        return Hosts(self.milli[which], self.types[which], self.cpu[which], self.memory[which])


class Fragmentation:
    """The expected milli-GPU that a task drawn from the workload cannot use, F_n(M) in the paper.

    For one task class all that is unallocated on a host is a fragment if the task does not fit there; else what lies on
    cards with too little left for it (or of a wrong type). A task without GPUs can use none.
    """

    def __init__(self, workload: Mapping[TaskClass, int], names: Iterable[str]) -> None:
        self.number = {name: number for number, name in enumerate(sorted(names))}
        typical = _typical(workload)
        total = sum(share for _, share in typical) or 1
        useful = [(task, share / total) for task, share in typical if task.cards]
        demands = sorted({(task.card_milli, task.types) for task, _ in useful})
        self._demands = [(milli, self._accepts(types)) for milli, types in demands]
        self._share = np.array([share for _, share in useful], dtype=np.float64)
        self._demand = np.array([demands.index((t.card_milli, t.types)) for t, _ in useful], dtype=np.int64)
        self._cards = np.array([task.cards for task, _ in useful], dtype=np.int64)
        self._cpu = np.array([task.cpu_milli for task, _ in useful], dtype=np.int64)
        self._memory = np.array([task.memory_mib for task, _ in useful], dtype=np.int64)

    def of(self, hosts: Hosts) -> Floats:
        """The fragmentation of each host, in milli-GPU."""
        total: Floats = hosts.milli.sum(axis=1).astype(np.float64)
        if not len(self._share):
            return total
        amount = np.empty((len(total), len(self._demands)), dtype=np.int64)
        number = np.empty_like(amount)
        for column, (milli, accepts) in enumerate(self._demands):
            usable = (hosts.milli >= milli) & accepts[hosts.types]
            amount[:, column] = (hosts.milli * usable).sum(axis=1)
            number[:, column] = usable.sum(axis=1)
        runs = (
            (number[:, self._demand] >= self._cards)
            & (hosts.cpu[:, np.newaxis] >= self._cpu)
            & (hosts.memory[:, np.newaxis] >= self._memory)
        )
        fragments: Floats = total - (runs * amount[:, self._demand]) @ self._share
        return fragments

    def _accepts(self, types: tuple[str, ...]) -> NDArray[np.bool_]:
        """By the type's number; the last place answers for -1, no card."""
        return np.array([not types or name in types for name in self.number] + [False], dtype=np.bool_)


def _typical(workload: Mapping[TaskClass, int]) -> list[tuple[TaskClass, int]]:
    ranked = sorted(workload.items(), key=lambda pair: (-pair[1], pair[0]))
    total = sum(workload.values())
    before = accumulate((share for _, share in ranked), initial=0)
    return [pair for pair, covered in zip(ranked, before, strict=False) if covered < _COVERED * total]


class Free:
    """What is unallocated on the hosts of the floor, kept up to date beside the books."""

    def __init__(self, floor: Floor, books: Books, number: Mapping[str, int]) -> None:
        self._floor, self._books, self._number = floor, books, number
        count = len(floor.hosts)
        width = max((len(host.gpus) for host in floor.hosts), default=0)
        self.hosts = Hosts(
            np.zeros((count, width), dtype=np.int64),
            np.full((count, width), -1, dtype=np.int64),
            np.zeros(count, dtype=np.int64),
            np.zeros(count, dtype=np.int64),
        )
        self.changes = len(books.changed)
        self.last = np.zeros(count, dtype=np.int64)
        for index, host in enumerate(floor.hosts):
            self._read(index, books.hosts[host.id])

    def catch_up(self) -> int:
        """Reads the hosts that were booked on since; returns how many bookings have been seen, `last` says by host."""
        changed = self._books.changed
        for name in dict.fromkeys(changed[self.changes :]):
            index = self._floor.index.get(name)
            if index is not None:
                self._read(index, self._books.hosts[name])
                self.last[index] = len(changed)
        self.changes = len(changed)
        return self.changes

    def column(self, host: HostId, card: int) -> int:
        """Where the card of that index stands."""
        return sorted(self._books.hosts[host].cards).index(card)

    def _read(self, index: int, book: HostBook) -> None:
        for column, (_, card) in enumerate(sorted(book.cards.items())):
            if card.healthy:
                self.hosts.milli[index, column] = max(0, card.milli)
                self.hosts.types[index, column] = self._number[card.kind.gpu_type]
        self.hosts.cpu[index] = max(0, book.cpu_milli)
        self.hosts.memory[index] = max(0, book.memory_mib)
