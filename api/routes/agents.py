"""What host agents report."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends

from ...model import codec
from ...model.errors import InvalidInput
from ...model.event import AgentReport, Event
from .. import schemas
from ..body import JOB, JsonBody
from ..context import Ctx

router = APIRouter(prefix="/v1/agents", tags=["agents"])
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A phalanx.event document of type agent_report (docs/formats/).",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


@router.post("/report", openapi_extra=_BODY)
def report(ctx: Ctx, body: Annotated[Any, Depends(JsonBody(JOB))]) -> schemas.ReportAnswer:
    """Takes one report: that the host lives, its free disk, and which shards it has cached.

    The answer has the pre-stage orders: data sets to load before gangs start there.
    """
    event: Any = codec.from_document(body, Event)
    if not isinstance(event, AgentReport):
        raise InvalidInput("type", f"a {codec.tag(type(event))}", '"agent_report": agents report nothing else')
    host = ctx.store.host(event.host)
    if host.path.site != event.site:
        raise InvalidInput("site", f"host {event.host} stands in {host.path.site}, not {event.site}", host.path.site)
    applied = ctx.store.append([event], now_s=ctx.clock.now_s())
    orders = [codec.encode(order) for order in ctx.orders.of(host, event)]
    return schemas.ReportAnswer(applied=applied, prefetches=orders)
