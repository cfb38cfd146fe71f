"""How a job's record changes with each request, event and the passing of time: the rules, written once.

Pure functions over frozen records; every change of state passes `check_transition`. Both stores use them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...model.decision import Rejection, Start
from ...model.errors import IllegalTransition
from ...model.job import Job
from ...model.job_state import WAITING, JobState, StopCause, check_transition
from ...model.placement import Placement
from ...model.snapshot import JobRecord

ENDING = frozenset({StopCause.FINISHED, StopCause.FAILED, StopCause.LIMIT, StopCause.CANCELLED})
"""Causes after which the job ends, whatever is asked meanwhile."""


def new_record(job: Job, dependencies: Sequence[JobRecord], now_s: int) -> JobRecord:
    """The record of a job that has just been submitted: queued, or blocked until its dependencies succeeded."""
    waits = any(other.state is not JobState.SUCCEEDED for other in dependencies)
    state = JobState.BLOCKED if waits else JobState.QUEUED
    return JobRecord(job=job, state=state, submitted_s=now_s, state_since_s=now_s, version=1)


def on_dependencies(record: JobRecord, dependencies: Sequence[JobRecord], now_s: int) -> JobRecord:
    """A blocked job queues once all of its dependencies succeeded, and fails when one ended otherwise."""
    if record.state is not JobState.BLOCKED:
        return record
    for other in dependencies:
        if other.state.ended and other.state is not JobState.SUCCEEDED:
            text = f"it waits for job {other.id}, which ended {other.state}"
            return move(record, JobState.FAILED, now_s, message=text)
    if any(other.state is not JobState.SUCCEEDED for other in dependencies):
        return record
    return move(record, JobState.QUEUED, now_s, message="")


def on_start(record: JobRecord, start: Start, now_s: int) -> JobRecord:
    """The plan of an attempt is committed."""
    return move(
        record,
        JobState.PLANNED,
        now_s,
        attempt=start.attempt,
        placement=start.placement,
        planned_s=now_s,
        started_s=None,
        stop_cause=None,
        inside_guarantee=start.inside_guarantee,
        replacing=(),
        replacing_until_s=0,
        resized_to=None,
        exit_code=None,
        message="",
    )


def on_preemption(record: JobRecord, now_s: int, message: str) -> JobRecord:
    """The attempt must leave for others; the time is kept, for a job is evicted only so often."""
    stopped = stop(record, StopCause.PREEMPTED, now_s, message)
    return replace(stopped, evictions=(*record.evictions, now_s))


def on_return(record: JobRecord, placement: Placement, until_s: int, now_s: int) -> JobRecord:
    """The attempt leaves to come back there, where hosts are held for it until `until_s`.

    Where it does not shrink the time is kept, for a job is moved only so often.
    """
    now, then = (len(each.workers) if each is not None else 0 for each in (record.placement, placement))
    text = f"to run with {then} workers" if now != then else f"to run on {', '.join(placement.hosts)}"
    elastic = record.job.elastic
    size = sum(elastic is None or worker.role == elastic.role for worker in placement.workers)
    return replace(
        stop(record, StopCause.REQUEUED, now_s, text),
        replacing=placement.hosts,
        replacing_until_s=until_s,
        resized_to=size,
        moves=(*record.moves, now_s) if then >= now else record.moves,
    )


def on_rejection(record: JobRecord, rejection: Rejection, now_s: int) -> JobRecord:
    """The job can never run on this fleet."""
    text = rejection.reason.sentence or f"it can never run here: {rejection.reason.kind}"
    return move(record, JobState.REJECTED, now_s, message=text)


def on_cancel(record: JobRecord, now_s: int) -> JobRecord:
    """A waiting job ends at once, one that holds capacity is stopped first; a job that ends anyway is left alone."""
    if record.state.ended or (record.state is JobState.STOPPING and record.stop_cause in ENDING):
        return record
    if record.state in WAITING:
        return move(record, JobState.CANCELLED, now_s, message="cancelled")
    return stop(record, StopCause.CANCELLED, now_s, "cancelled")


def on_hold(record: JobRecord, now_s: int) -> JobRecord:
    """Keeps the job from being placed; one that holds capacity is stopped first.

    Raises IllegalTransition for a job that has ended or is ending.
    """
    if record.state is JobState.HELD or _stops_for(record, StopCause.HELD):
        return record
    if record.state is JobState.STOPPING and record.stop_cause in ENDING:
        raise IllegalTransition(f"job {record.id} is ending ({record.stop_cause}) and cannot be held.{_tail(record)}")
    if record.state.holds_capacity:
        return stop(record, StopCause.HELD, now_s, "held")
    return move(record, JobState.HELD, now_s, message="held")


def on_resume(record: JobRecord, dependencies: Sequence[JobRecord], now_s: int) -> JobRecord:
    """A held job queues again with its age; an ended one is submitted anew, its saved work kept.

    A job that waits or runs already stays as it is. Raises IllegalTransition for a job that succeeded, was rejected,
    or is ending.
    """
    if _stops_for(record, StopCause.HELD):
        return replace(record, stop_cause=StopCause.REQUEUED, message="resumed")
    if record.state is JobState.STOPPING and record.stop_cause in ENDING:
        raise IllegalTransition(
            f"job {record.id} is ending ({record.stop_cause}); it can be resumed once it has ended.{_tail(record)}"
        )
    if record.state is JobState.HELD:
        queued = move(record, JobState.QUEUED, now_s, message="")
    elif record.state.ended:
        queued = _requeue_ended(record, now_s)
    else:
        return record
    if any(other.state is not JobState.SUCCEEDED for other in dependencies):
        return move(queued, JobState.BLOCKED, now_s)
    return queued


def on_priority(record: JobRecord, priority: int) -> JobRecord:
    """Changes the priority. Raises IllegalTransition for an ended job, InvalidInput out of range."""
    if record.state.ended:
        raise IllegalTransition(f"job {record.id} has ended {record.state}; its priority is history.{_tail(record)}")
    return replace(record, job=replace(record.job, priority=priority))


def stop(record: JobRecord, cause: StopCause, now_s: int, message: str) -> JobRecord:
    """The attempt must leave its hosts; what follows is decided by `cause` when they are verified clean."""
    if record.state is JobState.STOPPING:
        return replace(record, stop_cause=cause, message=message)
    return move(record, JobState.STOPPING, now_s, stop_cause=cause, message=message)


def move(record: JobRecord, state: JobState, now_s: int, **changes: Any) -> JobRecord:
    """The record in another state. Raises IllegalTransition, with the job's story."""
    check_transition(record.id, record.state, state, story(record))
    return replace(record, state=state, state_since_s=now_s, **changes)


