"""Hosts: what they offer, what is booked on them, and taking them out of use."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response

from ...model.errors import IllegalTransition
from ...model.event import HostChanged
from ...model.host import Host, HostState
from ...model.ids import HostId
from ...solver.prefetch import open_prefetches
from .. import convert, schemas
from ..body import SMALL, OptionalJsonBody, read_as
from ..context import Context, Ctx
from ..prestage import by_host
from ..usage import usage_by_host

router = APIRouter(prefix="/v1/hosts", tags=["hosts"])
_CORDON_BODY: dict[str, Any] = {
    "requestBody": {"content": {"application/json": {"schema": schemas.CordonRequest.model_json_schema()}}}
}
Body = Annotated[Any, Depends(OptionalJsonBody(SMALL))]


@router.get("")
def list_hosts(ctx: Ctx) -> schemas.HostList:
    """All hosts with what is booked on each."""
    snapshot = ctx.store.snapshot(ctx.clock.now_s())
    usage = usage_by_host(snapshot.jobs, snapshot.reservations)
    orders = by_host(open_prefetches(snapshot, ctx.policy))
    return schemas.HostList(
        hosts=[convert.host(host, usage[host.id], orders.get(host.id, ())) for host in snapshot.hosts]
    )


@router.get("/{host}")
def one_host(ctx: Ctx, host: str, response: Response) -> schemas.HostView:
    """One host."""
    return _view(ctx, ctx.store.host(HostId(host)), response)


@router.post("/{host}/cordon", openapi_extra=_CORDON_BODY)
def cordon(ctx: Ctx, host: str, response: Response, body: Body) -> schemas.HostView:
    """Takes the host out of use for new work; what runs there runs on."""
    cause = read_as(body, schemas.CordonRequest).cause or "cordoned by an operator"
    return _change(ctx, ctx.store.host(HostId(host)), HostState.CORDONED, cause, response)


@router.post("/{host}/uncordon", openapi_extra=_CORDON_BODY)
def uncordon(ctx: Ctx, host: str, response: Response, body: Body) -> schemas.HostView:
    """Gives a host back to use. A host that is down comes back by itself when it answers: 409."""
    read_as(body, schemas.CordonRequest)
    current = ctx.store.host(HostId(host))
    if current.state is HostState.DOWN:
        raise IllegalTransition(f"host {host} is down ({current.state_cause or 'no cause known'}), not cordoned")
    return _change(ctx, current, HostState.READY, "", response)


def _change(ctx: Context, host: Host, state: HostState, cause: str, response: Response) -> schemas.HostView:
    if host.state is not state:
        now_s = ctx.clock.now_s()
        # Named after the row's version: the same request twice is one event, the next change another.
        event = HostChanged(id=f"{host.id}/{state}/{host.version}", at_s=now_s, host=host.id, state=state, cause=cause)
        ctx.store.append([event], now_s=now_s)
        host = ctx.store.host(host.id)
    return _view(ctx, host, response)


def _view(ctx: Context, host: Host, response: Response) -> schemas.HostView:
    response.headers["ETag"] = f'"{host.version}"'
    snapshot = ctx.store.snapshot(ctx.clock.now_s())
    orders = by_host(open_prefetches(snapshot, ctx.policy))
    return convert.host(host, usage_by_host(snapshot.jobs, snapshot.reservations)[host.id], orders.get(host.id, ()))
