"""Order inside and between levels: queue positions, weights, and each team's fair-share curve (RULES 1)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby

from ..model.host import MILLI
from ..model.ids import JobId, TeamId
from ..model.placement import Placement
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.team import Team, Usage
from .demand import candidates
from .remember import remembered
from .sizes import as_started


@dataclass(frozen=True, slots=True)
class Curve:
    """A team's fair-share credit as a concave, piecewise linear function of the milli-GPU it holds.

    `base` is its dominant share before the round, in milli-GPU; the k-th segment ends at `ends[k]` and earns
    `weights[k]` hundredths for each milli-GPU; beyond the last end nothing is earned.
    """

    base: int
    ends: tuple[int, ...]
    weights: tuple[int, ...]

    def credit(self, started: int) -> int:
        """Hundredths x milli-GPU earned by starting that many milli-GPU on top of the base."""
        total, low = 0, self.base
        for end, weight in zip(self.ends, self.weights, strict=True):
            high = min(end, self.base + started)
            if high > low:
                total += weight * (high - low)
                low = high
        return total


@dataclass(frozen=True, slots=True)
class Order:
    """What the goals need to know of order: milli-GPU and weight of each candidate, its place, its team's curve.

    `place` 0 is the head of the queue.
    """

    milli: dict[JobId, int]
    weight: dict[JobId, int]
    place: dict[JobId, int]
    curve: dict[TeamId, Curve]

    def milli_at(self, record: JobRecord, placement: Placement) -> int:
        """The milli-GPU of the candidate at the size that it has there."""
        job = as_started(record, placement)
        return job.gpu_milli or self.milli[record.id] * job.workers // record.job.workers


@remembered
def order(snapshot: Snapshot, policy: Policy) -> Order:
    """Weights, places and curves of this round."""
    waiting = candidates(snapshot)
    since = _effective_submission(waiting)
    numbers = policy.order
    milli = {record.id: value_milli(record, policy) for record in waiting}
    largest = max(milli.values(), default=1)
    weight = {}
    for record in waiting:
        waited = max(0, min(snapshot.now_s - since[record.id], numbers.age_full_s))
        weight[record.id] = (
            numbers.base_weight
            + numbers.size_weight * milli[record.id] // largest
            + numbers.age_weight * waited // numbers.age_full_s
        )
    queue = sorted(waiting, key=lambda record: (-record.level, since[record.id], -record.job.priority, record.id))
    place = {record.id: index for index, record in enumerate(queue)}
    return Order(milli, weight, place, _curves(snapshot, policy))


def value_milli(record: JobRecord, policy: Policy) -> int:
    """What the gang counts as in `start`: its milli-GPU; a gang without GPUs a little for each worker."""
    return record.job.gpu_milli or record.job.workers * policy.order.cpu_worker_milli


def _effective_submission(waiting: tuple[JobRecord, ...]) -> dict[JobId, int]:
    """The submission time each job counts with: a team's own priorities permute its times inside a level.

    So a high priority moves a job ahead of its team's others, and never ahead of another team's.
    """

    def group(record: JobRecord) -> tuple[str, int]:
        return (record.job.team, record.level)

    since: dict[JobId, int] = {}
    for _, members in groupby(sorted(waiting, key=group), key=group):
        jobs = list(members)
        times = sorted(record.submitted_s for record in jobs)
        jobs.sort(key=lambda record: (-record.job.priority, record.submitted_s, record.id))
        since.update({record.id: time for record, time in zip(jobs, times, strict=True)})
    return since


def _curves(snapshot: Snapshot, policy: Policy) -> dict[TeamId, Curve]:
    active = {record.job.team for record in snapshot.jobs if not record.state.ended}
    share = _entitlements(snapshot, active)
    capacity = _capacity(snapshot)
    used = _dominant(snapshot, policy, active, capacity)
    steps = policy.order.fair_share
    curves = {}
    for team in active:
        entitled = capacity[0] * share[team][0] // share[team][1]
        ends = tuple(entitled * step.share_milli // MILLI for step in steps)
        curves[team] = Curve(used[team], ends, tuple(step.weight for step in steps))
    return curves


def _entitlements(snapshot: Snapshot, active: set[TeamId]) -> dict[TeamId, tuple[int, int]]:
    """Each active team's share of the fleet as a fraction: at every step down the tree, its weight beside its siblings.

    Only siblings with an active team at or under them count, so that an idle team's share is lent.
    """
    known = {team.id: team for team in snapshot.teams}
    for name in active:
        known.setdefault(name, Team(id=name))
    live: set[TeamId] = set()
    for name in active:
        cursor: TeamId | None = name
        while cursor is not None and cursor not in live:
            live.add(cursor)
            cursor = known[cursor].parent
    siblings: dict[TeamId | None, int] = defaultdict(int)
    for name in live:
        siblings[known[name].parent] += known[name].weight
    shares = {}
    for name in active:
        top, bottom, cursor = 1, 1, name
        while cursor is not None:
            top *= known[cursor].weight
            bottom *= siblings[known[cursor].parent]
            cursor = known[cursor].parent
        shares[name] = (top, bottom)
    return shares


def _capacity(snapshot: Snapshot) -> tuple[int, int, int, int]:
    """milli-GPU, milli-cores, MiB and Mbit/s of the whole fleet."""
    hosts = snapshot.hosts
    return (
        sum(host.gpu_milli for host in hosts),
        sum(host.cpu_milli for host in hosts),
        sum(host.memory_mib for host in hosts),
        sum(host.network_mbps for host in hosts),
    )


def _dominant(
    snapshot: Snapshot, policy: Policy, active: set[TeamId], capacity: tuple[int, int, int, int]
) -> dict[TeamId, int]:
    """Each team's largest share of any resource, running and decayed past use together, in milli-GPU of the fleet."""
    held: dict[TeamId, list[int]] = {team: [0, 0, 0, 0] for team in active}
    for record in snapshot.jobs:
        if record.placement is None:
            continue
        for worker in record.placement.workers:
            role = record.job.role(worker.role)
            if role is not None:
                request = role.request
                asked = (request.gpu_milli, request.cpu_milli, request.memory_mib, request.network_mbps)
                for number, amount in enumerate(asked):
                    held[record.job.team][number] += amount
    past = {team.id: team.usage for team in snapshot.teams}
    half_life = policy.order.half_life_s
    used = {}
    for team, amounts in held.items():
        usage = past.get(team, Usage())
        decayed = (usage.gpu_milli_s, usage.cpu_milli_s, usage.memory_mib_s, usage.network_mbps_s)
        used[team] = max(
            (now * half_life + before) * capacity[0] // (half_life * whole) if whole else 0
            for now, before, whole in zip(amounts, decayed, capacity, strict=True)
        )
    return used
