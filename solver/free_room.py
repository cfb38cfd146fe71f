"""What the free cards of a fleet are worth, host by host, so that a decision is judged by the hosts that it changes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ..model.host import MILLI, Host
from ..model.ids import HostId, JobId
from ..model.placement import Placement
from ..model.policy import ObjectivePolicy
from ..model.snapshot import JobRecord, Snapshot
from .appetite import Amounts, appetite
from .demand import placeable
from .remember import remembered

_Stay = tuple[JobId, tuple[int, ...], Amounts, int]
"""One worker on a host: its job, its cards, what it takes beside them, and of a fraction its milli-GPU, else 0."""

_Slot = tuple[int, str, str]
"""A standard gang by its number, a GPU type, and a domain of the gang's layer."""

_Part = tuple[int, int, tuple[tuple[_Slot, int], ...]]
"""Of one host: free cards that it can serve, milli-GPU that it cannot, and workers of standard gangs by their slot."""

_NONE: Amounts = (0, 0, 0)


class FreeRoom:
    """The worth of the free cards that their hosts can serve, and of standard gangs on them, each counted alone."""

    def __init__(self, snapshot: Snapshot, objective: ObjectivePolicy) -> None:
        self._objective, self._asked = objective, appetite(snapshot)
        self._hosts = {host.id: host for host in snapshot.hosts if placeable(host)}
        self._there: defaultdict[HostId, list[_Stay]] = defaultdict(list)
        self._at: dict[JobId, tuple[HostId, ...]] = {}
        for record in snapshot.jobs:
            if record.placement is not None:
                self._at[record.id] = record.placement.hosts
                for name, stay in _stays(record, record.placement):
                    self._there[name].append(stay)
        self._parts = {name: self._part(host, self._there.get(name, ())) for name, host in self._hosts.items()}
        self._slots: Counter[_Slot] = Counter()
        for _, _, slots in self._parts.values():
            for slot, workers in slots:
                self._slots[slot] += workers
        self._worth = sum(self._kept(part) for part in self._parts.values())
        self._stranded = sum(stranded for _, stranded, _ in self._parts.values())
        self._worth += sum(self._gangs(slot[0], workers) for slot, workers in self._slots.items())

    def worth(
        self, placed: Iterable[tuple[JobRecord, Placement]], gone: Iterable[JobRecord], *, stranding: bool = True
    ) -> int:
        """The worth once these have left and those are there [mGPU*s]; without `stranding` nothing is stranded."""
        left = {record.id for record in gone}
        fresh: defaultdict[HostId, list[_Stay]] = defaultdict(list)
        for record, placement in placed:
            for name, stay in _stays(record, placement):
                fresh[name].append(stay)
        worth = self._worth + (0 if stranding else self._objective.stranded_s * self._stranded)
        moved: Counter[_Slot] = Counter()
        for name in {*fresh, *(name for job in left for name in self._at.get(job, ()))} & self._hosts.keys():
            staying = [stay for stay in self._there.get(name, ()) if stay[0] not in left]
            before, after = self._parts[name], self._part(self._hosts[name], [*staying, *fresh[name]])
            worth += self._kept(after, stranding) - self._kept(before, stranding)
            for slot, workers in before[2]:
                moved[slot] -= workers
            for slot, workers in after[2]:
                moved[slot] += workers
        for slot, workers in moved.items():
            whole = self._slots[slot]
            worth += self._gangs(slot[0], whole + workers) - self._gangs(slot[0], whole)
        return worth

    def _part(self, host: Host, there: Sequence[_Stay]) -> _Part:
        whole = {index for _, gpus, _, milli in there if not milli for index in gpus}
        shared = {index for _, gpus, _, milli in there if milli for index in gpus} - whole
        usable = {gpu.index for gpu in host.gpus if gpu.healthy} - whole
        if not usable:
            return 0, 0, ()
        parts = shared & usable
        free_milli = MILLI * len(usable) - sum(milli for _, gpus, _, milli in there if milli and gpus[0] in parts)
        free: dict[str, int] = {}
        for gpu in host.gpus:
            if gpu.index in usable and gpu.index not in shared:
                free[gpu.gpu_type] = free.get(gpu.gpu_type, 0) + 1
        cpu, memory, network = host.cpu_milli, host.memory_mib, host.network_mbps
        for _, _, amounts, _ in there:
            cpu, memory, network = cpu - amounts[0], memory - amounts[1], network - amounts[2]
        served = self._asked.served(sum(free.values()), (cpu, memory, network))
        stranded = self._asked.stranded(free_milli, (cpu, memory, network))
        slots = []
        for number, gang in enumerate(self._objective.standard_gangs):
            for gpu_type, cards in free.items():
                workers = min(cards, served) // gang.gpus
                if workers:
                    slots.append(((number, gpu_type, host.path.domain(gang.layer, host.id)), workers))
        return served, stranded, tuple(slots)

    def _kept(self, part: _Part, stranding: bool = True) -> int:
        served, stranded, _ = part
        return served * MILLI * self._objective.usable_s - stranding * stranded * self._objective.stranded_s

    def _gangs(self, number: int, workers: int) -> int:
        """What so many workers of a standard gang in one domain are worth, whole gangs only."""
        gang = self._objective.standard_gangs[number]
        return workers // gang.workers * gang.workers * gang.gpus * MILLI * self._objective.room_s


def _stays(record: JobRecord, placement: Placement) -> Iterator[tuple[HostId, _Stay]]:
    name, asked = record.id, {}
    for role in record.job.roles:
        request = role.request
        beside = (request.cpu_milli, request.memory_mib, request.network_mbps)
        asked[role.name] = (beside, request.gpu_milli if request.fractional else 0)
    for worker in placement.workers:
        yield worker.host, (name, worker.gpus, *asked.get(worker.role, (_NONE, 0)))


@remembered
def free_room(snapshot: Snapshot, objective: ObjectivePolicy) -> FreeRoom:
    """The room of that snapshot as it is, shared by all who judge decisions of it."""
    return FreeRoom(snapshot, objective)
