"""How an executor's events move the record of the attempt they speak of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...model.event import (
    GangEvent,
    GangExited,
    GangProgress,
    GangReleased,
    GangReserved,
    GangRunning,
    GangStartFailed,
)
from ...model.job_state import JobState, StopCause
from ...model.placement import Progress
from ...model.policy import FailurePolicy, Policy
from ...model.snapshot import JobRecord
from .lifecycle import move, stop

OUTCOMES = {
    StopCause.FINISHED: JobState.SUCCEEDED,
    StopCause.FAILED: JobState.FAILED,
    StopCause.LIMIT: JobState.FAILED,
    StopCause.CANCELLED: JobState.CANCELLED,
    StopCause.HELD: JobState.HELD,
    StopCause.PREEMPTED: JobState.QUEUED,
    StopCause.REQUEUED: JobState.QUEUED,
    StopCause.HOST_LOST: JobState.QUEUED,
    StopCause.START_FAILED: JobState.QUEUED,
    StopCause.START_TIMEOUT: JobState.QUEUED,
}
"""The state that follows when an attempt that stopped for this cause is verified gone."""


def apply_event(record: JobRecord, event: GangEvent, policy: Policy, now_s: int) -> JobRecord:
    """The record after the event; unchanged for late events, of old attempts or of one that is gone.

    An event may be the first that the store hears of an attempt, where its forerunners were lost in a crash.
    """
    if event.attempt != record.attempt or not record.state.holds_capacity:
        return record
    # A site whose clock runs ahead or behind must not make the record's times run backwards.
    at_s = max(record.state_since_s, min(event.at_s, now_s))
    return _HANDLERS[type(event)](record, event, policy, at_s)


def backoff_s(failed_starts: int, failure: FailurePolicy) -> int:
    """Seconds to wait after so many failed starts in a row: doubling from the base up to the maximum."""
    doublings = min(max(failed_starts - 1, 0), 40)
    return min(failure.backoff_base_s << doublings, failure.backoff_max_s)


def _reserved(record: JobRecord, event: GangReserved, policy: Policy, at_s: int) -> JobRecord:
    return move(record, JobState.STARTING, at_s) if record.state is JobState.PLANNED else record


def _running(record: JobRecord, event: GangRunning, policy: Policy, at_s: int) -> JobRecord:
    if record.state is JobState.PLANNED:
        record = move(record, JobState.STARTING, at_s)
    if record.state is not JobState.STARTING:
        return record
    return move(record, JobState.RUNNING, at_s, started_s=at_s, failed_starts=0)


def _exited(record: JobRecord, event: GangExited, policy: Policy, at_s: int) -> JobRecord:
    codes = [end.code for end in event.exits]
    failing = next((code for code in codes if code), None)
    exit_code = failing if failing is not None else (0 if codes else None)
    if record.state is JobState.STOPPING:
        return replace(record, exit_code=exit_code) if record.exit_code is None else record
    workers = len(record.placement.workers) if record.placement else 0
    complete = len(codes) == workers and failing is None
    if complete or (codes and failing is None and event.lost_host is None):
        return replace(stop(record, StopCause.FINISHED, at_s, "finished"), exit_code=0)
    if event.lost_host is not None or not codes:
        lost = f"host {event.lost_host} was lost" if event.lost_host else "the executor lost the gang"
        text = f"{lost}: {event.cause}" if event.cause else lost
        return stop(record, StopCause.HOST_LOST, at_s, text)
    text = event.cause or f"exit code {failing}"
    return replace(stop(record, StopCause.FAILED, at_s, text), exit_code=exit_code)


def _start_failed(record: JobRecord, event: GangStartFailed, policy: Policy, at_s: int) -> JobRecord:
    if record.state not in (JobState.PLANNED, JobState.STARTING):
        return record
    where = f" on host {event.host}" if event.host else ""
    return stop(record, StopCause.START_FAILED, at_s, f"the start failed{where}: {event.cause}")


def _progress(record: JobRecord, event: GangProgress, policy: Policy, at_s: int) -> JobRecord:
    if event.saved_work_s < record.progress.saved_work_s:
        return record
    return replace(record, progress=Progress(saved_work_s=event.saved_work_s, last_checkpoint_s=at_s))


def _released(record: JobRecord, event: GangReleased, policy: Policy, at_s: int) -> JobRecord:
    if record.state is not JobState.STOPPING:
        record = stop(record, StopCause.REQUEUED, at_s, "the executor gave the attempt up without an exit code")
    cause = record.stop_cause or StopCause.REQUEUED
    state = OUTCOMES[cause]
    changes: dict[str, Any] = {}
    if cause in (StopCause.START_FAILED, StopCause.START_TIMEOUT):
        state, changes = _after_failed_start(record, policy.failure, at_s)
    elif cause is StopCause.HOST_LOST:
        state, changes = _after_lost_host(record, policy, at_s)
    if state in (JobState.QUEUED, JobState.HELD):
        changes = {"stop_cause": None, "planned_s": None, "started_s": None, "exit_code": None, **changes}
    return move(record, state, at_s, placement=None, inside_guarantee=False, **changes)


def _after_failed_start(record: JobRecord, failure: FailurePolicy, at_s: int) -> tuple[JobState, dict[str, Any]]:
    failed = record.failed_starts + 1
    if failed >= failure.max_failed_starts:
        text = f"{failed} starts failed in a row, the last: {record.message}"
        return JobState.FAILED, {"failed_starts": failed, "message": text}
    return JobState.QUEUED, {"failed_starts": failed, "not_before_s": at_s + backoff_s(failed, failure)}


def _after_lost_host(record: JobRecord, policy: Policy, at_s: int) -> tuple[JobState, dict[str, Any]]:
    if record.restarts >= record.job.max_restarts:
        text = f"its {record.job.max_restarts} restarts are used up: {record.message}"
        return JobState.FAILED, {"message": text}
    # The lost host is among them: it may come back in time.
    hosts = record.placement.hosts if record.placement else ()
    until_s = at_s + policy.time.replace_grace_s
    return JobState.QUEUED, {
        "restarts": record.restarts + 1,
        "replacing": hosts,
        "replacing_until_s": until_s,
        "resized_to": None,
    }


_HANDLERS: dict[type, Callable[[JobRecord, Any, Policy, int], JobRecord]] = {
    GangReserved: _reserved,
    GangRunning: _running,
    GangExited: _exited,
    GangStartFailed: _start_failed,
    GangProgress: _progress,
    GangReleased: _released,
}
