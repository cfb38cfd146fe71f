"""Which GPU types are wanted by gangs that cannot take any, so that gangs with a wider choice leave those alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..model.ids import JobId
from ..model.job import Role
from ..model.snapshot import JobRecord
from .host_book import HostBook


def free_milli(books: Iterable[HostBook]) -> dict[str, int]:
    """milli-GPU free on healthy cards of these hosts, by type."""
    free: dict[str, int] = {}
    for book in books:
        for card in book.cards.values():
            if card.healthy:
                free[card.kind.gpu_type] = free.get(card.kind.gpu_type, 0) + max(0, card.milli)
    return free


class Pressure:
    """Free milli-GPU of each type, and what of it the waiting gangs want that cannot take any type.

    `free` is what is free on the hosts of `books`, where that is known.
    """

    def __init__(
        self,
        books: Iterable[HostBook],
        waiting: Iterable[JobRecord] = (),
        free: Mapping[str, int] | None = None,
    ) -> None:
        self._free = Counter(free_milli(books) if free is None else free)
        self._offered = dict(self._free)
        self._wanted: Counter[str] = Counter()
        self._asked: dict[JobId, Mapping[str, int]] = {}
        for record in waiting:
            self._asked[record.id] = bound = self._bound(record)
            self._wanted.update(bound)

    def leaves(self, record: JobRecord) -> None:
        """The gang waits no longer: its turn has come."""
        bound = self._asked.get(record.id)
        self._wanted.subtract(self._bound(record) if bound is None else bound)

    def takes(self, roles: Sequence[Role], types: Sequence[str | None], sign: int = 1) -> None:
        """A gang took cards of these types, one for each role (sign -1: gave them back)."""
        for role, gpu_type in zip(roles, types, strict=True):
            if gpu_type is not None:
                self._free[gpu_type] -= sign * role.gpu_milli

    def overflow(self, roles: Sequence[Role], types: Sequence[str | None]) -> int:
        """milli-GPU that gangs with less choice would lack if a gang took cards of these types."""
        asked: Counter[str] = Counter()
        for role, gpu_type in zip(roles, types, strict=True):
            if gpu_type is not None:
                asked[gpu_type] += role.gpu_milli
        return sum(
            max(0, min(milli, self._wanted[gpu_type] + milli - self._free[gpu_type]))
            for gpu_type, milli in asked.items()
        )

    def _bound(self, record: JobRecord) -> Mapping[str, int]:
        """What a gang that cannot take any type asks of those it can, in proportion to what was free at first."""
        bound: Counter[str] = Counter()
        for role in record.job.roles:
            accepted = [name for name in self._offered if role.throughput_milli(name) is not None]
            offered = sum(self._offered[name] for name in accepted)
            if role.gpu_milli and offered and len(accepted) < len(self._offered):
                for name in accepted:
                    bound[name] += role.gpu_milli * self._offered[name] // offered
        return bound
