"""Gangs that are alike in all but their data set trade places, so that together they load the fewest shards.

A post-assignment for decisions that were made without looking at caches, as the greedy's; the exact stage chooses
places and caches jointly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
from ortools.graph.python.linear_sum_assignment import SimpleLinearSumAssignment

from ..model.decision import Start
from ..model.host import Host
from ..model.ids import HostId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .demand import replacing
from .fetch import fetch_s
from .guard import UNLIMITED, Guard
from .plan import Plan, assemble
from .verify_planned import Planned


def exchange(snapshot: Snapshot, policy: Policy, plan: Plan, guard: Guard = UNLIMITED) -> Plan:
    """The plan with placements traded among alike gangs; every rule and every other goal stays as it was.

    When the guard's time is over it is returned as it is.
    """
    if guard.remaining_s() <= 0:
        return plan
    started = {start.job for start in plan.starts}
    records = {record.id: record for record in snapshot.jobs if record.id in started}
    if not any(record.job.dataset for record in records.values()):
        return plan
    groups: dict[Hashable, list[Start]] = defaultdict(list)
    for start in plan.starts:
        groups[_traits(records[start.job], start, snapshot.now_s)].append(start)
    hosts = {host.id: host for host in snapshot.hosts}
    traded: dict[str, Placement] = {}
    for starts in groups.values():
        gangs = [records[start.job] for start in starts]
        if len({record.job.dataset for record in gangs}) > 1:
            order = _assigned(_costs(gangs, [start.placement for start in starts], hosts, snapshot, policy))
            traded |= {record.id: starts[place].placement for record, place in zip(gangs, order, strict=True)}
    if not traded:
        return plan
    moved = [replace(start, placement=traded.get(start.job, start.placement)) for start in plan.starts]
    waiting = {record.id: record for record in snapshot.jobs if plan.reservations}
    plans = [Planned(waiting[r.job], r.placement, r.planned_start_s) for r in plan.reservations]
    return assemble(snapshot, policy, moved, [act.job for act in plan.preemptions], plans, plan.resizes)


def _traits(record: JobRecord, start: Start, now_s: int) -> Hashable:
    """All that rules and goals other than `fetch` see of a gang that starts."""
    job = record.job
    # When it is over, for maintenance windows and what is reserved.
    ends = (job.walltime_limit_s, job.preemptible, record.demoted, job.checkpoint and job.checkpoint.grace_s)
    where = (job.topology, job.cross_site, job.sites, job.off_premises, job.tier)
    # Spares, and the hosts that are held for it, are for this gang alone.
    own = record.id if replacing(record, now_s) else None
    size = len(start.placement.workers)
    return job.team, record.level, job.roles, size, where, job.anti_affinity, ends, start.inside_guarantee, own


def _costs(
    gangs: Sequence[JobRecord],
    placements: Sequence[Placement],
    hosts: dict[HostId, Host],
    snapshot: Snapshot,
    policy: Policy,
) -> np.ndarray:
    """What each gang loses to loading at each of the placements [mGPU*s], shape (gangs, placements)."""
    costs = np.zeros((len(gangs), len(placements)), dtype=np.int64)
    known: dict[Hashable, list[int]] = {}
    for row, record in enumerate(gangs):
        dataset = record.job.dataset
        if dataset not in known:
            milli = {role.name: role.request.gpu_milli or policy.order.cpu_worker_milli for role in record.job.roles}
            known[dataset] = [
                sum(milli[w.role] * fetch_s(hosts[w.host], dataset, snapshot, policy) for w in placement.workers)
                for placement in placements
            ]
        costs[row] = known[dataset]
    return costs


def _assigned(costs: np.ndarray) -> list[int]:
    """For each gang the number of its placement; together they cost least."""
    number = len(costs)
    solver = SimpleLinearSumAssignment()
    gang, place = (grid.ravel() for grid in np.indices(costs.shape))
    solver.add_arcs_with_cost(gang, place, costs.ravel())
    if solver.solve() != solver.OPTIMAL:
        raise AssertionError(f"{number} gangs and as many placements have no assignment")
    return [solver.right_mate(row) for row in range(number)]
