"""What time alone decides: deadlines, dependencies, start timeouts, walltime limits, hosts down for long, budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ...model.host import HostState
from ...model.ids import HostId, JobId, TeamId
from ...model.job_state import HOLDING, WAITING, JobState, StopCause
from ...model.limits import ran_s, walltime_limit_s
from ...model.policy import Policy
from ...model.snapshot import JobRecord
from . import budget, lifecycle
from .books import AttemptRef, Books, IntentRow
from .changes import log_job, save
from .queue import dependencies


@dataclass(frozen=True, slots=True, kw_only=True)
class _Now:
    """What all jobs are looked at with, read once a sweep. `guaranteed` are the teams that have a guarantee."""

    now_s: int
    policy: Policy
    lost: frozenset[HostId]
    guaranteed: frozenset[TeamId]
    intents: Mapping[JobId, IntentRow]


def sweep(books: Books, now_s: int, policy: Policy) -> tuple[str, ...]:
    """Applies it all; returns one sentence for each change."""
    now = _Now(
        now_s=now_s,
        policy=policy,
        lost=frozenset(_down_too_long(books, now_s - policy.failure.host_lost_after_s)),
        guaranteed=frozenset(row.team.id for row in books.teams() if row.team.guarantee),
        intents={row.intent.job.id: row for row in books.intents()},
    )
    done = []
    for old in books.jobs_in(WAITING | HOLDING):
        new = _waiting(books, old, now_s) if old.state in WAITING else _holding(old, now)
        if new is not old:
            stored = save(books, old, new, now_s)
            log_job(books, stored, "swept", now_s)
            done.append(f"job {stored.id} is {stored.state}: {stored.message or 'its dependencies succeeded'}")
    return (*done, *budget.sweep(books, books.jobs_in(WAITING | HOLDING), now_s, policy))


def _waiting(books: Books, record: JobRecord, now_s: int) -> JobRecord:
    deadline_s = record.job.queue_deadline_s
    if deadline_s is not None and now_s >= record.submitted_s + deadline_s:
        text = f"it waited {now_s - record.submitted_s} s; its queue deadline is {deadline_s} s"
        return lifecycle.move(record, JobState.EXPIRED, now_s, message=text)
    if record.state is JobState.BLOCKED:
        return lifecycle.on_dependencies(record, dependencies(books, record.job), now_s)
    return record


def _holding(record: JobRecord, now: _Now) -> JobRecord:
    if record.state is JobState.STOPPING:
        return record
    down = next((host for host in record.placement.hosts if host in now.lost), None) if record.placement else None
    if down is not None:
        text = f"host {down} has been down for {now.policy.failure.host_lost_after_s} s"
        return lifecycle.stop(record, StopCause.HOST_LOST, now.now_s, text)
    return _running(record, now) if record.state is JobState.RUNNING else _starting(record, now)


def _running(record: JobRecord, now: _Now) -> JobRecord:
    limit_s = walltime_limit_s(record, record.job.team in now.guaranteed, now.policy)
    spent_s = ran_s(record, now.now_s)
    if spent_s < limit_s:
        return record
    text = f"walltime limit: it ran {spent_s} s of the {limit_s} s allowed"
    return lifecycle.stop(record, StopCause.LIMIT, now.now_s, text)


def _starting(record: JobRecord, now: _Now) -> JobRecord:
    row = now.intents.get(record.id)
    if row is None or now.now_s < row.start_by_s:
        return record
    waits = [ref.job for ref in row.after if _lives(ref, now)]
    if waits:
        # Its victims would not leave: no fault of this job, so no strike and no back-off.
        text = f"job {', '.join(waits)} did not leave its hosts in time"
        return lifecycle.stop(record, StopCause.REQUEUED, now.now_s, text)
    text = f"it did not run within {now.now_s - (record.planned_s or now.now_s)} s of being planned"
    return lifecycle.stop(record, StopCause.START_TIMEOUT, now.now_s, text)


def _lives(attempt: AttemptRef, now: _Now) -> bool:
    row = now.intents.get(attempt.job)
    return row is not None and row.intent.attempt == attempt.attempt


def _down_too_long(books: Books, since_s: int) -> Iterator[HostId]:
    for row in books.hosts():
        if row.host.state is HostState.DOWN and row.host.state_since_s <= since_s:
            yield row.host.id
