"""The event heap: what happens next, ties broken by priority, then by the order of scheduling."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import IntEnum

from ..model.ids import HostId, JobId

Key = tuple[JobId, int]
"""(job, attempt)."""


class Priority(IntEnum):
    """What goes first among the happenings of one second: what frees, then what asks, then the round."""

    RELEASE = 0
    END = 1
    HOST = 2
    RUNNING = 3
    SUBMIT = 4
    WAKE = 5
    ROUND = 6


@dataclass(frozen=True, slots=True)
class Submit:
    """The job of this index in the workload arrives."""

    index: int


@dataclass(frozen=True, slots=True)
class Up:
    """Every rank of the attempt runs, or the launch fails."""

    key: Key


@dataclass(frozen=True, slots=True)
class End:
    """The last rank of the attempt exits; stale where `generation` is no longer the attempt's."""

    key: Key
    generation: int


@dataclass(frozen=True, slots=True)
class Release:
    """The hosts of the attempt are verified clean."""

    key: Key


@dataclass(frozen=True, slots=True)
class HostDies:
    """The host is lost."""

    host: HostId


@dataclass(frozen=True, slots=True)
class HostBack:
    """The host is back, empty."""

    host: HostId


@dataclass(frozen=True, slots=True)
class Loaded:
    """The host has loaded what it was ordered to; stale where `number` is no longer that of its load."""

    host: HostId
    number: int


@dataclass(frozen=True, slots=True)
class Starves:
    """The job, if it still waits, has waited so long that hosts are set aside for it."""

    job: JobId


@dataclass(frozen=True, slots=True)
class Wake:
    """Time itself changes something: a back-off or a limit ends."""


@dataclass(frozen=True, slots=True)
class Round:
    """A scheduling round is due."""


Happening = Submit | Up | End | Release | HostDies | HostBack | Loaded | Starves | Wake | Round
_PRIORITIES: dict[type, Priority] = {
    Submit: Priority.SUBMIT,
    Up: Priority.RUNNING,
    End: Priority.END,
    Release: Priority.RELEASE,
    HostDies: Priority.HOST,
    HostBack: Priority.HOST,
    Loaded: Priority.HOST,
    Starves: Priority.WAKE,
    Wake: Priority.WAKE,
    Round: Priority.ROUND,
}


class Heap:
    """Happenings by (second, priority, counter)."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int, Happening]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, at_s: int, happening: Happening) -> None:
        """Schedules it."""
        self._count += 1
        heapq.heappush(self._entries, (at_s, _PRIORITIES[type(happening)], self._count, happening))

    def pop(self) -> tuple[int, Happening]:
        """The next second and what happens then. IndexError when nothing is left."""
        at_s, _, _, happening = heapq.heappop(self._entries)
        return at_s, happening
