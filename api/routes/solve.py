"""One round without the service: a snapshot and a policy in, a decision out."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends

from ...model import codec
from ...model.errors import InvalidInput
from ...model.policy import Policy
from ...model.snapshot import Snapshot
from .. import schemas
from ..body import SOLVE, JsonBody, read_as
from ..context import Ctx
from ..problems import Problem

router = APIRouter(prefix="/v1", tags=["solve"])
MAX_BUDGET_MS = 60_000
PATIENCE_S = 30.0
# More at once would only slow each other, and the rest of the API, down.
_SEATS = threading.BoundedSemaphore(2)
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A phalanx.snapshot document and, optionally, a phalanx.policy document.",
        "content": {"application/json": {"schema": schemas.SolveRequest.model_json_schema()}},
    }
}


@router.post("/solve", openapi_extra=_BODY)
def solve(ctx: Ctx, body: Annotated[Any, Depends(JsonBody(SOLVE))]) -> schemas.Document:
    """The decision of one round over the snapshot given, as a phalanx.decision document. Nothing is stored.

    Without a policy the service's own holds; a budget beyond 60 s is cut to that.
    """
    request = read_as(body, schemas.SolveRequest)
    snapshot = _document("snapshot", request.snapshot, Snapshot)
    policy = ctx.policy if request.policy is None else _document("policy", request.policy, Policy)
    budget_ms = min(policy.solve.budget_ms, MAX_BUDGET_MS)
    policy = replace(policy, solve=replace(policy.solve, budget_ms=budget_ms))
    if not _SEATS.acquire(timeout=PATIENCE_S):
        raise Problem(503, "other rounds are being solved; try again later", headers={"Retry-After": "10"})
    try:
        return codec.document(ctx.solve(snapshot, policy))
    finally:
        _SEATS.release()


def _document(field: str, data: Any, expected: type) -> Any:
    try:
        return codec.from_document(data, expected)
    except InvalidInput as fault:
        raise fault.under(field) from None
