"""The fleet as it would be without some of the running jobs, kept up to date as gangs start."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..model.ids import HostId, JobId
from ..model.placement import Placement, WorkerPlacement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .books import Books
from .options import Types
from .placing import Placer
from .withheld import Hold


class World:
    """The fleet without some of the running jobs, and with the starts so far."""

    def __init__(self, snapshot: Snapshot, policy: Policy, waiting: Iterable[JobRecord] = ()) -> None:
        self.books = Books(snapshot, policy.reserved)
        self.placer = Placer(snapshot, policy, self.books, waiting=waiting)
        self.gone: set[JobId] = set()

    def release(self, record: JobRecord) -> None:
        """The job leaves; nothing happens where it has left already."""
        if record.id not in self.gone and record.placement is not None:
            self.gone.add(record.id)
            for worker in record.placement.workers:
                self.books.give(record.job, worker)

    def restore(self, record: JobRecord) -> None:
        """The job is back where it was, whether it fits or not."""
        self.gone.discard(record.id)
        self.take(record, record.placement)

    def returns(self, record: JobRecord) -> bool:
        """The job goes back where it was if that is still free for it."""
        taken: list[WorkerPlacement] = []
        for worker in record.placement.workers if record.placement else ():
            if not self.books.returns(record.job, worker):
                for other in taken:
                    self.books.give(record.job, other)
                return False
            self.books.take(record.job, worker)
            taken.append(worker)
        self.gone.discard(record.id)
        return True

    def fits(self, record: JobRecord, only: Callable[[Types], bool] | None = None) -> bool:
        """Whether the gang would be placed as things are; `only` says which GPU types it may take."""
        placement = self.placer.place(record, only=only)
        if placement is not None:
            self.placer.remove(record, placement)
        return placement is not None

    def take(self, record: JobRecord, placement: Placement | None) -> None:
        """A gang starts there."""
        for worker in placement.workers if placement else ():
            self.books.take(record.job, worker)

    def hold(self, kept: dict[HostId, Hold], sign: int) -> None:
        """Keeps back, or gives free again, what a level must not use."""
        for name, hold in kept.items():
            hold.book(self.books.own(name), sign)
            self.books.changed.append(name)
