"""Elastic jobs grow into what nobody waits for (RULES 6); after the solve, plain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..model.decision import Resize
from ..model.ids import HostId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .books import Books
from .demand import candidates
from .options import Types
from .order import value_milli
from .placing import Placer
from .returning import HOUR_S, moves_left, return_loss, saves_its_work
from .sizes import at_size, settled, sizes
from .verify import verify_starts


def grown(snapshot: Snapshot, policy: Policy) -> tuple[Resize, ...]:
    """The returns of jobs that grow, in the order of the snapshot's jobs; none where a candidate waits.

    Each takes the largest size that fits on what is free and its own, if the GPUs gained over the horizon are worth
    more than its restart; high levels and old jobs first, as many as may move in this hour.
    """
    snapshot = settled(snapshot)
    able = [record for record in snapshot.jobs if _may_grow(record, snapshot, policy)]
    most = moves_left(snapshot, policy)
    if not able or not most or candidates(snapshot):
        return ()
    books = Books(snapshot, policy.reserved)
    found: list[Resize] = []
    for record in sorted(able, key=lambda r: (-r.level, r.started_s or 0, r.id)):
        if len(found) < most:
            act = _larger(record, snapshot, policy, books)
            if act is not None and not verify_starts(snapshot, policy, (), (), (), (*found, act)):
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


def _larger(record: JobRecord, snapshot: Snapshot, policy: Policy, books: Books) -> Resize | None:
    """The job at the largest size that fits where it leaves its own place, on the GPU types that it has."""
    own = record.placement.workers if record.placement is not None else ()
    for worker in own:
        books.give(record.job, worker)
    placer = Placer(snapshot, policy, books, waiting=())
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
