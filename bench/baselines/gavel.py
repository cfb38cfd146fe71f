"""Gavel: heterogeneity-aware max-min fairness over GPU types."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...model.decision import Decision, Start
from ...model.ids import JobId
from ...model.job import GpuTypeChoice, Role
from ...model.placement import Placement
from ...model.policy import Policy
from ...model.snapshot import JobRecord, Snapshot
from ...solver.books import Books
from ...solver.claims import Claims
from ...solver.demand import candidates, card_takes, placeable
from ...solver.placing import Placer
from .claimed import Only, types_of
from .decision import decision_of, start_of
from .fifo import by_level, engines, serve
from .gavel_shares import JobClass, shares

ROUND_S = 360
"""The length of a round in the paper."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """A waiting gang and a GPU type for its main role; `rank` is better the higher."""

    record: JobRecord
    gpu_type: str
    rank: tuple[float, float]


class Gavel:
    """Gavel (Narayanan et al., OSDI 2020), the least-attained-service policy of section 4.1 without space sharing.

    Each round a linear program finds the share of time of every active job on every type that maximises the least
    normalised effective throughput; (job, type) pairs are then served by falling priority, share over the part of its
    time that the job has received on the type, each job once.

    Deviations: nothing is preempted, so that only waiting jobs are placed, on a type that they keep to their end; and
    as most waiting jobs have received nothing, the time received counts one round of 6 min more than it was, so that
    of equal shares the longest wait goes first. The program is water-filled, and what is then left goes to the most
    throughput. A job's weight is 1, 2, 4, 8 for its level. Jobs that nothing tells apart are one variable. A gang of
    several roles counts by the one with most GPUs. Jobs without GPUs are placed last, in the order of the queue.
    """

    def __init__(self) -> None:
        self._received: Counter[tuple[JobId, str]] = Counter()
        self._at_s: int | None = None

    def __call__(self, snapshot: Snapshot, policy: Policy) -> Decision:
        """One round."""
        self._account(snapshot)
        placer = Placer(snapshot, policy, Books(snapshot, policy.reserved))
        starts: list[Start] = []
        done: set[JobId] = set()
        failed: set[tuple[object, ...]] = set()
        claims = Claims(snapshot)
        for pair in self._pairs(snapshot):
            record, job = pair.record, pair.record.job
            ways = claims.ways(record)
            inside = False not in ways
            shape = (placer.shape(record), job.team, inside)
            if not ways or record.id in done or (shape, pair.gpu_type) in failed:
                continue
            placement = _place(placer, record, pair.gpu_type, types_of(record, inside, claims))
            if placement is None:
                failed.add((shape, pair.gpu_type))
            else:
                done.add(record.id)
                starts.append(start_of(record, placement, inside))
                if inside:
                    claims.take(job, placement)
        rest = [record for record in by_level(snapshot, policy) if not record.job.gpu_milli]
        starts.extend(serve(rest, engines(placer), False, claims))
        return decision_of(snapshot, policy, starts)

    def _pairs(self, snapshot: Snapshot) -> Iterator[_Pair]:
        """Every waiting gang with every type that it runs on, by falling priority, then by what the type is to it."""
        fleet = _Types(snapshot)
        active = [r for r in snapshot.jobs if r.job.gpu_milli and not r.state.ended]
        classes = {record.id: fleet.job_class(record) for record in active}
        share = shares(Counter(classes.values()), fleet.capacity)
        pairs = []
        for record in candidates(snapshot):
            if record.job.gpu_milli:
                known = classes[record.id]
                waited_s = max(0, snapshot.now_s - record.submitted_s) + ROUND_S
                for name, part, speed in zip(fleet.names, share[known], known.normal(fleet.capacity), strict=True):
                    if speed:
                        priority = part * waited_s / (self._received[record.id, name] + ROUND_S)
                        pairs.append(_Pair(record, name, (round(priority, 6), round(speed, 6))))
        pairs.sort(key=lambda pair: (-pair.rank[0], -pair.rank[1], pair.record.submitted_s, pair.record.id))
        yield from pairs

    def _account(self, snapshot: Snapshot) -> None:
        """Adds the time since the last round to what each job that runs has received on its type."""
        passed_s = 0 if self._at_s is None else snapshot.now_s - self._at_s
        self._at_s = snapshot.now_s
        live = {record.id for record in snapshot.jobs if not record.state.ended}
        self._received = Counter({key: s for key, s in self._received.items() if key[0] in live})
        hosts = {host.id: host for host in snapshot.hosts}
        for record in snapshot.jobs:
            if record.placement is not None and passed_s:
                main = _main(record)
                worker = next(worker for worker in record.placement.workers if worker.role == main.name)
                card = hosts[worker.host].gpu(worker.gpus[0]) if worker.gpus else None
                if card is not None:
                    self._received[record.id, card.gpu_type] += passed_s


class _Types:
    """The GPU types of the hosts that take work: milli-GPU and the most memory of a card of each."""

    def __init__(self, snapshot: Snapshot) -> None:
        milli: Counter[str] = Counter()
        self._memory: dict[str, int] = defaultdict(int)
        for host in snapshot.hosts:
            for gpu in host.gpus:
                if gpu.healthy and placeable(host):
                    milli[gpu.gpu_type] += 1_000
                    self._memory[gpu.gpu_type] = max(self._memory[gpu.gpu_type], gpu.memory_mib)
        self.names = tuple(sorted(milli))
        self.capacity = tuple(milli[name] for name in self.names)

    def job_class(self, record: JobRecord) -> JobClass:
        """The class of that job."""
        role = _main(record)
        speeds = tuple(
            (role.throughput_milli(name) or 0) if card_takes(role.request, self._memory[name]) else 0
            for name in self.names
        )
        return JobClass(speeds, record.job.gpu_milli, 2**record.level)


def _main(record: JobRecord) -> Role:
    return max(record.job.roles, key=lambda role: role.gpu_milli)


def _place(placer: Placer, record: JobRecord, gpu_type: str, types: Only) -> Placement | None:
    """Books the gang with its main role on that type; where it must stay together is as the job itself says."""
    main = _main(record)
    speed = main.throughput_milli(gpu_type) or 1
    only = replace(main, gpu_types=(GpuTypeChoice(gpu_type=gpu_type, throughput_milli=speed),))
    roles = tuple(only if role is main else role for role in record.job.roles)
    asked = replace(record, job=replace(record.job, roles=roles, elastic=None))
    return placer.place(asked, placer.confinement(record.job), types)
