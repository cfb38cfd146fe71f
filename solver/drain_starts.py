"""Which planned starts are tried for a gang that drains hosts: when work leaves them, from the first fit on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from ..model.host import Host
from ..model.ids import JobId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .books import Books
from .demand import placeable
from .drains import Clear, promises
from .placing import Placer


def candidate_starts(gang: JobRecord, snapshot: Snapshot, policy: Policy) -> tuple[int, ...]:
    """The planned starts that a round tries for the gang, rising; empty where it fits at none up to the horizon.

    At most `max_candidate_starts`: from the first at which the gang alone fits, and what it was promised. They are now,
    the ends of running work, and the ends of maintenance windows.
    """
    now_s, most = snapshot.now_s, policy.time.max_candidate_starts
    known = Clear(snapshot, policy)
    clear = {record.id: known(record, gang) for record in snapshot.jobs if record.placement is not None}
    windows = {window.end_s for host in snapshot.hosts if placeable(host) for window in host.windows}
    last_s = now_s + policy.time.plan_horizon_s
    times = sorted({time for time in (now_s, *clear.values(), *windows) if now_s <= time <= last_s})
    times = _from_first_fit(times, windows, gang, _Later(snapshot, policy, clear))[:most]
    promised = [promise.start_s for promise in promises(snapshot, policy) if promise.record.id == gang.id]
    if promised and promised[0] not in times:
        times = sorted([*times[: most - 1], *promised])
    return tuple(times)


class _Later:
    """The fleet as it comes to be: the work leaves when it is clear; time goes forward and back."""

    def __init__(self, snapshot: Snapshot, policy: Policy, clear: dict[JobId, int]) -> None:
        self._snapshot, self._policy = snapshot, policy
        self._books = Books(snapshot)
        self._leaving = sorted((r for r in snapshot.jobs if r.placement is not None), key=lambda r: clear[r.id])
        self._clear = [clear[record.id] for record in self._leaving]
        self._gone = 0
        self._placer = self._at(snapshot.now_s, [replace(host, windows=()) for host in snapshot.hosts])

    def fits(self, gang: JobRecord, time_s: int, *, windows: bool) -> bool:
        """Whether the gang could start then beside what is still there; `windows` False does as if there were none."""
        self._move(time_s)
        placer = self._at(time_s, self._snapshot.hosts) if windows else self._placer
        placement = placer.place(gang)
        if placement is not None:
            placer.remove(gang, placement)
        return placement is not None

    def _at(self, time_s: int, hosts: Iterable[Host]) -> Placer:
        later = replace(self._snapshot, now_s=time_s, hosts=tuple(hosts))
        return Placer(later, self._policy, self._books)

    def _move(self, time_s: int) -> None:
        while self._gone < len(self._leaving) and self._clear[self._gone] <= time_s:
            self._book(self._leaving[self._gone], leaves=True)
            self._gone += 1
        while self._gone and self._clear[self._gone - 1] > time_s:
            self._gone -= 1
            self._book(self._leaving[self._gone], leaves=False)

    def _book(self, record: JobRecord, *, leaves: bool) -> None:
        for worker in record.placement.workers if record.placement else ():
            if leaves:
                self._books.give(record.job, worker)
            else:
                self._books.take(record.job, worker)


def _from_first_fit(times: list[int], windows: Collection[int], gang: JobRecord, later: _Later) -> list[int]:
    """The times from the first on at which the gang fits; room only grows with time, but for windows."""
    low, high = 0, len(times)
    while low < high:
        middle = (low + high) // 2
        if later.fits(gang, times[middle], windows=False):
            high = middle
        else:
            low = middle + 1
    if not windows:
        return times[low:]
    tried = [time for number, time in enumerate(times[low:]) if number < _TRIED or time in windows]
    first = next((time for time in tried if later.fits(gang, time, windows=True)), None)
    return [] if first is None else [time for time in times[low:] if time >= first]


_TRIED = 32
"""Ends of work after the first fit that are tried where maintenance windows are in the way; then only windows' ends."""
