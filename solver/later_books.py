"""The fleet as it comes to be for one gang: work leaves when it is out of the gang's way, plans and starts stay."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..model.ids import JobId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .books import Books
from .demand import placeable, surely_over_s
from .drains import Clear
from .placing import Placer
from .shapes import Shapes
from .unchecked import unchecked
from .verify_planned import Placed, Planned

_TRIED = 32
"""Times after the first fit that are tried where maintenance windows are in the way; then only windows' ends."""


class LaterBooks:
    """Places a gang at points in time, which may go forward and back; nothing stays booked.

    `gone` are jobs that leave in this round, `coming` what starts in it; all `plans` count at any time.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        gang: JobRecord,
        *,
        gone: Collection[JobId] = (),
        coming: Sequence[Placed] = (),
        plans: Iterable[Planned] = (),
    ) -> None:
        self._snapshot, self._policy, self._gang = snapshot, policy, gang
        self._books = Books(snapshot, policy.reserved)
        clear = Clear(snapshot, policy)
        leaving: list[tuple[int, JobRecord, Placement]] = []
        for record in snapshot.jobs:
            if record.placement is not None and record.id in gone:
                self._book(record, record.placement, comes=False)
            elif record.placement is not None:
                leaving.append((clear(record, gang), record, record.placement))
        for record, placement in coming:
            self._book(record, placement, comes=True)
            leaving.append((surely_over_s(record, snapshot, policy), record, placement))
        for plan in plans:
            self._book(plan.record, plan.placement, comes=True)
        self._leaving = sorted(leaving, key=lambda entry: entry[0])
        self._left = 0
        self._windows = {w.end_s for host in snapshot.hosts if placeable(host) for w in host.windows}
        self._placer = Placer(snapshot, policy, self._books)
        self._lasting = Shapes(snapshot, policy, snapshot.hosts, windows=False)

    def place(self, time_s: int, *, windows: bool = True) -> Placement | None:
        """Where the gang could start then; `windows` False does as if no host entered maintenance."""
        self._move(time_s)
        self._placer.shape = self._at(time_s) if windows and self._windows else self._lasting
        placement = self._placer.place(self._gang)
        if placement is not None:
            self._placer.remove(self._gang, placement)
        return placement

    def earliest(self, times: Sequence[int]) -> tuple[int, Placement] | None:
        """The first of these times, which rise, at which the gang could start, and where."""
        low, high = 0, len(times)
        while low < high:
            middle = (low + high) // 2
            if self.place(times[middle], windows=False) is None:
                low = middle + 1
            else:
                high = middle
        # Room only grows with time, but for maintenance windows.
        later = [time for time in times[low + _TRIED :] if time in self._windows]
        for time_s in [*times[low : low + _TRIED], *later] if self._windows else times[low : low + 1]:
            placement = self.place(time_s)
            if placement is not None:
                return time_s, placement
        return None

    def _at(self, time_s: int) -> Shapes:
        return Shapes(unchecked(self._snapshot, now_s=time_s), self._policy, self._snapshot.hosts)

    def _move(self, time_s: int) -> None:
        while self._left < len(self._leaving) and self._leaving[self._left][0] <= time_s:
            _, record, placement = self._leaving[self._left]
            self._book(record, placement, comes=False)
            self._left += 1
        while self._left and self._leaving[self._left - 1][0] > time_s:
            self._left -= 1
            _, record, placement = self._leaving[self._left]
            self._book(record, placement, comes=True)

    def _book(self, record: JobRecord, placement: Placement, *, comes: bool) -> None:
        for worker in placement.workers:
            if comes:
                self._books.take(record.job, worker)
            else:
                self._books.give(record.job, worker)
