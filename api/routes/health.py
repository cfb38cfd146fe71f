"""Is the process alive, and can the service take work?"""

from __future__ import annotations

import logging

from fastapi import APIRouter, Response

from .. import schemas
from ..context import Context, Ctx
from ..loop import LEASE

router = APIRouter(tags=["health"])
log = logging.getLogger(__name__)


@router.get("/healthz")
def healthz() -> dict[str, str]:
    """This process answers."""
    return {"status": "alive"}


@router.get("/readyz")
def readyz(ctx: Ctx, response: Response) -> schemas.ReadyView:
    """200 when the store answers and a scheduler leads, else 503 saying which does not."""
    view = _look(ctx)
    if not view.ready:
        response.status_code = 503
    return view


def _look(ctx: Context) -> schemas.ReadyView:
    try:
        lease = ctx.store.lease(LEASE)
    except Exception:
        # Whatever the driver raises, the answer is the same: the store does not answer.
        log.exception("the store does not answer")
        return schemas.ReadyView(ready=False, store="does not answer")
    leads = lease is not None and lease.expires_s > ctx.clock.now_s()
    return schemas.ReadyView(ready=leads, store="answers", leader=lease.holder if lease and leads else None)
