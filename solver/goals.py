"""The goals of a round, recomputed from the placements alone (docs/rounds.md); the encoder states them as terms."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..model.decision import GoalPart, Preemption, Resize, Start
from ..model.host import MILLI
from ..model.ids import HostId, JobId, TeamId
from ..model.job import Role
from ..model.placement import Placement, WorkerPlacement
from ..model.policy import ObjectivePolicy, Policy
from ..model.reservation import Reservation
from ..model.snapshot import JobRecord, Snapshot
from ..model.topology import Layer
from .acts import Acts, Placed, acts_of, where
from .appetite import appetite
from .confinements import confinements
from .demand import candidates, loss, victims
from .fetch import fetch_s
from .free_room import free_room
from .goals_planned import PlannedGoals, planned_goals
from .order import Order, order, value_milli
from .remember import remembered
from .returning import return_loss, returners
from .rights import rights_of
from .sizes import settled

GPUS = "mGPU"
GPU_TIME = "mGPU*s"
PLACES = "places"


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalValue:
    """What a set of starts attains of one goal; more is better. `parts` add up to the value, where it is a sum."""

    name: str
    unit: str
    value: int
    parts: tuple[GoalPart, ...] = ()


def values(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    preemptions: Sequence[Preemption] = (),
    reservations: Sequence[Reservation] = (),
    resizes: Sequence[Resize] = (),
) -> tuple[GoalValue, ...]:
    """The goals in their order: those of each level from the top down, then `economy`, `calm` and `order`.

    `keep[l]` and `calm` are listed where there are promises, `plan[l]` where hosts may be reserved, `guarantee[l]`
    where one waits that could start inside or one inside may be preempted, `spare[l]` where a job of the level may be
    preempted, `start[l]` where one waits. Without candidates there is only `economy`, and only where jobs may be moved.
    Starts of jobs that are no candidates, preemptions of jobs that may not be preempted, returns that are not named and
    plans for jobs that are not named count for nothing, and of several starts or plans of one job the first counts.
    """
    snapshot = settled(snapshot)
    waiting = {record.id: record for record in candidates(snapshot)}
    if not waiting:
        moves = bool(returners(snapshot, policy).movers)
        return (economy(snapshot, policy, starts, (), resizes),) if moves else ()
    acts = acts_of(snapshot, policy, starts, {act.job for act in preemptions}, resizes)
    possible = victims(snapshot, policy)
    numbers = order(snapshot, policy)
    places = sum(len(waiting) - numbers.place[record.id] for record, _ in acts.placed)
    costs = dict.fromkeys((record.level for record in possible), 0)
    for record in acts.leaving:
        costs[record.level] += victim_cost(record, snapshot, policy)
    for shrink in acts.shrinking:
        costs[shrink.record.level] += shrink_cost(shrink.record, shrink.after, snapshot, policy)
    claimed = _inside(snapshot, policy, acts)
    starting = _started(policy, numbers, acts.placed, {record.level for record in waiting.values()})
    planned = planned_goals(snapshot, policy, [record for record, _ in acts.placed], reservations)
    calm = () if planned.calm is None else (GoalValue(name="calm", unit="workers", value=planned.calm),)
    return (
        *_by_level(planned, claimed, costs, starting),
        _economy(snapshot, policy, acts),
        *calm,
        GoalValue(name="order", unit=PLACES, value=places),
    )


def economy(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start],
    stopped: Collection[JobId] = (),
    resizes: Sequence[Resize] = (),
) -> GoalValue:
    """The goal `economy` alone, of these starts, victims and returns."""
    snapshot = settled(snapshot)
    return _economy(snapshot, policy, acts_of(snapshot, policy, starts, stopped, resizes))


def _economy(snapshot: Snapshot, policy: Policy, acts: Acts) -> GoalValue:
    placed, back = acts.placed, [*acts.shrinking, *acts.moving]
    returned: list[Placed] = [(one.after, one.act) for one in back]
    before = [(one.record, one.record.placement) for one in back if one.record.placement is not None]
    speed = -_slowness(snapshot, placed, policy) - _spread(snapshot, where((*placed, *returned)), policy)
    gone = [*acts.leaving, *(one.record for one in back)]
    parts = [
        GoalPart(name="speed", value=speed + _spread(snapshot, before, policy)),
        GoalPart(name="scarce", value=-_scarcity(snapshot, placed, policy.objective)),
        GoalPart(name="room", value=free_room(snapshot, policy.objective).worth(where((*placed, *returned)), gone)),
        GoalPart(name="fetch", value=-_fetching(snapshot, (*placed, *returned), policy)),
    ]
    if returners(snapshot, policy).movers:
        lost = sum(return_loss(one.record, snapshot, policy) for one in acts.moving)
        parts.append(GoalPart(name="moves", value=-lost))
    return GoalValue(name="economy", unit=GPU_TIME, value=sum(part.value for part in parts), parts=tuple(parts))


def shrink_cost(record: JobRecord, after: JobRecord, snapshot: Snapshot, policy: Policy) -> int:
    """What `spare[its level]` loses when the job returns smaller [mGPU*s]: the GPUs given up, and the loss."""
    given_up = value_milli(record, policy) - value_milli(after, policy)
    return policy.objective.horizon_s * given_up + return_loss(record, snapshot, policy)


def victim_cost(record: JobRecord, snapshot: Snapshot, policy: Policy) -> int:
    """What `spare[its level]` loses when the job is preempted [mGPU*s]: its GPUs over the horizon, and the loss."""
    milli = value_milli(record, policy)
    return policy.objective.horizon_s * milli + loss(record, milli, snapshot.now_s, policy)


def _by_level(
    planned: PlannedGoals, claimed: Mapping[int, int], costs: Mapping[int, int], starting: Mapping[int, int]
) -> Iterator[GoalValue]:
    """By level: promises, starts inside guarantees, what its victims cost, how early the starving start, its starts."""
    for level in sorted({*planned.keep, *planned.plan, *claimed, *starting, *costs}, reverse=True):
        if level in planned.keep:
            yield GoalValue(name=f"keep[{level}]", unit="mGPU", value=planned.keep[level])
        if level in claimed:
            yield GoalValue(name=f"guarantee[{level}]", unit=GPUS, value=claimed[level])
        if level in costs:
            yield GoalValue(name=f"spare[{level}]", unit=GPU_TIME, value=-costs[level])
        if level in planned.plan:
            yield GoalValue(name=f"plan[{level}]", unit=GPU_TIME, value=planned.plan[level])
        if level in starting:
            yield GoalValue(name=f"start[{level}]", unit=GPU_TIME, value=starting[level])


@remembered
def _claimable(snapshot: Snapshot, policy: Policy) -> frozenset[int]:
    """The levels of which a candidate could start inside a guarantee, or one inside may be preempted."""
    rights = rights_of(snapshot)
    able = (record.level for record in candidates(snapshot) if rights.can_be_inside(record))
    return frozenset((*able, *(record.level for record in victims(snapshot, policy) if record.id in rights.inside)))


def _inside(snapshot: Snapshot, policy: Policy, acts: Acts) -> dict[int, int]:
    """By level: milli-GPU that start inside a guarantee, less those that jobs inside give up."""
    rights = rights_of(snapshot)
    claimed = dict.fromkeys(_claimable(snapshot, policy), 0)
    for record, start in acts.placed:
        if isinstance(start, Start) and start.inside_guarantee and record.level in claimed:
            claimed[record.level] += record.job.gpu_milli
    for record in acts.leaving:
        if record.id in rights.inside:
            claimed[record.level] -= record.job.gpu_milli
    for one in acts.shrinking:
        if one.record.id in rights.inside:
            claimed[one.record.level] -= one.record.job.gpu_milli - one.after.job.gpu_milli
    return claimed


def _started(policy: Policy, numbers: Order, placed: Iterable[Placed], levels: Iterable[int]) -> dict[int, int]:
    """By level: weighted milli-GPU, and each team's credit for all it starts at this level and above [mGPU*s]."""
    weighted: Counter[int] = Counter()
    by_team: dict[TeamId, Counter[int]] = defaultdict(Counter)
    for record, _ in placed:
        milli = value_milli(record, policy)
        weighted[record.level] += milli * numbers.weight[record.id]
        by_team[record.job.team][record.level] += milli
    values = {}
    for level in levels:
        credit = sum(
            numbers.curve[team].credit(sum(milli for at, milli in started.items() if at >= level))
            for team, started in by_team.items()
        )
        values[level] = policy.objective.horizon_s // 100 * (weighted[level] + credit)
    return values


