"""Jobs: submit, list, look at, steer, and read what their ranks wrote."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Response

from ...model.errors import NotFound
from ...model.ids import JobId, TeamId
from ...model.job_state import WAITING, JobState
from ...model.snapshot import JobRecord
from .. import convert, schemas
from ..body import JOB, SMALL, JsonBody, read_as
from ..context import Context, Ctx
from ..eventlog import story_of
from ..logs import tail_lines
from ..problems import Problem
from ..steps import steps_of
from ..submit import job_of, submit_job

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Tag = Annotated[str | None, Header(description="Act only on this version of the job (its ETag).")]
_JOB_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A phalanx.job document (docs/formats/), or the friendly form of a job file as JSON.",
        "content": {
            "application/json": {
                "schema": {"type": "object"},
                "example": {
                    "name": "resnet",
                    "team": "vision",
                    "gpus": 8,
                    "workers": 2,
                    "gpu_type": ["H100"],
                    "cpu": 16,
                    "memory": "128GiB",
                    "walltime": "4h",
                    "command": ["python", "train.py"],
                },
            }
        },
    }
}
_PRIORITY_BODY = {
    "requestBody": {"content": {"application/json": {"schema": schemas.PriorityRequest.model_json_schema()}}}
}


@router.post("", status_code=201, openapi_extra=_JOB_BODY)
def submit(
    ctx: Ctx,
    response: Response,
    body: Annotated[Any, Depends(JsonBody(JOB))],
    idempotency_key: Annotated[str | None, Header(max_length=200)] = None,
) -> schemas.SubmitAnswer:
    """Puts a job in the queue. 200 instead of 201 where the Idempotency-Key is known: the first job is named again.

    A job that this fleet could never run is refused with 422 and the nearest request that would fit.
    """
    answer = submit_job(ctx, job_of(body, idempotency_key), idempotency_key)
    response.headers["Location"] = f"/v1/jobs/{answer.job}"
    if not answer.created:
        response.status_code = 200
    return answer


@router.get("")
def list_jobs(
    ctx: Ctx,
    state: Annotated[list[JobState] | None, Query(description="Only these states; repeat for several.")] = None,
    team: Annotated[str | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> schemas.JobPage:
    """Jobs, newest first, filtered, in pages."""
    page = ctx.store.jobs(states=tuple(state or ()), team=TeamId(team) if team else None, limit=limit, cursor=cursor)
    why = convert.reasons(ctx.newest_round())
    now_s = ctx.clock.now_s()
    waits = any(record.state in WAITING for record in page.jobs)
    told = ctx.forecasts.views(now_s) if waits else {}
    jobs = [convert.job_summary(record, now_s, _why(record, why), _told(record, told)) for record in page.jobs]
    return schemas.JobPage(jobs=jobs, next_cursor=page.next_cursor)


@router.get(
    "/{job}",
    response_model=schemas.JobView,
    responses={304: {"description": "Unchanged since the version of If-None-Match."}},
)
def one_job(
    ctx: Ctx, job: str, response: Response, if_none_match: Annotated[str | None, Header()] = None
) -> schemas.JobView | Response:
    """One job: where it stands, where it runs, why it waits, and its story."""
    record = ctx.store.job(JobId(job))
    response.headers["ETag"] = _etag(record)
    # A waiting job's reason and forecast change without its row changing, so only the others can be "unchanged".
    if if_none_match == _etag(record) and record.state not in (JobState.QUEUED, JobState.BLOCKED):
        return Response(status_code=304, headers={"ETag": _etag(record)})
    return view(ctx, record, explain=True)


@router.post("/{job}/cancel")
def cancel(ctx: Ctx, job: str, response: Response, if_match: Tag = None) -> schemas.JobView:
    """Ends a waiting job at once; one that holds capacity is stopped first. An ended job stays as it is."""
    _check_tag(ctx, job, if_match)
    return _changed(ctx, ctx.store.cancel(JobId(job), now_s=ctx.clock.now_s()), response)


@router.post("/{job}/hold")
def hold(ctx: Ctx, job: str, response: Response, if_match: Tag = None) -> schemas.JobView:
    """Keeps a job from being placed; one that holds capacity is stopped first."""
    _check_tag(ctx, job, if_match)
    return _changed(ctx, ctx.store.hold(JobId(job), now_s=ctx.clock.now_s()), response)


@router.post("/{job}/resume")
def resume(ctx: Ctx, job: str, response: Response, if_match: Tag = None) -> schemas.JobView:
    """Lets a held job queue again, with its age; requeues a failed, cancelled or expired one."""
    _check_tag(ctx, job, if_match)
    return _changed(ctx, ctx.store.resume(JobId(job), now_s=ctx.clock.now_s()), response)


@router.post("/{job}/priority", openapi_extra=_PRIORITY_BODY)
def priority(
    ctx: Ctx,
    job: str,
    response: Response,
    body: Annotated[Any, Depends(JsonBody(SMALL))],
    if_match: Tag = None,
) -> schemas.JobView:
    """Changes the job's priority inside its team and level."""
    wanted = read_as(body, schemas.PriorityRequest).priority
    _check_tag(ctx, job, if_match)
    return _changed(ctx, ctx.store.set_priority(JobId(job), wanted, now_s=ctx.clock.now_s()), response)


