"""Reservation: named gangs are planned on what hosts come to have; what starts now leaves that, or is over in time.

Time is where a row is stated: for a plan of level a and time t, the reservations on a host planned by then, the starts
not surely over by then and the work not clear of level a's way by then fit. What is there only shrinks with time, so a
row may be stated at every candidate start of that level; of those between which nothing leaves the last one is enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from ortools.sat.python.cp_model import CpModel, IntVar, LinearExpr, LinearExprT

from ...model.ids import JobId
from ..classes import Instance
from ..held import HostClass
from ..later import RESOURCES, LaterGang, Stay
from ..variables import Coming, Later, Variables
from . import in_the_way, reservation_limits
from .reservation_cards import add_cards


def add(model: CpModel, instance: Instance, variables: Variables) -> None:
    """Adds nothing where nobody is named."""
    plans = variables.plans
    if not plans.gangs:
        return
    _choices(model, instance, variables)
    due = Due(model, variables)
    for host in instance.hosts.values():
        if variables.later(host.id):
            for number in range(len(RESOURCES)):
                _host_rows(model, host, number, variables, due)
            add_cards(model, host, variables, due)
    reservation_limits.add(model, instance, variables)
    in_the_way.add(model, instance, variables)


def _choices(model: CpModel, instance: Instance, variables: Variables) -> None:
    """planned = sum of planned_at;  planned + started <= 1;  nobody where a maintenance window would come.   [gangs]"""
    now: dict[JobId, list[IntVar]] = defaultdict(list)
    for start in instance.gangs:
        now[start.record.id].append(variables.started(start))
    for gang in variables.plans.gangs:
        at = variables.planned_at(gang)
        planned = variables.started(gang)
        model.add(sum(at) == planned)
        if gang.record.id in now:
            model.add_at_most_one([planned, *now[gang.record.id]])
        for workers in gang.workers:
            for slot in workers.slots:
                barred = gang.barred.get(slot.host, ())
                if barred:
                    count = variables.workers_at(workers, slot)
                    model.add(count <= slot.most - slot.most * sum(at[i] for i in barred))


class Due:
    """Workers planned in a place by some time: its count if the gang's planned start is not later, else 0."""

    def __init__(self, model: CpModel, variables: Variables) -> None:
        self._model, self._variables = model, variables
        self._known: dict[tuple[int, int], IntVar] = {}

    def __call__(self, later: Later, start_s: int, *, alone: bool = False) -> LinearExprT | None:
        """The expression; None where it is 0. `alone`: it may be below 0 as well, where only this gang comes."""
        at = self._variables.planned_at(later.gang)
        behind = [at[i] for i, planned_s in enumerate(later.gang.starts) if planned_s > start_s]
        if not behind:
            return later.count
        if len(behind) == len(at):
            return None
        bound = later.count - later.slot.most * sum(behind)
        if alone:
            return bound
        key = (later.count.index, len(behind))
        if key not in self._known:
            due = self._model.new_int_var(0, later.slot.most, f"due[{later.count.name},{start_s}]")
            self._model.add(due >= bound)
            self._known[key] = due
        return self._known[key]


def rows(times: Sequence[int], stays: Callable[[int], Sequence[object]], over: Sequence[int]) -> list[int]:
    """Of rising times those whose rows are not implied by a later one: the last before anything more leaves."""
    found: list[int] = []
    last = None
    for time in sorted(set(times), reverse=True):
        there = (len(stays(time)), sum(over_s > time for over_s in over))
        if there != last:
            found.append(time)
        last = there
    return found[::-1]


def _host_rows(model: CpModel, host: HostClass, number: int, variables: Variables, due: Due) -> None:
    """planned by t + starts not over by t + running work not clear by t <= the host's, for milli-cores, MiB, Mbit/s."""
    resource, plans = RESOURCES[number], variables.plans
    asking = [part for part in variables.later(host.id) if getattr(part.role.request, resource)]
    coming = [part for part in variables.on_host(host.id) if getattr(part.role.request, resource)]
    if not asking or _cards_suffice(host, number, asking, coming, variables):
        return
    for level in sorted({part.gang.record.level for part in asking}):
        # Plans of higher levels stand in rows of their own: they find more room, and may come between.
        upto = [part for part in asking if part.gang.record.level <= level]
        peer = next(part.gang for part in upto if part.gang.record.level == level)

        def stays(start_s: int, peer: LaterGang = peer) -> list[Stay]:
            return [stay for stay in plans.staying(host.id, peer, start_s) if stay.amounts[number]]

        times = [start_s for part in upto for start_s in part.gang.starts]
        alone = len({part.gang.id for part in upto}) == 1 and getattr(host, resource) >= 0
        for start_s in rows(times, stays, [plans.over[part.gang.record.id] for part in coming]):
            use = [(getattr(p.role.request, resource), due(p, start_s, alone=alone)) for p in upto]
            load = _load(stays(start_s), number, resource, _lingering(coming, start_s, variables), variables)
            _row(model, [(a, d) for a, d in use if d is not None], load, getattr(host.host, resource), host, resource)
        if len(upto) < len(asking):
            _below_higher(model, host, number, level, asking, coming, variables, due)


