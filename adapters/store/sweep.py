"""What time alone decides: queue deadlines, dependencies, start timeouts, walltime limits, hosts down for too long."""

from __future__ import annotations

from collections.abc import Iterator

from ...model.host import HostState
from ...model.ids import HostId
from ...model.job import Preemptible
from ...model.job_state import HOLDING, WAITING, JobState, StopCause
from ...model.policy import Policy
from ...model.snapshot import JobRecord
from . import lifecycle
from .attempt import ran_s
from .books import Books
from .changes import log_job, save
from .queue import dependencies


def sweep(books: Books, now_s: int, policy: Policy) -> tuple[str, ...]:
    """Applies it all; returns one sentence for each change."""
    lost = _lost_hosts(books, now_s, policy)
    done = []
    for old in books.jobs_in(WAITING | HOLDING):
        new = _waiting(books, old, now_s) if old.state in WAITING else _holding(books, old, lost, now_s, policy)
        if new is not old:
            stored = save(books, old, new, now_s)
            log_job(books, stored, "swept", now_s)
            done.append(f"job {stored.id} is {stored.state}: {stored.message or 'its dependencies succeeded'}")
    return tuple(done)


def walltime_limit_s(record: JobRecord, has_guarantee: bool, policy: Policy) -> int:
    """The job's own limit, else its pool's: preemptible, team with a guarantee, or shared."""
    if record.job.walltime_limit_s is not None:
        return record.job.walltime_limit_s
    if record.demoted or record.job.preemptible is Preemptible.ANYTIME:
        return policy.time.limit_preemptible_s
    return policy.time.limit_team_s if has_guarantee else policy.time.limit_shared_s


def _waiting(books: Books, record: JobRecord, now_s: int) -> JobRecord:
    deadline_s = record.job.queue_deadline_s
    if deadline_s is not None and now_s >= record.submitted_s + deadline_s:
        text = f"it waited {now_s - record.submitted_s} s; its queue deadline is {deadline_s} s"
        return lifecycle.move(record, JobState.EXPIRED, now_s, message=text)
    if record.state is JobState.BLOCKED:
        return lifecycle.on_dependencies(record, dependencies(books, record.job), now_s)
    return record


def _holding(books: Books, record: JobRecord, lost: frozenset[HostId], now_s: int, policy: Policy) -> JobRecord:
    if record.state is JobState.STOPPING:
        return record
    down = next((host for host in record.placement.hosts if host in lost), None) if record.placement else None
    if down is not None:
        text = f"host {down} has been down for {policy.failure.host_lost_after_s} s"
        return lifecycle.stop(record, StopCause.HOST_LOST, now_s, text)
    if record.state is JobState.RUNNING:
        return _running(books, record, now_s, policy)
    return _starting(books, record, now_s)


def _running(books: Books, record: JobRecord, now_s: int, policy: Policy) -> JobRecord:
    row = books.team(record.job.team)
    limit_s = walltime_limit_s(record, row is not None and bool(row.team.guarantee), policy)
    spent_s = ran_s(record, now_s)
    if spent_s < limit_s:
        return record
    text = f"walltime limit: it ran {spent_s} s of the {limit_s} s allowed"
    return lifecycle.stop(record, StopCause.LIMIT, now_s, text)


def _starting(books: Books, record: JobRecord, now_s: int) -> JobRecord:
    row = books.intent(record.id)
    if row is None or now_s < row.start_by_s:
        return record
    live = {(other.intent.job.id, other.intent.attempt) for other in books.intents()}
    waits = [ref.job for ref in row.after if (ref.job, ref.attempt) in live]
    if waits:
        # Its victims would not leave: no fault of this job, so no strike and no back-off.
        text = f"job {', '.join(waits)} did not leave its hosts in time"
        return lifecycle.stop(record, StopCause.REQUEUED, now_s, text)
    text = f"it did not run within {now_s - (record.planned_s or now_s)} s of being planned"
    return lifecycle.stop(record, StopCause.START_TIMEOUT, now_s, text)


def _lost_hosts(books: Books, now_s: int, policy: Policy) -> frozenset[HostId]:
    return frozenset(_down_too_long(books, now_s - policy.failure.host_lost_after_s))


def _down_too_long(books: Books, since_s: int) -> Iterator[HostId]:
    for row in books.hosts():
        if row.host.state is HostState.DOWN and row.host.state_since_s <= since_s:
            yield row.host.id
