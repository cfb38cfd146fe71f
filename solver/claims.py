"""What of the guarantees is left for starts, as a search gives it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..model.job import Job
from ..model.placement import Placement
from ..model.snapshot import JobRecord, Snapshot
from .options import Types
from .rights import Key, rights_of


class Claims:
    """Guarantees of one snapshot, less what runs and what was claimed since. Amounts in milli-GPU."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._rights = rights_of(snapshot)
        self._left: dict[Key, int] = dict(self._rights.left)

    def ways(self, record: JobRecord) -> tuple[bool, ...]:
        """Whether the candidate may start outside (False), inside (True), both or not at all; inside first."""
        return self._rights.ways(record)[::-1]

    def covers(self, job: Job) -> Callable[[Types], bool]:
        """Whether the gang is inside with its roles on these types."""

        def covered(types: Types) -> bool:
            amounts: dict[Key, int] = {}
            for role, gpu_type in zip(job.roles, types, strict=True):
                if gpu_type is not None:
                    holder = self._rights.holder(job.team, gpu_type)
                    if holder is None:
                        return False
                    key = (holder, gpu_type)
                    amounts[key] = amounts.get(key, 0) + role.gpu_milli
            return bool(amounts) and self._enough(amounts)

        return covered

    def take(self, job: Job, placement: Placement) -> None:
        """The gang starts there inside."""
        for key, milli in self._rights.counted(job, placement).items():
            self._left[key] -= milli

    def _enough(self, amounts: Mapping[Key, int]) -> bool:
        return all(milli <= self._left[key] for key, milli in amounts.items())
