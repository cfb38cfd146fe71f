"""Committing a decision: all of its intents, or nothing where a row moved since the snapshot (RULES 9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...model.decision import Decision, Preemption, Resize, Start
from ...model.errors import InvalidInput, StaleTerm
from ...model.host import Host, HostState
from ...model.ids import HostId, JobId, SiteId
from ...model.intent import Intent, Want
from ...model.job_state import JobState
from ...model.limits import grace_s
from ...model.policy import Policy
from ...model.reservation import Reservation
from ...model.snapshot import JobRecord, Snapshot
from ..ports import CommitOutcome
from . import lifecycle
from .books import AttemptRef, Books, IntentRow, LogEntry
from .changes import log_job, require_job, save, to_text

SCHEDULER = "scheduler"
"""The lease whose term a commit must carry."""

EVICTABLE = frozenset({JobState.PLANNED, JobState.STARTING, JobState.RUNNING})

_MANY_HOSTS = 100
"""Hosts in use beyond which all are read at once instead of each alone."""


def commit(
    books: Books, decision: Decision, snapshot: Snapshot, *, term: int, now_s: int, policy: Policy
) -> CommitOutcome:
    """Writes the decision. Raises StaleTerm, and InvalidInput for attempts that are not the next in number."""
    check_term(books, SCHEDULER, term)
    conflicts = tuple(dict.fromkeys(_conflicts(books, decision, snapshot)))
    if conflicts:
        return CommitOutcome(committed=False, conflicts=conflicts)
    for preemption in decision.preemptions:
        _preempt(books, preemption, now_s)
    for resize in decision.resizes:
        _resize(books, resize, now_s, policy)
    _start_all(books, decision.starts, snapshot, term, now_s, policy)
    for rejection in decision.rejections:
        old = require_job(books, rejection.job)
        log_job(books, save(books, old, lifecycle.on_rejection(old, rejection, now_s), now_s), "rejected", now_s)
    _promise(books, decision, now_s)
    return CommitOutcome(committed=True)


def check_term(books: Books, name: str, term: int) -> None:
    """Raises StaleTerm unless `term` is that of the lease in force."""
    lease = books.lease(name)
    if lease is None or not lease.holder:
        raise StaleTerm(f"nobody holds the lease {name!r}; take it before writing")
    if lease.term != term:
        raise StaleTerm(f"term {term} of lease {name!r} has passed; {lease.holder} leads with term {lease.term}")


def _conflicts(books: Books, decision: Decision, snapshot: Snapshot) -> Iterator[str]:
    records = {record.id: record for record in snapshot.jobs}
    for start in decision.starts:
        old = _unmoved(books, records, start.job)
        if old is None or old.state is not JobState.QUEUED or len(start.placement.workers) != _workers(old, start):
            yield f"job {start.job}"
        elif start.attempt != old.attempt + 1:
            raise InvalidInput("starts", f"attempt {start.attempt} of job {start.job}", f"attempt {old.attempt + 1}")
    for job, attempt in [(victim.job, victim.attempt) for victim in decision.preemptions] + [
        (resize.job, resize.attempt - 1) for resize in decision.resizes
    ]:
        old = _unmoved(books, records, job)
        if old is None or old.state not in EVICTABLE or old.attempt != attempt:
            yield f"job {job}"
    for rejection in decision.rejections:
        old = _unmoved(books, records, rejection.job)
        if old is None or old.state is not JobState.QUEUED:
            yield f"job {rejection.job}"
    yield from _host_conflicts(books, decision, {host.id: host for host in snapshot.hosts})
    yield from _reservation_conflicts(books, decision, snapshot)


def _unmoved(books: Books, records: Mapping[JobId, JobRecord], job: JobId) -> JobRecord | None:
    seen, stored = records.get(job), books.job(job)
    return stored if seen is not None and stored is not None and seen.version == stored.version else None


def _workers(record: JobRecord, start: Start) -> int:
    elastic = record.job.elastic
    if elastic is None:
        return record.job.workers
    size = sum(worker.role == elastic.role for worker in start.placement.workers)
    fixed = sum(role.count for role in record.job.roles if role.name != elastic.role)
    return fixed + size if size in elastic.sizes else -1


def _host_conflicts(books: Books, decision: Decision, seen: Mapping[HostId, Host]) -> Iterator[str]:
    used = dict.fromkeys(host for start in decision.starts for host in start.placement.hosts)
    many = {row.host.id: row for row in books.hosts()} if len(used) > _MANY_HOSTS else None
    for host in used:
        row = books.host(host) if many is None else many.get(host)
        moved = row is None or host not in seen or row.host.version != seen[host].version
        if moved or row is None or row.host.state is not HostState.READY:
            yield f"host {host}"


def _reservation_conflicts(books: Books, decision: Decision, snapshot: Snapshot) -> Iterator[str]:
    seen = {promise.id: promise.version for promise in snapshot.reservations}
    stored = {promise.id: promise.version for promise in books.reservations()}
    for promise in decision.reservations:
        record = books.job(promise.job)
        if seen.get(promise.id) != stored.get(promise.id):
            yield f"reservation {promise.id}"
        if record is None or record.state is not JobState.QUEUED:
            yield f"job {promise.job}"
    for released in decision.releases:
        if released not in stored or seen.get(released) != stored[released]:
            yield f"reservation {released}"


def _preempt(books: Books, preemption: Preemption, now_s: int) -> None:
    old = require_job(books, preemption.job)
    text = f"evicted for job {', '.join(preemption.beneficiaries)}" if preemption.beneficiaries else "evicted"
    new = save(books, old, lifecycle.on_preemption(old, now_s, text), now_s)
    details = {"beneficiaries": list(preemption.beneficiaries), "loss_gpu_s": preemption.loss_gpu_s}
    log_job(books, new, "preempted", now_s, details)


def _resize(books: Books, resize: Resize, now_s: int, policy: Policy) -> None:
    # The attempt leaves with a checkpoint; a later round starts the next one, at the size and place that then is best.
    old, eviction = require_job(books, resize.job), policy.eviction
    timeout_s = old.job.start_timeout_s or policy.time.start_timeout_s
    until_s = now_s + grace_s(old.job) + eviction.clean_s + eviction.launch_s + timeout_s
    moved = old.placement is not None and len(old.placement.workers) == len(resize.placement.workers)
    new = save(books, old, lifecycle.on_return(old, resize.placement, until_s, now_s), now_s)
    log_job(books, new, "moved" if moved else "resized", now_s)


def _start_all(
    books: Books, starts: Sequence[Start], snapshot: Snapshot, term: int, now_s: int, policy: Policy
) -> None:
    # Hosts in use were seen unmoved just now, and starts change no victim: what is shared is read once for all.
    sites = {host.id: host.path.site for host in snapshot.hosts}
    promises = books.reservations() if starts else ()
    victims = {job: books.job(job) for job in dict.fromkeys(job for start in starts for job in start.after)}
    for start in starts:
        leaving = [record for record in map(victims.get, start.after) if record and record.state.holds_capacity]
        # A gang over several sites is driven by the site of its first rank.
        site = sites[start.placement.hosts[0]]
        _start(books, start, site, leaving, promises, term=term, now_s=now_s, policy=policy)
    books.bump_hosts([host for start in starts for host in start.placement.hosts])


def _start(
    books: Books,
    start: Start,
    site: SiteId,
    victims: Sequence[JobRecord],
    promises: Sequence[Reservation],
    *,
    term: int,
    now_s: int,
    policy: Policy,
) -> None:
    old = require_job(books, start.job)
    new = save(books, old, lifecycle.on_start(old, start, now_s), now_s, promises)
    wait_s = max((grace_s(victim.job) + policy.eviction.clean_s for victim in victims), default=0)
    intent = Intent(
        job=old.job,
        attempt=start.attempt,
        site=site,
        term=term,
        want=Want.RUN,
        placement=start.placement,
        grace_s=grace_s(old.job),
        created_s=now_s,
    )
    after = tuple(AttemptRef(job=victim.id, attempt=victim.attempt) for victim in victims)
    timeout_s = old.job.start_timeout_s or policy.time.start_timeout_s
    books.put_intent(IntentRow(intent=intent, after=after, start_by_s=now_s + wait_s + timeout_s))
    details = {"term": term, "hosts": list(start.placement.hosts), "after": [victim.id for victim in victims]}
    log_job(books, new, "planned", now_s, details)


def _promise(books: Books, decision: Decision, now_s: int) -> None:
    books.drop_reservations(decision.releases)
    for released in decision.releases:
        _log_promise(books, released, "reservation_released", "{}", now_s)
    stored = {promise.id: promise for promise in books.reservations()}
    for promise in decision.reservations:
        old = stored.get(promise.id)
        if old is None or replace(promise, version=old.version) != old:
            new: Reservation = replace(promise, version=old.version + 1 if old else 1)
            books.put_reservation(new)
            _log_promise(books, new.id, "reserved", to_text(new), now_s)


def _log_promise(books: Books, name: str, kind: str, document: str, now_s: int) -> None:
    books.log(LogEntry(at_s=now_s, kind=kind, subject=f"reservation {name}", document=document))
