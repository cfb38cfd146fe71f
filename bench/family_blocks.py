"""What rounds of a family are made of: fleets, gangs, running and waiting jobs, and the world they stand in."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..model.host import CachedDataset, Gpu, Host
from ..model.ids import HostId, JobId, SiteId, TeamId
from ..model.job import CheckpointPolicy, DatasetRef, GpuTypeChoice, Job, Preemptible, Role, WorkerRequest
from ..model.job_state import JobState
from ..model.placement import Placement, WorkerPlacement
from ..model.snapshot import JobRecord, Snapshot
from ..model.team import Team
from ..model.topology import Site, TopologyPath

NOW_S = 1_800_000_000
CARDS = 8
RACK = 8
HOUR = 3_600
TEAMS = tuple(TeamId(name) for name in ("a", "b", "c", "d"))
SAVES = CheckpointPolicy(interval_s=1_800, write_s=20, restart_s=60, grace_s=60)


def fleet(count: int, kind: Callable[[int], str] = lambda _: "A100") -> list[Host]:
    """Hosts of eight cards in racks of eight on one site; `kind` tells the type by the number of the host."""
    return [
        Host(
            id=HostId(f"h{number:03}"),
            path=TopologyPath(site=SiteId("s"), zone=f"z{number // RACK // 4}", rack=f"r{number // RACK}"),
            gpus=tuple(Gpu(index=index, gpu_type=kind(number), memory_mib=80 * 1024) for index in range(CARDS)),
            cpu_milli=CARDS * 16_000,
            memory_mib=CARDS * 128 * 1024,
        )
        for number in range(count)
    ]


def gang(
    name: str, draw: random.Random, workers: int = 1, gpus: int = 1, kinds: Sequence[str] = (), **more: Any
) -> Job:
    """A job of a random team with a limit of two days."""
    request = WorkerRequest(gpu_milli=gpus * 1_000, cpu_milli=gpus * 8_000, memory_mib=gpus * 64 * 1024)
    role = Role(count=workers, request=request, gpu_types=tuple(GpuTypeChoice(gpu_type=kind) for kind in kinds))
    facts = {"team": draw.choice(TEAMS), "walltime_limit_s": 48 * HOUR, **more}
    return Job(id=JobId(name), roles=(role,), **facts)


def runs(job: Job, seats: Sequence[tuple[Host, int]], ran_s: int) -> JobRecord:
    """The job running since `ran_s` seconds; each worker on a host, from that card on."""
    width = job.roles[0].request.whole_gpus
    workers = tuple(
        WorkerPlacement(role="worker", index=index, host=host.id, gpus=tuple(range(card, card + width)))
        for index, (host, card) in enumerate(seats)
    )
    return JobRecord(
        job=job,
        state=JobState.RUNNING,
        submitted_s=NOW_S - ran_s - 600,
        attempt=1,
        placement=Placement(workers=workers),
        planned_s=NOW_S - ran_s - 30,
        started_s=NOW_S - ran_s,
    )


def waits(job: Job, draw: random.Random) -> JobRecord:
    """The job in the queue, for up to two hours."""
    return JobRecord(job=job, submitted_s=NOW_S - draw.randrange(2 * HOUR))


def world(hosts: Sequence[Host], running: Iterable[JobRecord], queue: Iterable[JobRecord], **more: Any) -> Snapshot:
    """All of it as a snapshot."""
    facts = {"teams": tuple(Team(id=team) for team in TEAMS), **more}
    return Snapshot(
        now_s=NOW_S, sites=(Site(id=SiteId("s")),), hosts=tuple(hosts), jobs=(*running, *queue), **facts
    )  # fmt: skip


def tier_of(draw: random.Random, weights: Sequence[int]) -> dict[str, Any]:
    """Tier 1, 2, 3 or preemptible at any time, by these weights, as facts of a job."""
    kind = draw.choices(range(4), weights=weights)[0]
    return {"tier": 4, "preemptible": Preemptible.ANYTIME} if kind == 3 else {"tier": kind + 1}


def cached(data: DatasetRef) -> CachedDataset:
    """All shards of the data set, as a host holds them."""
    return CachedDataset(
        dataset=data.name, digest=data.digest, shards=data.shards, shards_total=data.shards, size_mib=data.size_mib
    )
