"""Reasons in what is not to be used although it is free: limits, reserved pools, labels, and maintenance windows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from ..model.decision import Reason, ReasonKind
from ..model.host import MILLI
from ..model.job import Job
from ..model.placement import Placement
from ..model.snapshot import JobRecord
from .world_view import Spot
from .worlds import Worlds


def at_limit(base: Reason, job: Job, lifted: Spot, worlds: Worlds) -> Reason:
    """The limit that the gang would go beyond there: what the team may hold, and what it holds with this round."""
    ledger = worlds.books.ledger
    key = next(ledger.exceeded(job.team, lifted.milli), None)
    if key is None:
        return replace(base, kind=ReasonKind.QUOTA, subject=f"team {job.team} is at its limit")
    (team, gpu_type), most, held, kept = key, ledger.limit(key), ledger.held(key), ledger.kept(key)
    subject = f"team {team} may hold {_gpus(most)} {gpu_type} and holds {_gpus(held)}"
    if kept:
        subject += f", with {_gpus(kept)} more left for higher levels"
    available = max(0, most - held - kept)
    return replace(base, kind=ReasonKind.QUOTA, subject=subject, asked=lifted.milli[gpu_type], available=available)


def reserved(base: Reason, lifted: Spot, worlds: Worlds) -> Reason:
    """The reserved pools at the sites where the gang would be placed without them."""
    used = set(lifted.hosts)
    sites = sorted({host.path.site for host in worlds.hosts() if host.id in used})
    pools = [pool for pool in worlds.reserved() if pool.site in sites]
    named = ", ".join(f"{_gpus(pool.gpu_milli)} {pool.gpu_type} at {pool.site}" for pool in pools)
    return replace(base, kind=ReasonKind.POOL, subject=named)


def beside_label(base: Reason, job: Job, lifted: Placement, worlds: Worlds) -> Reason:
    """A job with the gang's label that is where the gang would be placed without it."""
    found = worlds.books.ledger.beside(job, lifted)
    if found is None:
        subject = "none of the domains without one has room"
    else:
        (label, layer, _), name, host = found
        where = f"on {host}" if layer.width == 0 else f"in the {layer} of {host}"
        subject = f"job {name} with the label {label!r} is {where}"
    return replace(base, kind=ReasonKind.AFFINITY, subject=subject)


def enters_maintenance(base: Reason, record: JobRecord, lifted: Spot, worlds: Worlds) -> Reason:
    """The first of the hosts there that enters maintenance before the gang is surely over."""
    windows = worlds.windows(record, lifted.hosts)
    start_s, host = windows[0]
    more = f" (and {len(windows) - 1} more of its hosts later)" if len(windows) > 1 else ""
    when = datetime.fromtimestamp(start_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
    verb = "enters" if start_s > worlds.now_s else "entered"
    return replace(
        base,
        kind=ReasonKind.MAINTENANCE,
        subject=f"host {host} {verb} maintenance at {when}{more}",
        asked=worlds.over_s(record) - worlds.now_s,
        available=max(0, start_s - worlds.now_s),
        unit="s",
    )


def _gpus(milli: int) -> str:
    return f"{milli / MILLI:g}"
