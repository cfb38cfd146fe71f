"""Writing a job's changed record, with all that follows from the change in the same transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...model import check
from ...model.codec import encode
from ...model.errors import InvalidInput, NotFound
from ...model.ids import HostId, JobId
from ...model.intent import Want
from ...model.job_state import JobState
from ...model.reservation import Reservation
from ...model.snapshot import JobRecord
from .books import Books, HostRow, LogEntry


def require_job(books: Books, job: JobId) -> JobRecord:
    """The job's record. Raises NotFound."""
    record = books.job(job) if is_name(job) else None
    if record is None:
        raise NotFound(f"there is no job {job!r}")
    return record


def require_host(books: Books, host: HostId) -> HostRow:
    """The host's row. Raises NotFound."""
    row = books.host(host) if is_name(host) else None
    if row is None:
        raise NotFound(f"there is no host {host!r}")
    return row


def save(
    books: Books, old: JobRecord, new: JobRecord, now_s: int, promises: Sequence[Reservation] | None = None
) -> JobRecord:
    """Writes the record with its next version, and keeps intents, hosts and reservations in step with it.

    `promises`: all reservations, where they were read already. Returns the record as stored; an unchanged one is not
    written.
    """
    if new == old:
        return old
    stored = replace(new, version=old.version + 1)
    books.put_job(stored)
    if new.state is JobState.STOPPING and old.state is not JobState.STOPPING:
        _want_stop(books, new, now_s)
    if old.placement is not None and new.placement is None:
        books.drop_intent(old.id)
        books.bump_hosts(old.placement.hosts)
    if old.state is JobState.QUEUED and new.state is not JobState.QUEUED:
        # A promise is made to a waiting job only; left behind, it would keep its hosts empty for nobody.
        standing = books.reservations() if promises is None else promises
        books.drop_reservations([promise.id for promise in standing if promise.job == old.id])
    return stored


def is_name(text: str) -> bool:
    """Whether anything can have that name; other text (with a NUL, say) must not reach a database."""
    try:
        check.name("", text)
    except InvalidInput:
        return False
    return True


def log_job(books: Books, record: JobRecord, kind: str, now_s: int, details: dict[str, Any] | None = None) -> None:
    """Writes what was asked of, or decided on, a job into the log, with the state that came of it."""
    body = {"job": record.id, "attempt": record.attempt, "state": record.state.value, "message": record.message}
    books.log(
        LogEntry(at_s=now_s, kind=kind, subject=f"job {record.id}", document=to_text({**body, **(details or {})}))
    )


def to_text(value: Any) -> str:
    """Plain values or a domain object as compact JSON."""
    return json.dumps(encode(value), allow_nan=False, separators=(",", ":"))


def _want_stop(books: Books, record: JobRecord, now_s: int) -> None:
    row = books.intent(record.id)
    if row is not None:
        books.put_intent(replace(row, intent=replace(row.intent, want=Want.STOP, stop_at_s=now_s)))
