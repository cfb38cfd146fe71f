"""What is booked on each host, derived from placements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..model.host import MILLI
from ..model.ids import HostId, JobId
from ..model.reservation import Reservation
from ..model.snapshot import JobRecord


@dataclass(slots=True)
class HostUsage:
    """Booked amounts of one host; `gpu_milli` and `gpu_jobs` by card index, jobs in order of their names.

    `reserved_for` are the jobs for which a drain reservation holds room there, and when they are planned to start (s).
    """

    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_milli: dict[int, int] = field(default_factory=dict)
    gpu_jobs: dict[int, list[JobId]] = field(default_factory=dict)
    jobs: list[JobId] = field(default_factory=list)
    reserved_for: dict[JobId, int] = field(default_factory=dict)


def usage_by_host(records: Iterable[JobRecord], reservations: Iterable[Reservation] = ()) -> dict[HostId, HostUsage]:
    """The usage of every host that a job holds; a host without an entry is free (and gives an empty usage)."""
    out: dict[HostId, HostUsage] = defaultdict(HostUsage)
    for record in sorted(records, key=lambda record: record.id):
        for worker in record.placement.workers if record.placement else ():
            role = record.job.role(worker.role)
            if role is None:
                continue
            usage = out[worker.host]
            usage.cpu_milli += role.request.cpu_milli
            usage.memory_mib += role.request.memory_mib
            if record.id not in usage.jobs:
                usage.jobs.append(record.id)
            for card in worker.gpus:
                usage.gpu_milli[card] = usage.gpu_milli.get(card, 0) + min(role.request.gpu_milli, MILLI)
                sharers = usage.gpu_jobs.setdefault(card, [])
                if record.id not in sharers:
                    sharers.append(record.id)
    for reservation in sorted(reservations, key=lambda reservation: (reservation.planned_start_s, reservation.id)):
        for host in reservation.placement.hosts:
            out[host].reserved_for[reservation.job] = reservation.planned_start_s
    return out