def _cards_suffice(
    host: HostClass, number: int, asking: Sequence[Later], coming: Sequence[Coming], variables: Variables
) -> bool:
    """Whether the host has enough of the resource for whatever its cards allow, so that it needs no rows."""
    resource, most = RESOURCES[number], 0
    for request in {part.role.request for part in asking} | {part.role.request for part in coming}:
        if not request.whole_gpus:
            return False
        most = max(most, -(-getattr(request, resource) // request.whole_gpus))
    stays = variables.plans.stays.get(host.id, ())
    held = {index for stay in stays for index in stay.cards}
    free = sum(gpu.healthy and gpu.index not in held for gpu in host.host.gpus)
    if len({part.gang.record.level for part in asking}) > 1:
        # A plan of a higher level may be on cards of work that a lower one still counts.
        there = sum(stay.amounts[number] + most * len(stay.cards) for stay in stays)
    else:
        there = sum(max(stay.amounts[number], most * len(stay.cards)) for stay in stays)
    capacity: int = getattr(host.host, resource)
    return there + most * free <= capacity


def _lingering(coming: Sequence[Coming], start_s: int, variables: Variables) -> list[Coming]:
    return [part for part in coming if variables.plans.over[part.gang.record.id] > start_s]


def _load(
    stays: Sequence[Stay], number: int, resource: str, lingering: Sequence[Coming], variables: Variables
) -> LinearExprT:
    """What is still there: the stays less those that leave now, and the starts and returns that are not over."""
    kept = sum(stay.amounts[number] for stay in stays)
    gone = [stay.amounts[number] * variables.gone(stay.record.id) for stay in stays if stay.may_leave]
    return kept - sum(gone) + sum(getattr(part.role.request, resource) * part.count for part in lingering)


def _row(
    model: CpModel,
    use: Sequence[tuple[int, LinearExprT]],
    load: LinearExprT,
    capacity: int,
    host: HostClass,
    resource: str,
) -> None:
    """use + load <= capacity; where running work exceeds the host now, only if anything is planned by then at all."""
    if not use:
        return
    row = model.add(LinearExpr.sum([amount * count for amount, count in use]) + load <= capacity)
    if getattr(host, resource) < 0:
        comes = model.new_bool_var("")
        row.only_enforce_if(comes)
        for _, count in use:
            model.add(count <= 0).only_enforce_if(~comes)


def _below_higher(
    model: CpModel,
    host: HostClass,
    number: int,
    level: int,
    asking: Sequence[Later],
    coming: Sequence[Coming],
    variables: Variables,
    due: Due,
) -> None:
    """At each planned start of the level, with the plans of higher levels that come not later."""
    resource, plans = RESOURCES[number], variables.plans
    for gang in {part.gang.id: part.gang for part in asking if part.gang.record.level == level}.values():
        mine = [part for part in asking if part.gang.id == gang.id]
        uses = model.new_bool_var(f"uses[{gang.id},{host.id},{resource}]")
        for part in mine:
            model.add(part.count <= part.slot.most * uses)
        for start_s, chosen in zip(gang.starts, variables.planned_at(gang), strict=True):
            parts = [(getattr(p.role.request, resource), due(p, start_s)) for p in asking]
            use = [amount * count for amount, count in parts if count is not None]
            stays = [stay for stay in plans.staying(host.id, gang, start_s) if stay.amounts[number]]
            load = _load(stays, number, resource, _lingering(coming, start_s, variables), variables)
            row = model.add(LinearExpr.sum(use) + load <= getattr(host.host, resource))
            row.only_enforce_if([chosen, uses])
