"""A submission: read the job, ask whether it could ever run here, put it in the queue."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

from ..model.errors import NotFound
from ..model.ids import JobId
from ..model.job import Job
from . import engine, jobfile, schemas
from .context import Context
from .problems import Problem


def job_of(data: Any, client_key: str | None) -> Job:
    """The job of a phalanx.job document or of the friendly form of a job file.

    A job without an id gets one made of its name; with a client key the same key makes the same id, so that a
    repeated request names the same job. Raises InvalidInput.
    """
    name = data.get("name") if isinstance(data, dict) else ""
    return jobfile.job_from_dict(data, default_id=_default_id(name, client_key))


def submit_job(ctx: Context, job: Job, client_key: str | None) -> schemas.SubmitAnswer:
    """Admits and queues a job. Raises Problem 422, with the nearest request that fits, for one that can never run."""
    now_s = ctx.clock.now_s()
    admission = ctx.admit(job, ctx.store.snapshot(now_s), ctx.policy)
    if not admission.accepted and not (client_key and _queued_before(ctx, job)):
        why = engine.sentence(admission.reason) if admission.reason else "this fleet can never run the job."
        told = why if admission.nearest in why else f"{why} Nearest that fits: {admission.nearest}"
        raise Problem(422, told, kind="urn:phalanx:never-fits", nearest=admission.nearest)
    done = ctx.store.submit(job, now_s=now_s, client_key=client_key)
    if done.created:
        ctx.forecasts.refresh()
    record = ctx.store.job(done.job)
    money = (f"it is accepted as {record.message}",) if record.demoted else ()
    return schemas.SubmitAnswer(job=done.job, created=done.created, warnings=[*admission.warnings, *money])


def _queued_before(ctx: Context, job: Job) -> bool:
    """Whether this very job is known: then its repeat is answered as the first was, whatever became of the fleet."""
    try:
        return ctx.store.job(job.id).job == job
    except NotFound:
        return False


def _default_id(name: Any, client_key: str | None) -> JobId:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] if isinstance(name, str) else ""
    tail = hashlib.sha256(client_key.encode()).hexdigest()[:12] if client_key else secrets.token_hex(4)
    return JobId(f"{slug or 'job'}-{tail}")
