"""The fleet as the page draws it: sites, racks, hosts, and each card with who is on it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ...model.decision import Prefetch
from ...model.host import MILLI, Gpu, Host
from ...model.ids import HostId
from ..usage import HostUsage

HUES = 24
"""Colours that jobs are told apart by; the stylesheet has a class for each."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One card: its tooltip, the job to link to, its colour, and how full it is in quarters (0 to 4)."""

    title: str
    job: str
    hue: int
    quarters: int
    healthy: bool


@dataclass(frozen=True, slots=True)
class HostBox:
    """One host; `told` says in words what the cells show, `loads` which data sets are being loaded ahead."""

    name: str
    state: str
    cause: str
    told: str
    reserved_for: str
    loads: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class RackBox:
    """Hosts of one rack, or of one zone or site where there are no racks."""

    name: str
    hosts: tuple[HostBox, ...]


@dataclass(frozen=True, slots=True)
class SiteBox:
    """One site with its totals in GPUs."""

    name: str
    gpus: int
    busy: str
    types: str
    racks: tuple[RackBox, ...]


Orders = Mapping[HostId, Sequence[Prefetch]]


def fleet_map(
    hosts: Iterable[Host], usage: Mapping[HostId, HostUsage], orders: Orders | None = None
) -> tuple[SiteBox, ...]:
    """The boxes, in order of names; `orders` are the pre-stage orders that stand."""
    ordered = sorted(hosts, key=lambda host: (host.path.site, _rack(host), _natural(host.id)))
    sites = groupby(ordered, key=lambda host: host.path.site)
    return tuple(_site(site, list(group), usage, orders or {}) for site, group in sites)


def hue(job: str) -> int:
    """The colour of a job: the same on every page and after every restart."""
    return zlib.crc32(job.encode()) % HUES


def _site(name: str, hosts: list[Host], usage: Mapping[HostId, HostUsage], orders: Orders) -> SiteBox:
    racks = groupby(hosts, key=_rack)
    used = sum(sum(usage[host.id].gpu_milli.values()) for host in hosts if host.id in usage)
    return SiteBox(
        name=name,
        gpus=sum(len(host.gpus) for host in hosts),
        busy=f"{used / MILLI:g}",
        types=", ".join(sorted({gpu.gpu_type for host in hosts for gpu in host.gpus})) or "no GPUs",
        racks=tuple(RackBox(rack, tuple(_host(host, usage, orders) for host in group)) for rack, group in racks),
    )


def _rack(host: Host) -> str:
    return " / ".join(part for part in (host.path.zone, host.path.rack) if part)


def _natural(name: str) -> tuple[str, int, str]:
    digits = "".join(char for char in name if char.isdigit())
    return (name.rstrip("0123456789"), int(digits[:15] or 0), name)


def _host(host: Host, usages: Mapping[HostId, HostUsage], orders: Orders) -> HostBox:
    usage = usages.get(host.id, HostUsage())
    free = sum(1 for gpu in host.gpus if gpu.healthy and not usage.gpu_milli.get(gpu.index))
    jobs = f", in use by {', '.join(usage.jobs)}" if usage.jobs else ""
    held = f", held for {', '.join(usage.reserved_for)}" if usage.reserved_for else ""
    loads = ", ".join(dict.fromkeys(order.dataset.name for order in orders.get(host.id, ())))
    return HostBox(
        name=host.id,
        state=host.state,
        cause=host.state_cause,
        told=f"{len(host.gpus)} GPUs, {free} free{jobs}{held}" + (f", loads {loads}" if loads else ""),
        reserved_for=", ".join(usage.reserved_for),
        loads=loads,
        cells=tuple(_cell(gpu, usage) for gpu in host.gpus),
    )


def _cell(gpu: Gpu, usage: HostUsage) -> Cell:
    used = usage.gpu_milli.get(gpu.index, 0)
    jobs = usage.gpu_jobs.get(gpu.index, [])
    memory = f"{gpu.memory_mib / 1024:.0f} GiB"
    state = "unhealthy" if not gpu.healthy else f"{used / 10:g} % booked by {', '.join(jobs)}" if jobs else "free"
    return Cell(
        title=f"GPU {gpu.index}: {gpu.gpu_type}, {memory}, {state}",
        job=jobs[0] if jobs else "",
        hue=hue(jobs[0]) if jobs else 0,
        quarters=-(-4 * used // MILLI),
        healthy=gpu.healthy,
    )
