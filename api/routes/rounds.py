"""Rounds: what the scheduler decided, how good that is proven to be, and how the service has done."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from .. import convert, schemas_rounds
from ..context import Ctx

router = APIRouter(prefix="/v1", tags=["rounds"])


@router.get("/rounds")
def list_rounds(
    ctx: Ctx,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: Annotated[int | None, Query(ge=1, le=2**62, description="Only rounds before this number.")] = None,
) -> schemas_rounds.RoundPage:
    """Rounds, newest first. Rounds in which nothing waited and nothing changed are not kept."""
    records = ctx.store.rounds(limit=limit, before=before)
    more = records[-1].number if len(records) == limit else None
    return schemas_rounds.RoundPage(rounds=[convert.round_view(record) for record in records], next_before=more)


@router.get("/rounds/{number}")
def one_round(ctx: Ctx, number: Annotated[int, Path(ge=1, le=2**62)]) -> schemas_rounds.RoundDetail:
    """One round: goals with bounds and status, stage times, reasons, and the whole decision."""
    return convert.round_detail(ctx.store.round(number))


@router.get("/summary")
def summary(ctx: Ctx) -> schemas_rounds.SummaryView:
    """Waits, allocation, rounds and goals since the service began."""
    return ctx.tally.summary(ctx.clock.now_s())
