"""Submissions and requests about jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ...model.codec import dumps
from ...model.errors import InvalidInput
from ...model.ids import JobId
from ...model.job import Job
from ...model.policy import Policy
from ...model.snapshot import JobRecord
from ..ports import Submitted
from . import lifecycle
from .books import Books, ClientKey
from .budget import Purse
from .changes import log_job, require_job, save

MAX_KEY = 200


def submit(books: Books, job: Job, client_key: str | None, now_s: int, policy: Policy) -> Submitted:
    """Queues the job, or returns the one that this client key made. Raises InvalidInput."""
    document = dumps(job)
    if client_key is not None:
        known = _known(books, client_key, document)
        if known is not None:
            return Submitted(job=known, created=False)
    if books.job(job.id) is not None:
        raise InvalidInput("id", f"a job named {job.id!r} exists", "a name that is not in use")
    _check_team(books, job)
    others = dependencies(books, job)
    record = Purse(books, now_s, policy).judged(lifecycle.new_record(job, others, now_s))
    books.put_job(record)
    log_job(books, record, "submitted", now_s, {"user": job.user, "team": job.team})
    settled = lifecycle.on_dependencies(record, others, now_s)
    if save(books, record, settled, now_s) != record:
        log_job(books, settled, "dependency_ended", now_s)
    if client_key is not None:
        books.put_client_key(ClientKey(key=client_key, job=job.id, document=document))
    return Submitted(job=job.id, created=True)


def cancel(books: Books, job: JobId, now_s: int) -> JobRecord:
    """Ends the job, or stops it first."""
    return _change(books, job, "cancel", now_s, lambda record: lifecycle.on_cancel(record, now_s))


def hold(books: Books, job: JobId, now_s: int) -> JobRecord:
    """Keeps the job from being placed."""
    return _change(books, job, "hold", now_s, lambda record: lifecycle.on_hold(record, now_s))


def resume(books: Books, job: JobId, now_s: int) -> JobRecord:
    """Lets the job queue again."""

    def change(record: JobRecord) -> JobRecord:
        return lifecycle.on_resume(record, dependencies(books, record.job), now_s)

    return _change(books, job, "resume", now_s, change)


def set_priority(books: Books, job: JobId, priority: int, now_s: int) -> JobRecord:
    """Changes the job's priority inside its team and level."""
    details = {"priority": priority}
    return _change(books, job, "priority", now_s, lambda record: lifecycle.on_priority(record, priority), details)


def dependencies(books: Books, job: Job) -> tuple[JobRecord, ...]:
    """The jobs that this one waits for. InvalidInput where one does not exist: only older jobs can be waited for."""
    found = []
    for index, other in enumerate(job.after):
        record = books.job(other)
        if record is None:
            raise InvalidInput(f"after[{index}]", f"there is no job {other!r}", "jobs that were submitted before")
        found.append(record)
    return tuple(found)


def _known(books: Books, client_key: str, document: str) -> JobId | None:
    if not 1 <= len(client_key) <= MAX_KEY or not client_key.isprintable():
        raise InvalidInput("client_key", f"{client_key[:40]!r} is not a key", f"1 to {MAX_KEY} printable characters")
    known = books.client_key(client_key)
    if known is None:
        return None
    # A client that lets the service name its job gets a fresh name with each try; all else must be equal.
    if _nameless(known.document) != _nameless(document):
        raise InvalidInput(
            "client_key", f"{client_key!r} was used for job {known.job!r}, which is another job", "a new key for it"
        )
    return known.job


def _nameless(document: str) -> dict[str, object]:
    return {key: value for key, value in json.loads(document).items() if key != "id"}


def _check_team(books: Books, job: Job) -> None:
    if books.team(job.team) is None:
        teams = ", ".join(row.team.id for row in books.teams()[:20])
        raise InvalidInput(
            "team", f"there is no team {job.team!r}", f"one of {teams}" if teams else "a team to be added"
        )


def _change(
    books: Books,
    job: JobId,
    kind: str,
    now_s: int,
    change: Callable[[JobRecord], JobRecord],
    details: dict[str, Any] | None = None,
) -> JobRecord:
    old = require_job(books, job)
    new = save(books, old, change(old), now_s)
    if new is not old:
        log_job(books, new, kind, now_s, details)
    return new
