"""Pre-stage orders, stated once more: what may be ordered, what must be, and how much of it (docs/rounds.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..model.decision import Decision, Prefetch
from ..model.host import Host
from ..model.ids import HostId
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from .fetch import fetch_mbps, missing_mib, same_dataset
from .prefetch import Expected, expected
from .verify_planned import reservation_fault
from .violation import Violation


def prefetch(snapshot: Snapshot, policy: Policy, decision: Decision) -> Iterator[Violation]:
    """Each order is for a gang to come that lacks shards there; none is missing while the host has room for it."""
    told: dict[HostId, list[Prefetch]] = {}
    for order in decision.prefetches:
        told.setdefault(order.host, []).append(order)
    if [order.host for order in decision.prefetches] != [host for host in sorted(told) for _ in told[host]]:
        yield reservation_fault("prefetches", 1, "orders", "the pre-stage orders are not in the order of their hosts")
    coming: dict[HostId, list[Expected]] = {}
    for gang in expected(snapshot, decision.starts, decision.reservations, decision.resizes):
        for name in gang.hosts:
            coming.setdefault(name, []).append(gang)
    there = _there(snapshot, {*told, *coming})
    for host in snapshot.hosts:
        if host.id in there:
            orders, gangs = told.pop(host.id, []), coming.get(host.id, [])
            facts = _Host(host, gangs, there[host.id], fetch_mbps(host, snapshot, policy))
            yield from _host(host, orders, _lacking(host, gangs), facts)
    for name in told:
        yield reservation_fault(name, 1, "orders", f"host {name} is to load a data set, and there is no such host")


def _there(snapshot: Snapshot, hosts: set[HostId]) -> dict[HostId, list[JobRecord]]:
    """For each of the hosts the jobs that hold capacity there."""
    found: dict[HostId, list[JobRecord]] = {name: [] for name in hosts}
    for record in snapshot.jobs if hosts else ():
        for name in hosts.intersection(record.placement.hosts) if record.placement is not None else ():
            found[name].append(record)
    return found


class _Host:
    """What bounds the orders of one host: `room` in MiB, its `speed`, and what work without orders has `booked`.

    Both in Mbit/s.
    """

    def __init__(self, host: Host, coming: Sequence[Expected], there: Sequence[JobRecord], speed: int) -> None:
        self.speed = speed
        planned = {gang.record.id: gang.record for gang in coming}
        readers = [record.job.dataset for record in (*there, *planned.values()) if record.job.dataset is not None]
        idle = [c for c in host.cached if not any(same_dataset(c, dataset) for dataset in readers)]
        self.room = host.disk_free_mib + sum(cached.size_mib for cached in idle)
        self.booked = sum(_booked(record, host.id) for record in there if record.id not in planned)


def _booked(record: JobRecord, host: HostId) -> int:
    roles = {role.name: role.request for role in record.job.roles}
    workers = record.placement.workers if record.placement else ()
    return sum(roles[worker.role].network_mbps for worker in workers if worker.host == host and worker.role in roles)


def _lacking(host: Host, coming: Sequence[Expected]) -> list[Expected]:
    """Of the gangs to come there the first reader of each data set of which the host lacks some, in their order."""
    found: list[Expected] = []
    for gang in coming:
        known = any(same_dataset(gang.dataset, other.dataset) for other in found)
        if not known and missing_mib(host, gang.dataset) > 0:
            found.append(gang)
    return found


def _host(host: Host, orders: Sequence[Prefetch], lacking: Sequence[Expected], facts: _Host) -> Iterator[Violation]:
    speed = min(facts.speed, host.network_mbps - facts.booked) if host.network_mbps else facts.speed
    right = {(gang.record.id, gang.start_s, gang.dataset): gang for gang in lacking}
    stated = [(order.job, order.start_s, order.dataset) for order in orders]
    for order, key in zip(orders, stated, strict=True):
        if key not in right:
            text = f"host {host.id} is to load data set {order.dataset.name} for job {order.job}"
            yield _fault(host, f"{text}, which is not the first to lack it there")
        if order.mbps != speed:
            yield _fault(host, f"host {host.id} is to load at {order.mbps} Mbit/s; right are {speed}")
    if stated != [key for key in right if key in set(stated)]:
        yield _fault(host, f"the pre-stage orders of host {host.id} are doubled or not in the order of the starts")
        return
    if speed <= 0:
        if orders:
            yield _fault(host, f"host {host.id} is to load a data set, and its network is booked whole")
        return
    ordered = {key: order.mib for key, order in zip(stated, orders, strict=True)}
    left = facts.room
    for key, gang in right.items():
        mib, wanted = ordered.get(key, 0), min(missing_mib(host, gang.dataset), left)
        if mib != max(0, wanted):
            text = f"host {host.id} is to load {mib} MiB of data set {gang.dataset.name}"
            yield _fault(host, f"{text}; {missing_mib(host, gang.dataset)} are missing and there is room for {left}")
        left -= mib


def _fault(host: Host, message: str) -> Violation:
    return reservation_fault(host.id, 1, "orders", message)