def story(record: JobRecord) -> str:
    """The job's life in a line, for error messages."""
    parts = [f"submitted at {record.submitted_s} s", f"{record.attempt} attempts"]
    if record.failed_starts:
        parts.append(f"{record.failed_starts} failed starts")
    if record.evictions:
        parts.append(f"{len(record.evictions)} evictions")
    cause = f" ({record.stop_cause})" if record.stop_cause else ""
    parts.append(f"{record.state}{cause} since {record.state_since_s} s")
    return ", ".join(parts) + (f", {record.message!r}" if record.message else "")


def _requeue_ended(record: JobRecord, now_s: int) -> JobRecord:
    # Its age starts anew: with the old one, a queue deadline would expire it again at once.
    return move(
        record,
        JobState.QUEUED,
        now_s,
        submitted_s=now_s,
        planned_s=None,
        started_s=None,
        stop_cause=None,
        failed_starts=0,
        restarts=0,
        not_before_s=0,
        replacing=(),
        replacing_until_s=0,
        resized_to=None,
        exit_code=None,
        message="",
    )


def _stops_for(record: JobRecord, cause: StopCause) -> bool:
    return record.state is JobState.STOPPING and record.stop_cause is cause


def _tail(record: JobRecord) -> str:
    return f" Its story: {story(record)}"
