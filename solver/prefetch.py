"""Pre-stage orders: which hosts load a data set before the gang that reads it starts there (docs/rounds.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..model.decision import Prefetch, Resize, Start
from ..model.host import CachedDataset, Host
from ..model.ids import HostId
from ..model.job import DatasetRef
from ..model.job_state import JobState
from ..model.policy import Policy
from ..model.reservation import Reservation
from ..model.snapshot import JobRecord, Snapshot
from .demand import comes_back
from .fetch import fetch_mbps, missing_mib, same_dataset


@dataclass(frozen=True, slots=True)
class Expected:
    """A gang that will read its data set on these hosts from `start_s` on (s since the epoch), as far as is known."""

    record: JobRecord
    dataset: DatasetRef
    hosts: tuple[HostId, ...]
    start_s: int


def prefetches(
    snapshot: Snapshot,
    policy: Policy,
    starts: Sequence[Start] = (),
    reservations: Sequence[Reservation] = (),
    resizes: Sequence[Resize] = (),
) -> tuple[Prefetch, ...]:
    """The orders that stand after a round: all of them, those given before included.

    By host; on a host in the order of the starts they are for, in which the room there is shared out.
    """
    gangs = expected(snapshot, starts, reservations, resizes)
    by_host: dict[HostId, list[Expected]] = {}
    for gang in gangs:
        for host in gang.hosts:
            by_host.setdefault(host, []).append(gang)
    if not by_host:
        return ()
    there = _there(snapshot, by_host)
    return tuple(
        order
        for host in sorted(snapshot.hosts, key=lambda host: host.id)
        if host.id in by_host
        for order in _orders(host, by_host[host.id], there[host.id], fetch_mbps(host, snapshot, policy))
    )


def open_prefetches(snapshot: Snapshot, policy: Policy) -> tuple[Prefetch, ...]:
    """The orders that stand between rounds: for reservations in force, and gangs that wait for victims or return."""
    return prefetches(snapshot, policy, (), snapshot.reservations)


def expected(
    snapshot: Snapshot, starts: Sequence[Start], reservations: Sequence[Reservation], resizes: Sequence[Resize] = ()
) -> tuple[Expected, ...]:
    """Gangs with a data set that have a plan, whose start waits for victims, or that return; of this round or earlier.

    In the order of their starts (a plan that is due counts as now), then of their ids.
    """
    records = {record.id: record for record in snapshot.jobs}
    now_s = snapshot.now_s
    plans = [(plan.job, plan.placement.hosts, max(now_s, plan.planned_start_s)) for plan in reservations]
    plans += [(start.job, start.placement.hosts, now_s) for start in starts if start.after]
    plans += [(act.job, act.placement.hosts, now_s) for act in resizes]
    coming = {start.job for start in starts}
    plans += [(r.id, r.replacing, now_s) for r in snapshot.jobs if comes_back(r, now_s) and r.id not in coming]
    leaving = {
        host
        for record in snapshot.jobs
        if record.state is JobState.STOPPING and record.placement
        for host in record.placement.hosts
    }
    for record in snapshot.jobs if leaving else ():
        if record.state is JobState.PLANNED and record.placement and not leaving.isdisjoint(record.placement.hosts):
            plans.append((record.id, record.placement.hosts, now_s))
    found = [
        Expected(records[job], dataset, hosts, start_s)
        for job, hosts, start_s in plans
        if job in records and (dataset := records[job].job.dataset) is not None
    ]
    return tuple(sorted(found, key=lambda gang: (gang.start_s, gang.record.id)))


def _there(snapshot: Snapshot, hosts: Iterable[HostId]) -> dict[HostId, list[tuple[JobRecord, int]]]:
    """For each of the hosts the jobs that hold capacity there, with the Mbit/s that each has booked."""
    found: dict[HostId, list[tuple[JobRecord, int]]] = {host: [] for host in hosts}
    for record in snapshot.jobs:
        if record.placement is None:
            continue
        asked = {role.name: role.request.network_mbps for role in record.job.roles}
        booked: dict[HostId, int] = {}
        for worker in record.placement.workers:
            if worker.host in found:
                booked[worker.host] = booked.get(worker.host, 0) + asked.get(worker.role, 0)
        for host, mbps in booked.items():
            found[host].append((record, mbps))
    return found


def _orders(
    host: Host, gangs: Sequence[Expected], there: Sequence[tuple[JobRecord, int]], most_mbps: int
) -> Iterable[Prefetch]:
    mbps = _speed(host, gangs, there, most_mbps)
    if mbps <= 0:
        return
    needed = [gang.dataset for gang in gangs]
    needed += [record.job.dataset for record, _ in there if record.job.dataset is not None]
    room = _room(host, needed)
    done: list[DatasetRef] = []
    for gang in gangs:
        mib = min(missing_mib(host, gang.dataset), room)
        if mib <= 0 or any(same_dataset(gang.dataset, other) for other in done):
            continue
        done.append(gang.dataset)
        room -= mib
        yield Prefetch(host=host.id, dataset=gang.dataset, job=gang.record.id, start_s=gang.start_s, mib=mib, mbps=mbps)


def _speed(host: Host, gangs: Sequence[Expected], there: Sequence[tuple[JobRecord, int]], speed: int) -> int:
    """That speed, or where the host's network is stated and that is less, what of it no job has booked."""
    if not host.network_mbps:
        return speed
    ours = {gang.record.id for gang in gangs}
    return min(speed, host.network_mbps - sum(mbps for record, mbps in there if record.id not in ours))


def _room(host: Host, needed: Sequence[DatasetRef]) -> int:
    """MiB that are free on the disk, or hold data sets that neither work there nor a gang to come reads."""

    def kept(cached: CachedDataset) -> bool:
        return any(same_dataset(cached, dataset) for dataset in needed)

    return host.disk_free_mib + sum(cached.size_mib for cached in host.cached if not kept(cached))