@router.get("/{job}/logs")
def logs(
    ctx: Ctx,
    job: str,
    rank: Annotated[int, Query(ge=0, le=100_000)] = 0,
    tail: Annotated[int, Query(ge=1, le=10_000)] = 200,
    attempt: Annotated[int | None, Query(ge=1, le=1_000_000, description="The newest attempt by default.")] = None,
) -> schemas.LogView:
    """The last lines that one rank wrote; empty while it has written nothing."""
    record = ctx.store.job(JobId(job))
    number = record.attempt if attempt is None else attempt
    if rank >= record.job.workers:
        raise NotFound(f"job {job} has ranks 0 to {record.job.workers - 1}, not {rank}")
    if number > record.attempt:
        raise NotFound(f"job {job} has had {record.attempt} attempts, not {number}")
    lines = tail_lines(ctx.settings.log_dir / record.id / str(number) / f"{rank}.log", tail)
    return schemas.LogView(job=record.id, attempt=number, rank=rank, lines=lines)


def view(ctx: Context, record: JobRecord, *, explain: bool = False) -> schemas.JobView:
    """The job in full, as the routes and the page of a job show it.

    `explain` has a reason worked out where the newest round had no work left for that, which may take seconds.
    """
    newest = ctx.newest_round()
    why = _why(record, convert.reasons(newest))
    if explain and newest is not None and why is not None:
        found = ctx.whys.reason(newest, record.id)
        why = why if found is None else convert.reason(found, newest.number)
    now_s = ctx.clock.now_s()
    told = _told(record, ctx.forecasts.views(now_s)) if record.state in WAITING else None
    steps = steps_of(ctx.settings.log_dir, record)
    return convert.job(record, now_s, why, story_of(ctx.store, record.id), told, steps)


def _told(record: JobRecord, told: dict[str, schemas.ForecastView]) -> schemas.ForecastView | None:
    return told.get(record.id) if record.state in WAITING else None


def _why(record: JobRecord, why: dict[str, schemas.ReasonView]) -> schemas.ReasonView | None:
    return None if record.state.holds_capacity else why.get(record.id) if not record.state.ended else None


def _changed(ctx: Context, record: JobRecord, response: Response) -> schemas.JobView:
    response.headers["ETag"] = _etag(record)
    return view(ctx, record)


def _etag(record: JobRecord) -> str:
    return f'"{record.version}"'


def _check_tag(ctx: Context, job: str, tag: str | None) -> None:
    if tag is None or tag == "*":
        return
    current = _etag(ctx.store.job(JobId(job)))
    if tag.strip() != current:
        raise Problem(412, f"job {job} has changed: its version is {current}, not {tag}")