def _slowness(snapshot: Snapshot, placed: Iterable[Placed], policy: Policy) -> int:
    """What the started workers lose on types slower than their best, over the horizon."""
    count = fleet_types(snapshot)
    types = _card_types(snapshot)
    lost = 0
    for record, start in placed:
        for role in record.job.roles:
            speeds = {gpu_type: role.throughput_milli(gpu_type) or 0 for gpu_type in count}
            best = max(speeds.values(), default=0)
            for worker in _workers(start.placement, role):
                if worker.gpus and best:
                    speed = speeds.get(types.get((worker.host, worker.gpus[0]), ""), 0)
                    lost += role.request.gpu_milli * policy.objective.horizon_s * (best - speed) // best
    return lost


def _spread(snapshot: Snapshot, placed: Iterable[tuple[JobRecord, Placement]], policy: Policy) -> int:
    """What gangs pay for each domain beyond the first of a preferred layer, and pipelines for leaving a domain."""
    paths = {host.id: host.path for host in snapshot.hosts}
    confinement, cost = confinements(snapshot, policy), policy.objective.spread_s
    paid = 0
    for record, placement in placed:
        used = placement.hosts
        for layer in confinement(record.job).preferred:
            domains = {paths[host].domain(layer, host) for host in used}
            paid += (len(domains) - 1) * cost * record.job.gpu_milli
        for role in record.job.roles:
            if role.parallelism is not None and role.parallelism.pipeline > 1:
                size = role.parallelism.tensor * role.parallelism.pipeline
                workers = _workers(placement, role)
                for layer in (Layer.NVLINK, Layer.RACK, Layer.ZONE):
                    domains_of = [paths[worker.host].domain(layer, worker.host) for worker in workers]
                    leaving = sum(
                        len(set(domains_of[first : first + size])) > 1 for first in range(0, len(domains_of), size)
                    )
                    paid += leaving * cost * size * role.request.gpu_milli
    return paid


