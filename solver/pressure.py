"""Which GPU types are wanted by gangs that accept no other, so that gangs with a choice leave those alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ..model.job import Role
from ..model.snapshot import JobRecord
from .books import HostBook


class Pressure:
    """Free milli-GPU of each type, and what of it the waiting gangs want that accept only this type."""

    def __init__(self, books: Iterable[HostBook], waiting: Iterable[JobRecord] = ()) -> None:
        self._free: Counter[str] = Counter()
        for book in books:
            for card in book.cards.values():
                if card.healthy:
                    self._free[card.kind.gpu_type] += max(0, card.milli)
        self._wanted: Counter[str] = Counter()
        for record in waiting:
            self._wanted.update(self._bound(record))

    def leaves(self, record: JobRecord) -> None:
        """The gang waits no longer: its turn has come."""
        self._wanted.subtract(self._bound(record))

    def takes(self, roles: Sequence[Role], types: Sequence[str | None], sign: int = 1) -> None:
        """A gang took cards of these types, one for each role (sign -1: gave them back)."""
        for role, gpu_type in zip(roles, types, strict=True):
            if gpu_type is not None:
                self._free[gpu_type] -= sign * role.gpu_milli

    def overflow(self, roles: Sequence[Role], types: Sequence[str | None]) -> int:
        """milli-GPU that gangs without a choice would lack if a gang took cards of these types."""
        asked: Counter[str] = Counter()
        for role, gpu_type in zip(roles, types, strict=True):
            if gpu_type is not None:
                asked[gpu_type] += role.gpu_milli
        return sum(
            max(0, min(milli, self._wanted[gpu_type] + milli - self._free[gpu_type]))
            for gpu_type, milli in asked.items()
        )

    def _bound(self, record: JobRecord) -> Mapping[str, int]:
        bound: Counter[str] = Counter()
        for role in record.job.roles:
            accepted = [name for name in self._free if role.throughput_milli(name) is not None]
            if role.gpu_milli and len(accepted) == 1:
                bound[accepted[0]] += role.gpu_milli
        return bound
