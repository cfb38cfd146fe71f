"""Whether a gang that asks for much of its pools would soon have its room, if hosts were set aside for it.

Estimates serve here: they say what a drain is expected to cost; what it promises is still told by limits.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from ..model.host import MILLI
from ..model.ids import HostId, SiteId
from ..model.limits import grace_s, ran_s
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import placeable

if TYPE_CHECKING:
    from .drains import Clear


class Soon:
    """Tells of a gang whether so many GPUs are expected to be clear within `starve_after_s`."""

    def __init__(self, snapshot: Snapshot, policy: Policy, clear: Clear) -> None:
        self._snapshot, self._policy, self._clear = snapshot, policy, clear
        self._holding: dict[tuple[HostId, int], list[JobRecord]] | None = None

    def __call__(self, record: JobRecord, pools: frozenset[tuple[SiteId, str]]) -> bool:
        """`pools`: the sites and GPU types that the gang may have."""
        last_s = self._snapshot.now_s + self._policy.time.starve_after_s
        each = max(role.request.whole_gpus for role in record.job.roles)
        if not each:
            return False
        slots: dict[SiteId, int] = defaultdict(int)
        for host in self._snapshot.hosts:
            if placeable(host):
                cards = [gpu.index for gpu in host.gpus if gpu.healthy and (host.path.site, gpu.gpu_type) in pools]
                slots[host.path.site] += sum(self._free_s(host.id, card, record) <= last_s for card in cards) // each
        return max(slots.values(), default=0) * each * MILLI >= record.job.gpu_milli

    def _free_s(self, host: HostId, card: int, gang: JobRecord) -> int:
        """When the card is expected to be clear of the gang's way; now or later."""
        if self._holding is None:
            self._holding = defaultdict(list)
            for record in self._snapshot.jobs:
                for worker in record.placement.workers if record.placement else ():
                    for index in worker.gpus:
                        self._holding[worker.host, index].append(record)
        there = self._holding.get((host, card), ())
        return max((self._ends_s(record, gang) for record in there), default=self._snapshot.now_s)

    def _ends_s(self, record: JobRecord, gang: JobRecord) -> int:
        """By its estimate; work that has outlived it is expected to go on for as long as it has run."""
        surely_s, estimate_s = self._clear(record, gang), record.job.walltime_estimate_s
        if estimate_s is None:
            return surely_s
        now_s = self._snapshot.now_s
        ran = ran_s(record, now_s)
        left_s = estimate_s - ran if ran < estimate_s else ran
        return min(surely_s, now_s + left_s + grace_s(record.job) + self._policy.eviction.clean_s)
