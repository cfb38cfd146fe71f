"""The pages for people: the fleet with its queue, and one job."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment

from ...adapters.ports import RoundRecord
from ...model.ids import JobId
from ...model.job_state import JobState
from ...model.snapshot import JobRecord, Snapshot
from ...solver.prefetch import open_prefetches
from .. import convert
from ..context import Context, Ctx
from ..logs import tail_lines
from ..prestage import by_host
from ..problems import Problem
from ..ui.fleet_map import fleet_map
from ..ui.render import FOLDER, render
from ..usage import usage_by_host
from .jobs import view

router = APIRouter(include_in_schema=False)
MOST_ROWS = 200
LOG_LINES = 60
ROUNDS = 11
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STATIC = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}


def _templates(request: Request) -> Environment:
    templates: Environment = request.app.state.templates
    return templates


Templates = Annotated[Environment, Depends(_templates)]


@router.get("/", response_class=HTMLResponse)
def index(ctx: Ctx, templates: Templates) -> HTMLResponse:
    """The fleet map, the queue with its reasons, what runs, the last round, and how the service has done."""
    now_s = ctx.clock.now_s()
    snapshot = ctx.store.snapshot(now_s)
    rounds = ctx.store.rounds(limit=ROUNDS)
    newest = rounds[0] if rounds else None
    waiting, active = _rows(ctx, snapshot, newest)
    ended = _ended(ctx)
    page = render(
        templates,
        "index.html",
        now_s=now_s,
        sites=fleet_map(
            snapshot.hosts,
            usage_by_host(snapshot.jobs, snapshot.reservations),
            by_host(open_prefetches(snapshot, ctx.policy)),
        ),
        waiting=waiting[:MOST_ROWS],
        waiting_total=len(waiting),
        active=active[:MOST_ROWS],
        active_total=len(active),
        ended=ended,
        round=convert.round_view(newest) if newest else None,
        rounds=[convert.round_view(record) for record in rounds[1:]],
        summary=ctx.tally.summary(now_s),
    )
    return HTMLResponse(page, headers=HEADERS)


@router.get("/jobs/{job}", response_class=HTMLResponse)
def job_page(
    ctx: Ctx, templates: Templates, job: str, rank: Annotated[int, Query(ge=0, le=100_000)] = 0
) -> HTMLResponse:
    """One job: where it stands, why it waits, its placement, its story, and the end of a rank's log."""
    record = ctx.store.job(JobId(job))
    rank = min(rank, record.job.workers - 1)
    path = ctx.settings.log_dir / record.id / str(record.attempt) / f"{rank}.log"
    page = render(
        templates,
        "job.html",
        now_s=ctx.clock.now_s(),
        job=view(ctx, record, explain=True),
        asks=[(role, convert.describe_request(role.request)) for role in record.job.roles],
        command=" ".join(record.job.command.argv) if record.job.command else "",
        rank=rank,
        lines=tail_lines(path, LOG_LINES),
    )
    return HTMLResponse(page, headers=HEADERS)


@router.get("/static/{name}")
def static(name: str) -> Response:
    """One of our own assets."""
    if name not in _STATIC:
        raise Problem(404, f"there is no asset {name!r}")
    headers = {"Cache-Control": "max-age=300", "X-Content-Type-Options": "nosniff"}
    return Response((FOLDER / "static" / name).read_bytes(), media_type=_STATIC[name], headers=headers)


@router.get("/favicon.ico")
def favicon() -> Response:
    """Browsers ask for it unbidden."""
    return static("icon.svg")


def _rows(ctx: Context, snapshot: Snapshot, newest: RoundRecord | None) -> tuple[list[object], list[object]]:
    """Waiting jobs in order of level, priority and age; active ones, newest first."""
    why = convert.reasons(newest)
    now_s = snapshot.now_s
    told = ctx.forecasts.views(now_s)
    waiting = [record for record in snapshot.jobs if not record.state.holds_capacity]
    active = [record for record in snapshot.jobs if record.state.holds_capacity]
    waiting.sort(key=lambda record: (-record.level, -record.job.priority, record.submitted_s, record.id))
    active.sort(key=lambda record: (-(record.planned_s or 0), record.id))
    return (
        [convert.job_summary(record, now_s, why.get(record.id), told.get(record.id)) for record in waiting],
        [convert.job_summary(record, now_s, None) for record in active],
    )


def _ended(ctx: Context) -> list[object]:
    states = tuple(state for state in JobState if state.ended)
    page = ctx.store.jobs(states=states, limit=20)
    records: list[JobRecord] = sorted(page.jobs, key=lambda record: -record.state_since_s)
    return [convert.job_summary(record, ctx.clock.now_s(), None) for record in records]
