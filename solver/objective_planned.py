"""The goals about promises and plans as integer terms: `keep`, `plan` and `calm` (docs/rounds.md)."""

from __future__ import annotations

from collections import defaultdict

from ortools.sat.python.cp_model import IntVar

from ..model.ids import HostId, JobId
from .later import LaterGang
from .order import value_milli
from .variables import Variables

Terms = list[tuple[int, IntVar]]


def keep_levels(variables: Variables) -> set[int]:
    """The levels with a `keep` goal."""
    return {promise.level for promise in variables.plans.promises}


def plan_levels(variables: Variables) -> set[int]:
    """The levels with a `plan` goal."""
    return {record.level for record in variables.plans.named}


def keep(level: int, variables: Variables) -> Terms:
    """milli-GPU of the promises of that level whose gang starts, or is planned not later than promised."""
    now, later = _by_job(variables)
    terms: Terms = []
    for promise in variables.plans.promises:
        if promise.level == level:
            milli = value_milli(promise.record, variables.instance.policy)
            terms.extend((milli, started) for started in now[promise.record.id])
            gang = later.get(promise.record.id)
            if gang is not None:
                at = zip(gang.starts, variables.planned_at(gang), strict=True)
                terms.extend((milli, chosen) for start_s, chosen in at if start_s <= promise.start_s)
    return terms


def plan(level: int, variables: Variables) -> Terms:
    """milli-GPU x the seconds of the horizon that are left when each named gang of that level starts or is to start."""
    now, later = _by_job(variables)
    horizon_s, now_s = variables.instance.policy.time.plan_horizon_s, variables.instance.snapshot.now_s
    terms: Terms = []
    for record in variables.plans.named:
        if record.level == level:
            milli = value_milli(record, variables.instance.policy)
            terms.extend((milli * horizon_s, started) for started in now[record.id])
            gang = later.get(record.id)
            if gang is not None:
                at = zip(gang.starts, variables.planned_at(gang), strict=True)
                left_s = {chosen: horizon_s - (start_s - now_s) for start_s, chosen in at}
                terms.extend((milli * seconds, chosen) for chosen, seconds in left_s.items() if seconds)
    return terms


def calm(variables: Variables) -> Terms:
    """- workers that a planned gang has on hosts beyond those that its earlier plan had there, by role."""
    terms: Terms = []
    for gang in variables.plans.gangs:
        if gang.promise is not None:
            terms.append((-gang.record.job.workers, variables.started(gang)))
            terms.extend((1, variable) for variable in _staying(gang, variables))
    return terms


def _staying(gang: LaterGang, variables: Variables) -> list[IntVar]:
    """For each role and host of the earlier plan a variable: workers that are planned there again, at most."""
    earlier: dict[tuple[str, HostId], int] = defaultdict(int)
    for worker in gang.promise.reservation.placement.workers if gang.promise else ():
        earlier[worker.role, worker.host] += 1
    found = []
    for workers in gang.workers:
        counts: dict[HostId, list[IntVar]] = defaultdict(list)
        for slot in workers.slots:
            counts[slot.host].append(variables.workers_at(workers, slot))
        for host, here in counts.items():
            most = earlier[workers.role.name, host]
            if most:
                stays = variables.model.new_int_var(0, most, f"stays[{gang.id},{workers.role.name},{host}]")
                variables.model.add(stays <= sum(here))
                found.append(stays)
    return found


def _by_job(variables: Variables) -> tuple[dict[JobId, list[IntVar]], dict[JobId, LaterGang]]:
    """By job: the variables of its start, one a size at which it may, and its plan, where it may have one."""
    now: dict[JobId, list[IntVar]] = defaultdict(list)
    for gang in variables.instance.gangs:
        now[gang.record.id].append(variables.started(gang))
    return now, {gang.record.id: gang for gang in variables.plans.gangs}
