"""The greedy with preemption: what does not fit may start where running work of lower levels leaves for it."""

from __future__ import annotations

from ..model.decision import Start
from ..model.ids import JobId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .claims import Claims
from .demand import candidates, victims
from .drains import named
from .evict_search import Search
from .goals import values
from .greedy import Rank, greedy, in_order, rate, worth
from .greedy_drains import Known, drained_plan, planned_around, standing_plan
from .guard import UNLIMITED, Guard
from .order import Order, order
from .plan import Plan, assemble
from .reprieve import reprieve
from .reserve import Step, keeping
from .shrink import shrunk
from .sizes import ways
from .verify_reservation import reservation

_BOTH_ORDERS = 50_000
"""Candidates x hosts up to which both orders of the greedy are tried with preemption."""


def greedy_plan(snapshot: Snapshot, policy: Policy, guard: Guard = UNLIMITED) -> Plan:
    """A plan that keeps every rule and is never worse, by the goals in order, than `greedy` alone.

    Level by level from the top, inside starts first; a gang for which there is no room takes that of the running jobs
    that it may evict at the least cost, as far as a bounded search finds; elastic victims shrink where that is enough.
    When the guard's time is over the best plan so far is returned.
    That inside work of level 1 gives way to level 2 of its own guarantee, and moves, are left to the exact stage.
    """
    guard = keeping(guard, Step.PLAN)
    if named(snapshot, policy):
        return _around_plans(snapshot, policy, guard)
    plain = assemble(snapshot, policy, greedy(snapshot, policy, guard), ())
    waiting, possible = candidates(snapshot), victims(snapshot, policy)
    if not possible or guard.remaining_s() <= 0:
        return plain
    numbers = order(snapshot, policy)
    ranks = (rate,) if len(waiting) * len(snapshot.hosts) > _BOTH_ORDERS else (worth, rate)
    plans = [plain, *(_plan(snapshot, policy, waiting, possible, numbers, rank, guard) for rank in ranks)]
    return shrunk(snapshot, policy, max(plans, key=lambda plan: _attained(snapshot, policy, plan)), guard)


def _around_plans(snapshot: Snapshot, policy: Policy, guard: Guard) -> Plan:
    """As `greedy_plan`, where hosts may be reserved."""
    if guard.remaining_s() <= 0:
        return standing_plan(snapshot, policy)
    possible, numbers = victims(snapshot, policy), order(snapshot, policy)
    large = len(candidates(snapshot)) * len(snapshot.hosts) > _BOTH_ORDERS
    known: Known = {}
    plans = [standing_plan(snapshot, policy), planned_around(snapshot, policy, greedy(snapshot, policy, guard), known)]
    for rank in (rate,) if large else (worth, rate):
        if guard.remaining_s() <= 0:
            break
        plan, evicts = drained_plan(snapshot, policy, possible, numbers, rank, known, guard)
        # A search that had nobody leave found what it would have found if nobody could.
        if evicts and not large:
            plans.append(drained_plan(snapshot, policy, (), numbers, rank, known, guard)[0])
        plans.append(plan)
    best = max(
        (plan for plan in plans if plan is plans[0] or _keeps_promises(snapshot, policy, plan)),
        key=lambda plan: _attained(snapshot, policy, plan),
    )
    return shrunk(snapshot, policy, best, guard)


def _keeps_promises(snapshot: Snapshot, policy: Policy, plan: Plan) -> bool:
    """A search that found a worse plan than there is for a promise is not to be followed."""
    faults = reservation(snapshot, policy, plan.starts, plan.preemptions, plan.reservations)
    return not any(True for _ in faults)


def _attained(snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[int, ...]:
    return tuple(goal.value for goal in values(snapshot, policy, plan.starts, plan.preemptions, plan.reservations))


def _plan(
    snapshot: Snapshot,
    policy: Policy,
    waiting: tuple[JobRecord, ...],
    possible: tuple[JobRecord, ...],
    numbers: Order,
    rank: Rank,
    guard: Guard,
) -> Plan:
    search, claims = Search(snapshot, policy, waiting, possible), Claims(snapshot)

    def place(record: JobRecord, inside: bool) -> Placement | None:
        search.real.placer.pressure.leaves(record)
        sized = ((way, claims.covers(way.job) if inside else None) for way in ways(record))
        return next((there for way, only in sized if (there := search.place(way, only)) is not None), None)

    starts: tuple[Start, ...] = in_order(waiting, numbers, rank, place, claims, search.begin, guard=guard)
    chosen: list[JobId] = [record.id for record in search.chosen]
    return reprieve(snapshot, policy, starts, chosen)