def _scarcity(snapshot: Snapshot, placed: Iterable[Placed], objective: ObjectivePolicy) -> int:
    """What the started workers take of types rarer than the most common one, and of types that jobs must have."""
    count, wanted = fleet_types(snapshot), appetite(snapshot).wanted
    types = _card_types(snapshot)
    most = max(count.values(), default=0)
    taken = 0
    for record, start in placed:
        for role in record.job.roles:
            milli = role.request.gpu_milli
            for worker in _workers(start.placement, role):
                if worker.gpus and most:
                    name = types.get((worker.host, worker.gpus[0]), "")
                    taken += milli * objective.scarce_s * (most - count[name]) // most
                    taken += milli * objective.wanted_s * wanted.get(name, 0) // MILLI
    return taken


def _fetching(snapshot: Snapshot, placed: Iterable[Placed], policy: Policy) -> int:
    """What workers wait for shards that their hosts lack: all that start, and those that return to another host."""
    hosts = {host.id: host for host in snapshot.hosts}
    waited = 0
    for record, start in placed:
        if record.job.dataset is None:
            continue
        milli = {role.name: role.request.gpu_milli or policy.order.cpu_worker_milli for role in record.job.roles}
        known = record.placement.hosts if record.placement is not None else ()
        for worker in start.placement.workers:
            if worker.host in hosts and worker.host not in known:
                waited += milli.get(worker.role, 0) * fetch_s(hosts[worker.host], record.job.dataset, snapshot, policy)
    return waited


def usable_left(snapshot: Snapshot, policy: Policy, gone: Iterable[JobRecord]) -> int:
    """At most the part `room` of `economy` if these jobs were gone: nothing started, no GPU stranded [mGPU*s]."""
    return free_room(snapshot, policy.objective).worth((), gone, stranding=False)


@remembered
def fleet_types(snapshot: Snapshot) -> Counter[str]:
    """How many healthy GPUs of each type the fleet has, on hosts in any state."""
    return Counter(gpu.gpu_type for host in snapshot.hosts for gpu in host.gpus if gpu.healthy)


@remembered
def _card_types(snapshot: Snapshot) -> dict[tuple[HostId, int], str]:
    return {(host.id, gpu.index): gpu.gpu_type for host in snapshot.hosts for gpu in host.gpus}


def _workers(placement: Placement, role: Role) -> list[WorkerPlacement]:
    return [worker for worker in placement.workers if worker.role == role.name]
