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

_Stay = tuple[JobId, tuple[int, ...], Amounts]
"""One worker on a host: its job, its cards, and what it takes beside them."""

_Slot = tuple[int, str, str]
"""A standard gang by its number, a GPU type, and a domain of the gang's layer."""

_Part = tuple[int, tuple[tuple[_Slot, int], ...]]
"""Of one host: the free cards that it can serve, and the workers of standard gangs on them by where they count."""

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
        for _, slots in self._parts.values():
            for slot, workers in slots:
                self._slots[slot] += workers
        self._worth = sum(self._served(served) for served, _ in self._parts.values())
        self._worth += sum(self._gangs(slot[0], workers) for slot, workers in self._slots.items())

    def worth(self, placed: Iterable[tuple[JobRecord, Placement]], gone: Iterable[JobRecord]) -> int:
        """The worth once these have left and those are there [mGPU*s]."""
        left = {record.id for record in gone}
        fresh: defaultdict[HostId, list[_Stay]] = defaultdict(list)
        for record, placement in placed:
            for name, stay in _stays(record, placement):
                fresh[name].append(stay)
        worth = self._worth
        moved: Counter[_Slot] = Counter()
        for name in {*fresh, *(name for job in left for name in self._at.get(job, ()))} & self._hosts.keys():
            staying = [stay for stay in self._there.get(name, ()) if stay[0] not in left]
            (before, old), (after, new) = self._parts[name], self._part(self._hosts[name], [*staying, *fresh[name]])
            worth += self._served(after) - self._served(before)
            for slot, workers in old:
                moved[slot] -= workers
            for slot, workers in new:
                moved[slot] += workers
        for slot, workers in moved.items():
            whole = self._slots[slot]
            worth += self._gangs(slot[0], whole + workers) - self._gangs(slot[0], whole)
        return worth

    def _part(self, host: Host, there: Sequence[_Stay]) -> _Part:
        used = {index for _, gpus, _ in there for index in gpus}
        free: dict[str, int] = {}
        for gpu in host.gpus:
            if gpu.healthy and gpu.index not in used:
                free[gpu.gpu_type] = free.get(gpu.gpu_type, 0) + 1
        if not free:
            return 0, ()
        cpu, memory, network = host.cpu_milli, host.memory_mib, host.network_mbps
        for _, _, amounts in there:
            cpu, memory, network = cpu - amounts[0], memory - amounts[1], network - amounts[2]
        served = self._asked.served(sum(free.values()), (cpu, memory, network))
        slots = []
        for number, gang in enumerate(self._objective.standard_gangs):
            for gpu_type, cards in free.items():
                workers = min(cards, served) // gang.gpus
                if workers:
                    slots.append(((number, gpu_type, host.path.domain(gang.layer, host.id)), workers))
        return served, tuple(slots)

    def _served(self, cards: int) -> int:
        return cards * MILLI * self._objective.usable_s

    def _gangs(self, number: int, workers: int) -> int:
        """What so many workers of a standard gang in one domain are worth, whole gangs only."""
        gang = self._objective.standard_gangs[number]
        return workers // gang.workers * gang.workers * gang.gpus * MILLI * self._objective.room_s


def _stays(record: JobRecord, placement: Placement) -> Iterator[tuple[HostId, _Stay]]:
    name, asked = record.id, {}
    for role in record.job.roles:
        request = role.request
        asked[role.name] = (request.cpu_milli, request.memory_mib, request.network_mbps)
    for worker in placement.workers:
        yield worker.host, (name, worker.gpus, asked.get(worker.role, _NONE))


@remembered
def free_room(snapshot: Snapshot, objective: ObjectivePolicy) -> FreeRoom:
    """The room of that snapshot as it is, shared by all who judge decisions of it."""
    return FreeRoom(snapshot, objective)
