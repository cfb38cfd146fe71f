"""Reservation: limits, and what reserved pools leave to level 1, hold at planned starts as well.

As on hosts, a plan counts beside the reservations planned by then, the starts not surely over by then and the work not
clear of its way by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ortools.sat.python.cp_model import CpModel, LinearExpr, LinearExprT

from ...model.host import MILLI
from ...model.snapshot import JobRecord
from ..classes import Instance, WorkerClass
from ..demand import placeable
from ..later import LaterGang
from ..lineage import Lineage
from ..slots import Slot
from ..variables import Variables
from .quota import held_by_type
from .reserved import LEVEL, on_cards


@dataclass(frozen=True, slots=True)
class _Cap:
    """A limit or a pool: it allows `most` milli-GPU of what `counts`; `held`: what of it running work holds."""

    name: str
    most: int
    held: list[tuple[JobRecord, int]]
    counts: Callable[[JobRecord, Slot], bool]

    def milli(self, record: JobRecord, classes: Iterable[WorkerClass], variables: Variables) -> LinearExprT | None:
        """What the gang may come to hold of it; None where that is nothing."""
        parts = [
            workers.role.request.gpu_milli * variables.workers_at(workers, slot)
            for workers in classes
            for slot in workers.slots
            if self.counts(record, slot)
        ]
        return LinearExpr.sum(parts) if parts else None


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """For each limit and pool, and each candidate start t of a plan that needs some of it: if it is planned then,

    milli-GPU of plans by t + starts not over by t + running work not clear by t  <=  what is allowed.
    """
    for cap in (*_limits(instance), *_pools(instance)):
        planned = {gang.id: cap.milli(gang.record, gang.workers, variables) for gang in variables.plans.gangs}
        needing = [gang for gang in variables.plans.gangs if planned[gang.id] is not None]
        rows = _Rows(model, instance, variables, cap, [(gang, planned[gang.id]) for gang in needing])
        for gang in needing:
            rows.add(gang)


class _Rows:
    """The rows of one limit or pool."""

    def __init__(
        self,
        model: CpModel,
        instance: Instance,
        variables: Variables,
        cap: _Cap,
        planned: list[tuple[LaterGang, LinearExprT | None]],
    ) -> None:
        self._model, self._instance, self._variables, self._cap = model, instance, variables, cap
        self._planned = planned
        coming = ((gang, cap.milli(gang.record, gang.workers, variables)) for gang in instance.coming)
        self._coming = [(gang, milli) for gang, milli in coming if milli is not None]

    def add(self, gang: LaterGang) -> None:
        """The rows of that gang's candidate starts."""
        model, variables = self._model, self._variables
        own = next(milli for other, milli in self._planned if other is gang)
        uses = model.new_bool_var(f"uses[{gang.id},{self._cap.name}]")
        model.add(own <= gang.record.job.gpu_milli * uses)
        for start_s, chosen in zip(gang.starts, variables.planned_at(gang), strict=True):
            due = [self._due(other, milli, start_s, own=other is gang) for other, milli in self._planned]
            over = variables.plans.over
            lingering = [milli for other, milli in self._coming if over[other.record.id] > start_s]
            load = LinearExpr.sum([*(part for part in due if part is not None), *lingering])
            row = model.add(load + self._staying(gang, start_s) <= self._cap.most)
            row.only_enforce_if([chosen, uses])

    def _due(self, gang: LaterGang, milli: LinearExprT | None, start_s: int, *, own: bool) -> LinearExprT | None:
        """What the gang holds if it is planned by then, else 0; None where it never is."""
        at = self._variables.planned_at(gang)
        behind = [at[i] for i, planned_s in enumerate(gang.starts) if planned_s > start_s]
        if own or not behind or milli is None:
            return milli
        if len(behind) == len(at):
            return None
        most = gang.record.job.gpu_milli
        due = self._model.new_int_var(0, most, f"due[{gang.id},{self._cap.name},{start_s}]")
        self._model.add(due >= milli - most * sum(behind))
        return due

    def _staying(self, gang: LaterGang, start_s: int) -> LinearExprT:
        """What running work still holds then, less what leaves now."""
        clear, ways = self._variables.plans.clear, self._instance.ways
        kept, gone = 0, list[LinearExprT]()
        for record, milli in self._cap.held:
            if clear is not None and clear(record, gang.record) > start_s:
                kept += milli
                if record.id in ways:
                    gone.append(milli * self._variables.gone(record.id))
        return kept - LinearExpr.sum(gone) if gone else kept


def _limits(instance: Instance) -> Iterator[_Cap]:
    snapshot, above = instance.snapshot, Lineage(instance.snapshot)
    limits = [(team.id, quota) for team in snapshot.teams for quota in team.limit or ()]
    types = {(host.id, gpu.index): gpu.gpu_type for host in snapshot.hosts for gpu in host.gpus} if limits else {}
    held = [(record, held_by_type(record, types)) for record in snapshot.jobs if limits and record.placement]
    for team, quota in limits:
        name = quota.gpu_type

        def counts(record: JobRecord, slot: Slot, name: str = name, team: str = team) -> bool:
            return slot.kind is not None and slot.kind.gpu_type == name and team in above(record.job.team)

        inside = [(record, by_type[name]) for record, by_type in held if by_type.get(name)]
        mine = [(record, milli) for record, milli in inside if team in above(record.job.team)]
        yield _Cap(f"{team},{name}", quota.gpu_milli, mine, counts)


def _pools(instance: Instance) -> Iterator[_Cap]:
    for pool in instance.policy.reserved:
        hosts = {h.id: h for h in instance.snapshot.hosts if placeable(h) and h.path.site == pool.site}
        cards = {
            (host.id, gpu.index)
            for host in hosts.values()
            for gpu in host.gpus
            if gpu.gpu_type == pool.gpu_type and gpu.healthy
        }
        name = pool.gpu_type

        def counts(record: JobRecord, slot: Slot, name: str = name, there: Iterable[str] = frozenset(hosts)) -> bool:
            return record.level == LEVEL and slot.kind is not None and slot.kind.gpu_type == name and slot.host in there

        level = [(record, on_cards(record, cards)) for record in instance.snapshot.jobs if record.level == LEVEL]
        held = [(record, milli) for record, milli in level if milli]
        yield _Cap(f"{pool.site},{name}", MILLI * len(cards) - pool.gpu_milli, held, counts)
