"""The agent of one host: reports its life, free disk and cache, and loads data sets as it is told."""

from __future__ import annotations

import logging
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from ...model import codec
from ...model.decision import Prefetch
from ...model.event import AgentReport
from ...model.host import CachedDataset
from ...model.ids import HostId, SiteId
from ..ports import Clock
from .prestage import Fill, Prestager, read_orders

Inventory = Callable[[Path], Sequence[CachedDataset]]
MIB = 2**20
log = logging.getLogger(__name__)


def no_inventory(cache: Path) -> Sequence[CachedDataset]:
    """The inventory where nothing can read a cache."""
    return ()


def run_agent(
    *,
    host: HostId,
    site: SiteId,
    url: str,
    cache: Path,
    clock: Clock,
    stop: Callable[[], bool],
    token: str = "",
    inventory: Inventory = no_inventory,
    fill: Fill | None = None,
    interval_s: float = 5.0,
    transport: httpx.BaseTransport | None = None,
) -> None:
    """Posts a report every `interval_s` seconds until `stop()`; `fill` carries out the pre-stage orders answered.

    A service that does not answer, or refuses, is told of in the log once and tried again at the next turn.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    agent = uuid.uuid4().hex[:12]
    number = 0
    answered = True
    prestager = Prestager(fill, clock) if fill else None
    # Agents talk to their own service: a proxy of the environment is for other machines.
    with httpx.Client(base_url=url, headers=headers, timeout=10.0, trust_env=False, transport=transport) as client:
        while not stop():
            number += 1
            report = make_report(f"{host}/{agent}/{number}", host, site, cache, clock.now_s(), inventory)
            fault, orders = _post(client, report)
            if fault and answered:
                log.warning("the report of host %s was not taken: %s", host, fault)
            answered = not fault
            # A service that does not answer has taken no order back.
            if prestager and orders is not None and not stop():
                prestager.offer(orders)
            _pause(clock, interval_s, stop)
    if prestager:
        prestager.close()


def make_report(name: str, host: HostId, site: SiteId, cache: Path, now_s: int, inventory: Inventory) -> AgentReport:
    """One report; a cache folder that does not exist yet holds nothing, and its file system's free space counts."""
    return AgentReport(
        id=name,
        at_s=now_s,
        host=host,
        site=site,
        disk_free_mib=free_mib(cache),
        cached=tuple(inventory(cache)),
    )


def free_mib(folder: Path) -> int:
    """Free MiB of the file system that holds the folder, or its nearest parent that exists."""
    there = folder.absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    try:
        return shutil.disk_usage(there).free // MIB
    except OSError:
        return 0


def _post(client: httpx.Client, report: AgentReport) -> tuple[str, tuple[Prefetch, ...] | None]:
    """What went wrong, or nothing; and the orders that stand, or None where that is not known."""
    body = codec.dumps(report)
    try:
        answer = client.post("/v1/agents/report", content=body, headers={"Content-Type": "application/json"})
    except httpx.HTTPError as fault:
        return str(fault) or type(fault).__name__, None
    if not answer.is_success:
        return f"{answer.status_code} {answer.text[:300]}", None
    try:
        return "", read_orders(answer.json())
    except ValueError:
        return "", None


def _pause(clock: Clock, seconds: float, stop: Callable[[], bool]) -> None:
    """Sleeps in small steps, so that a stop is heeded at once."""
    left = seconds
    while left > 0 and not stop():
        clock.sleep(min(0.2, left))
        left -= 0.2
