"""What-if: a changed fleet, queue or policy beside today's, as an answer and as a page."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from fastapi.responses import HTMLResponse

from ...model import codec
from ...model.change import Change
from ...model.errors import InvalidInput
from ...model.policy import Policy
from ...model.snapshot import Snapshot
from .. import schemas
from ..body import SOLVE, JsonBody, read_as
from ..context import Ctx
from ..ui.render import render
from ..whatif import compare
from ..whatif_form import Form, change_of
from ..whatif_plain import plain, room_rows
from .pages import HEADERS, Templates

router = APIRouter(tags=["what-if"])
MOST_ROWS = 200
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A phalanx.change document; optionally the phalanx.snapshot and phalanx.policy it is made to.",
        "content": {
            "application/json": {
                "schema": schemas.WhatIfRequest.model_json_schema(),
                "example": {
                    "change": {"kind": "phalanx.change", "version": 1, "add_hosts": [{"like": "h1", "count": 4}]}
                },
            }
        },
    }
}


@router.post("/v1/whatif", openapi_extra=_BODY)
def whatif(ctx: Ctx, body: Annotated[Any, Depends(JsonBody(SOLVE))]) -> dict[str, Any]:
    """Both worlds after the round of now, and each waiting job's start in both. Nothing is stored or changed.

    Without a snapshot the live fleet is compared, without a policy the service's own holds.
    """
    request = read_as(body, schemas.WhatIfRequest)
    change = _document("change", request.change, Change)
    live = request.snapshot is None
    snapshot = ctx.store.snapshot(ctx.clock.now_s()) if live else _document("snapshot", request.snapshot, Snapshot)
    policy = ctx.policy if request.policy is None else _document("policy", request.policy, Policy)
    try:
        return plain(compare(snapshot, change, policy, ctx.forecasts.learned if live else None))
    except InvalidInput as fault:
        raise fault.under("change") from None


@router.get("/whatif", response_class=HTMLResponse, include_in_schema=False)
def whatif_page(
    ctx: Ctx,
    templates: Templates,
    like: Annotated[str, Query(max_length=200)] = "",
    count: Annotated[str, Query(max_length=20)] = "",
    remove: Annotated[str, Query(max_length=200)] = "",
    state_host: Annotated[str, Query(max_length=200)] = "",
    state: Annotated[str, Query(max_length=20)] = "",
    team: Annotated[str, Query(max_length=200)] = "",
    weight: Annotated[str, Query(max_length=20)] = "",
    drop: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """The form and, once it is filled, both worlds side by side; needs no script and changes nothing."""
    form = Form(like, count, remove, state_host, state, team, weight, drop)
    snapshot = ctx.store.snapshot(ctx.clock.now_s())
    seen, wrong = None, ""
    if form.filled:
        try:
            seen = plain(compare(snapshot, change_of(form), ctx.policy, ctx.forecasts.learned))
        except InvalidInput as fault:
            wrong = str(fault)
    page = render(
        templates,
        "whatif.html",
        now_s=snapshot.now_s,
        form=form,
        hosts=[host.id for host in snapshot.hosts],
        teams=sorted({team.id for team in snapshot.teams} | {record.job.team for record in snapshot.jobs}),
        jobs=[record.id for record in snapshot.jobs],
        seen=seen,
        moved=[] if seen is None else [entry for entry in seen["jobs"] if entry["verdict"] != "same"],
        rooms=[] if seen is None else room_rows(seen),
        most_rows=MOST_ROWS,
        wrong=wrong,
    )
    policy = HEADERS["Content-Security-Policy"].replace("form-action 'none'", "form-action 'self'")
    status = 422 if wrong else 200
    return HTMLResponse(page, status, headers={**HEADERS, "Content-Security-Policy": policy})


def _document(field: str, data: Any, expected: type) -> Any:
    try:
        return codec.from_document(data, expected)
    except InvalidInput as fault:
        raise fault.under(field) from None
