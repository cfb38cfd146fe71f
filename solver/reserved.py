"""What plans withhold from starts that would not be over in time: amounts of their hosts, and their cards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..model.ids import HostId, JobId, TeamId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import surely_over_s
from .drains import Clear
from .remember import remembered
from .verify_allowed import Key, allowances
from .verify_planned import Planned
from .withheld import Hold

NOBODY = TeamId("(reserved)")
"""Holds reserved cards, so that no gang finds them free or shares them."""

Amounts = list[int]

_Work = tuple[tuple[JobRecord, Amounts], ...]
"""The jobs on one host, with what each takes there."""


class Reserved:
    """The plans of a round under construction, and what they withhold of hosts as things are.

    A plan needs its amounts beside what is still there at its start; what is over by then may use them until then.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot, self._policy = snapshot, policy
        self._clear = Clear(snapshot, policy)
        self.plans: list[Planned] = []
        self._held: dict[tuple[JobId, ...], dict[HostId, Hold]] = {}
        self._work = dict(_running(snapshot))
        self._coming: set[JobId] = set()
        self._over: dict[JobId, int] = {}
        self._allowed = allowances(snapshot, policy)
        self._counted = {record.id: (record, held) for record, held in self._allowed.running}

    def add(self, plan: Planned) -> None:
        """From now on the plan stands."""
        self.plans.append(plan)
        self._held.clear()

    def drop(self, job: JobId) -> Planned | None:
        """The plan of that job stands no longer; returns it."""
        found = next((plan for plan in self.plans if plan.record.id == job), None)
        self.plans = [plan for plan in self.plans if plan is not found]
        self._held.clear()
        return found

    def starts(self, record: JobRecord, placement: Placement) -> None:
        """A gang starts there in this round."""
        self._coming.add(record.id)
        self._over[record.id] = surely_over_s(record, self._snapshot, self._policy)
        self._counted[record.id] = record, self._allowed.held(record, placement)
        self._enter(record, placement)

    def leaves(self, record: JobRecord) -> None:
        """A running job leaves in this round."""
        for name in record.placement.hosts if record.placement else ():
            self._work[name] = tuple(entry for entry in self._work.get(name, ()) if entry[0].id != record.id)
        self._counted.pop(record.id, None)
        self._held.clear()

    def holds(self, record: JobRecord, without: Collection[JobId] = ()) -> dict[HostId, Hold]:
        """What the gang may not use if it starts now, plans of the jobs `without` aside."""
        if not self.plans:
            return {}
        over_s = surely_over_s(record, self._snapshot, self._policy)
        heeded = [plan for plan in self.plans if plan.record.id not in without and plan.record.id != record.id]
        binding = tuple(plan.record.id for plan in heeded if plan.at_s < over_s)
        key = (*binding, JobId(""), *(plan.record.id for plan in heeded))
        if key not in self._held:
            self._held[key] = self._withheld([plan for plan in heeded if plan.at_s < over_s], heeded)
        return self._held[key]

    def limits(self, record: JobRecord, without: Collection[JobId] = ()) -> dict[Key, int]:
        """What plans need of limits and pools [milli-GPU], if the gang starts now, beyond what is left by then."""
        if not self.plans or not self._allowed.most:
            return {}
        over_s = surely_over_s(record, self._snapshot, self._policy)
        heeded = [plan for plan in self.plans if plan.record.id not in without and plan.record.id != record.id]
        asked = [(plan, self._allowed.held(plan.record, plan.placement)) for plan in heeded]
        need: dict[Key, int] = {}
        for plan, own in asked:
            for key in own if plan.at_s < over_s else ():
                planned = sum(held[key] for other, held in asked if other.at_s <= plan.at_s)
                freed = sum(held[key] for r, held in self._counted.values() if self._leaves_s(r, plan) <= plan.at_s)
                need[key] = max(need.get(key, 0), planned - freed)
        return need

    def _leaves_s(self, record: JobRecord, plan: Planned) -> int:
        """From when the job, running or started now, is not in the way of the plan."""
        return self._over[record.id] if record.id in self._coming else self._clear(record, plan.record)

    def _enter(self, record: JobRecord, placement: Placement) -> None:
        for name, amounts in _asked(record, placement).items():
            self._work[name] = (*self._work.get(name, ()), (record, amounts))
        self._held.clear()

    def _withheld(self, binding: Sequence[Planned], heeded: Sequence[Planned]) -> dict[HostId, Hold]:
        asked = {plan.record.id: _by_host(plan) for plan in heeded}
        kept: dict[HostId, Hold] = {}
        for plan in binding:
            for name, own in asked[plan.record.id].items():
                need = self._need(name, plan, asked, heeded)
                hold = kept.setdefault(name, Hold((0, 0, 0), {}))
                first, second, third = (
                    max(most, amount) if mine else most
                    for most, amount, mine in zip(hold.amounts, need, own, strict=True)
                )
                hold.amounts = (first, second, third)
            for worker in plan.placement.workers:
                for index in worker.gpus:
                    kept[worker.host].cards[index] = (NOBODY, 0, 0)
        return kept

    def _need(
        self, name: HostId, plan: Planned, asked: dict[JobId, dict[HostId, Amounts]], heeded: Iterable[Planned]
    ) -> Amounts:
        """What plans need on the host at that plan's start beyond what comes free by then."""
        need = [0, 0, 0]
        for other in heeded:
            if other.at_s <= plan.at_s:
                for number, amount in enumerate(asked[other.record.id].get(name, (0, 0, 0))):
                    need[number] += amount
        for record, amounts in self._work.get(name, ()):
            if self._leaves_s(record, plan) <= plan.at_s:
                for number, amount in enumerate(amounts):
                    need[number] -= amount
        return need


@remembered
def _running(snapshot: Snapshot) -> Mapping[HostId, _Work]:
    """What runs on each host, with what it takes there."""
    found: defaultdict[HostId, list[tuple[JobRecord, Amounts]]] = defaultdict(list)
    for record in snapshot.jobs:
        if record.placement is not None:
            for name, amounts in _asked(record, record.placement).items():
                found[name].append((record, amounts))
    return {name: tuple(work) for name, work in found.items()}


def _by_host(plan: Planned) -> dict[HostId, Amounts]:
    return _asked(plan.record, plan.placement)


def _asked(record: JobRecord, placement: Placement) -> dict[HostId, Amounts]:
    asked: dict[HostId, Amounts] = {}
    for worker in placement.workers:
        _add(asked.setdefault(worker.host, [0, 0, 0]), record, worker.role)
    return asked


def _add(amounts: Amounts, record: JobRecord, role_name: str) -> None:
    role = record.job.role(role_name)
    if role is not None:
        request = role.request
        for number, amount in enumerate((request.cpu_milli, request.memory_mib, request.network_mbps)):
            amounts[number] += amount
