"""The log as a stream of server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from ...adapters.ports import Store
from ..context import Ctx
from ..eventlog import newest_number
from ..problems import Problem
from ..story import event_view

router = APIRouter(prefix="/v1", tags=["events"])
POLL_S = 0.5
KEEP_ALIVE_S = 15.0


@router.get("/events", response_class=StreamingResponse)
async def events(
    request: Request,
    ctx: Ctx,
    after: Annotated[int | None, Query(ge=0, le=2**62, description="Begin after this number.")] = None,
    subject: Annotated[str | None, Query(max_length=200, description='Only about this, such as "job j1".')] = None,
    last_event_id: Annotated[str | None, Header(description="As browsers send it when they reconnect.")] = None,
) -> StreamingResponse:
    """Entries of the log as they come, from now on or after a number; each carries its number as its id."""
    start = after
    if last_event_id is not None:
        if not last_event_id.isdigit() or len(last_event_id) > 18:
            raise Problem(400, f"Last-Event-ID {last_event_id[:40]!r} is not a number of the log")
        start = int(last_event_id)
    if start is None:
        start = await run_in_threadpool(newest_number, ctx.store)
    stream = event_stream(ctx.store, start, subject, request)
    return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def event_stream(
    store: Store, after: int, subject: str | None, request: Request, *, poll_s: float = POLL_S
) -> AsyncIterator[str]:
    """The frames of the stream; ends when the client has gone. A comment every 15 s keeps proxies from closing it."""
    yield "retry: 2000\n\n"
    quiet_s = 0.0
    while not await request.is_disconnected():
        entries = await run_in_threadpool(store.events, after=after, limit=200, subject=subject)
        for entry in entries:
            after = entry.number
            yield f"id: {entry.number}\nevent: {entry.kind}\ndata: {event_view(entry).model_dump_json()}\n\n"
        quiet_s = 0.0 if entries else quiet_s + poll_s
        if quiet_s >= KEEP_ALIVE_S:
            quiet_s = 0.0
            yield ": still here\n\n"
        if not entries:
            await asyncio.sleep(poll_s)
