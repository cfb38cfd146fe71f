"""Elastic jobs grow into what nobody waits for (RULES 6); after the solve, plain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..model.decision import Resize
from ..model.ids import HostId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .books import Books
from .demand import usable
from .options import Types
from .order import value_milli
from .placing import Placer
from .plan import Plan
from .returning import HOUR_S, moves_left, return_loss, saves_its_work, unwanted
from .sizes import at_size, settled, sizes
from .verify import verify_starts


def grown(snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Resize, ...]:
    """The returns of jobs that grow beside the plan, in the order of the snapshot's jobs; none where others return.

    Each takes the largest size that fits on its own place and on what is free on hosts that no candidate could use, if
    the GPUs gained over the horizon are worth more than its restart; high levels and old jobs first, as many as may
    move in this hour.
    """
    snapshot = settled(snapshot)
    stopped = {act.job for act in plan.preemptions}
    able = [r for r in snapshot.jobs if r.id not in stopped and _may_grow(r, snapshot, policy)]
    most, spared = moves_left(snapshot, policy), unwanted(snapshot, policy)
    if not able or not most or not spared or plan.resizes:
        return ()
    books = Books(snapshot, policy.reserved)
    jobs = {record.id: record.job for record in snapshot.jobs}
    for start in plan.starts:
        for worker in start.placement.workers:
            books.take(jobs[start.job], worker)
    found: list[Resize] = []
    for record in sorted(able, key=lambda r: (-r.level, r.started_s or 0, r.id)):
        if len(found) < most:
            act = _larger(record, snapshot, policy, books, spared)
            acts = (plan.starts, plan.preemptions, plan.reservations)
            if act is not None and not verify_starts(snapshot, policy, *acts, (*found, act)):
                found.append(act)
                _book(books, record, act)
    position = {record.id: number for number, record in enumerate(snapshot.jobs)}
    return tuple(sorted(found, key=lambda act: position[act.job]))


def _may_grow(record: JobRecord, snapshot: Snapshot, policy: Policy) -> bool:
    now_s = snapshot.now_s
    return (
        bool(_more(record))
        and saves_its_work(record, now_s, policy)
        and record.started_s is not None
        and now_s - record.started_s >= policy.time.grow_after_s
        and not any(at > now_s - HOUR_S for at in record.moves)
    )


def _more(record: JobRecord) -> tuple[int, ...]:
    """The sizes above the one that the settled job has, the largest first."""
    elastic = record.job.elastic
    role = record.job.role(elastic.role) if elastic is not None else None
    return tuple(size for size in reversed(sizes(record.job)) if role is not None and size > role.count)


def _larger(
    record: JobRecord, snapshot: Snapshot, policy: Policy, books: Books, spared: frozenset[HostId]
) -> Resize | None:
    """The job at the largest size that fits where it leaves its own place, on the GPU types that it has."""
    if record.placement is None or not spared.issuperset(record.placement.hosts):
        return None
    own = record.placement.workers if record.placement is not None else ()
    for worker in own:
        books.give(record.job, worker)
    hosts = [host for host in usable(snapshot) if host.id in spared]
    placer = Placer(snapshot, policy, books, waiting=(), hosts=hosts)
    current = _types(record, snapshot)
    for size in _more(record):
        larger = replace(record, job=at_size(record.job, size))
        gained = policy.objective.horizon_s * (value_milli(larger, policy) - value_milli(record, policy))
        if gained <= return_loss(record, snapshot, policy):
            break
        placement = placer.place(larger, only=lambda types: types == current)
        if placement is not None:
            placer.remove(larger, placement)
            for worker in own:
                books.take(record.job, worker)
            return Resize(job=record.id, attempt=record.attempt + 1, placement=placement)
    for worker in own:
        books.take(record.job, worker)
    return None


def _types(record: JobRecord, snapshot: Snapshot) -> Types:
    """The GPU type of each role, None for a role without GPUs."""
    names: Iterable[HostId] = record.placement.hosts if record.placement is not None else ()
    hosts = {host.id: host for host in snapshot.hosts if host.id in set(names)}
    found: dict[str, str] = {}
    for worker in record.placement.workers if record.placement is not None else ():
        card = hosts[worker.host].gpu(worker.gpus[0]) if worker.gpus else None
        if card is not None:
            found[worker.role] = card.gpu_type
    return tuple(found.get(role.name) for role in record.job.roles)


def _book(books: Books, record: JobRecord, act: Resize) -> None:
    for worker in record.placement.workers if record.placement is not None else ():
        books.give(record.job, worker)
    for worker in act.placement.workers:
        books.take(record.job, worker)
