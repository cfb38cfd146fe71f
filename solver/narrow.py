"""What a plan at hand leaves possible: the victims that are not too dear, and the planned starts that are not too late.

Goals are sought in their order, and none ends below the plan's value while those before it end equal to it. Where these
are proven, whoever costs more than all of the plan's victims of his level stays; and a gang planned so late that the
others cannot make up for it is planned too late. So a large round is solved without them, with the same outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..model.ids import JobId
from .access import Reach
from .classes import Gang, Instance, WorkerClass
from .goals import GoalValue, victim_cost
from .later import Plans, up_to
from .order import value_milli
from .places import Places
from .slots import Slot, slots_on


def narrowed(
    instance: Instance, plans: Plans, values: Sequence[GoalValue], limits: Sequence[int], ideal: Sequence[int]
) -> tuple[Instance, Plans]:
    """The same round without what no decision does that is as good as the plan with these values.

    `limits`: what no decision can exceed, one a goal, while the goals before it have the plan's values; `ideal`: the
    same from what each gang could have alone. Where a goal before a level's `plan` comes to exceed the plan's value,
    that one may fall short of what it could be; every other goal is as it was.
    """
    staying = _too_dear(instance, values, limits)
    return _without(instance, staying), up_to(instance, plans, _latest(instance, plans, values, ideal), staying)


def _too_dear(instance: Instance, values: Sequence[GoalValue], limits: Sequence[int]) -> frozenset[JobId]:
    """The possible victims who cost more than the plan loses at their level; of those who may return smaller none."""
    returning = {gang.record.id for gang in instance.returns}
    found: set[JobId] = set()
    for value, limit in zip(values, limits, strict=True):
        if value.name.startswith("spare["):
            found.update(
                victim.id
                for victim in instance.victims
                if f"spare[{victim.level}]" == value.name
                and victim.id not in returning
                and victim_cost(victim, instance.snapshot, instance.policy) > -value.value
            )
        if value.value < limit:
            # Where this one comes to be better, those behind it may be worse than the plan's.
            break
    return frozenset(found)


def _latest(instance: Instance, plans: Plans, values: Sequence[GoalValue], ideal: Sequence[int]) -> dict[JobId, int]:
    """For each gang that may be planned the latest start with which its level's `plan` is no less than the plan's [s].

    If all others start when each could alone, it makes up for what the plan lacks. A promise may always be kept.
    """
    short = {value.name: most - value.value for value, most in zip(values, ideal, strict=True)}
    starting = {gang.record.id for gang in instance.gangs}
    found = {}
    for gang in plans.gangs:
        first_s = instance.snapshot.now_s if gang.record.id in starting else gang.starts[0]
        at_s = first_s + short[f"plan[{gang.record.level}]"] // value_milli(gang.record, instance.policy)
        found[gang.record.id] = at_s if gang.promise is None else max(at_s, gang.promise.start_s)
    return found


def _without(instance: Instance, staying: frozenset[JobId]) -> Instance:
    """The instance in which these stay; gangs left without enough slots cannot start."""
    if not staying:
        return instance
    known: dict[Reach, Reach] = {}
    # Equal reaches become one object: large sets that are not take long to compare.
    same: dict[Reach, Reach] = {}

    def less(reach: Reach) -> Reach:
        if reach not in known:
            left = reach if reach.isdisjoint(staying) else reach - staying
            known[reach] = same.setdefault(left, left)
        return known[reach]

    places, still = Places(instance.hosts.values()), _Still(instance, staying)
    gangs = []
    for gang in instance.gangs:
        reach, widest, required = less(gang.reach), less(gang.widest_reach), gang.confinement.required
        if widest is gang.widest_reach:
            gangs.append(gang if reach is gang.reach else replace(gang, reach=reach))
            continue
        workers = tuple(
            replace(each, slots=instance.domains.confined(still(gang, each, widest, places), each.role, required))
            for each in gang.workers
        )
        if all(each.enough for each in workers):
            gangs.append(replace(gang, workers=workers, reach=reach, widest_reach=widest))
    return replace(instance, gangs=tuple(gangs), staying=staying)


class _Still:
    """The slots that are left where some stay; equal classes have equal slots."""

    def __init__(self, instance: Instance, staying: frozenset[JobId]) -> None:
        self._hosts = instance.hosts
        self._touched = {host.id for host in instance.hosts.values() if any(part.way in staying for part in host.freed)}
        self._known: dict[object, tuple[tuple[Slot, ...], tuple[Slot, ...]]] = {}

    def __call__(self, gang: Gang, workers: WorkerClass, reach: Reach, places: Places) -> tuple[Slot, ...]:
        """What is left of the slots of that class if its gang reaches these only."""
        role, team = workers.role, gang.record.job.team
        key = (id(workers.slots), reach, role.request, role.count, role.gpu_types, team)
        if key not in self._known:
            had = {slot.host for slot in workers.slots if slot.host in self._touched}
            sites = frozenset(self._hosts[host].host.path.site for host in had)
            among = (host for host in places.among(role, reach) if host.id in had)
            again = {(slot.host, slot.kind): slot for slot in slots_on(among, team, role, sites, reach)}
            left = (again.get((slot.host, slot.kind)) if slot.host in self._touched else slot for slot in workers.slots)
            # With the slots themselves, for whose number no other ones may come to stand.
            self._known[key] = workers.slots, tuple(slot for slot in left if slot is not None)
        return self._known[key][1]
