"""Fleets and queues for timings, by size and by family of rules; the same every time."""

from __future__ import annotations

import random

from phalanx.model.host import Gpu, Host
from phalanx.model.ids import HostId, JobId, SiteId, TeamId
from phalanx.model.job import GpuTypeChoice, Job, Role, Strictness, TopologyConstraint, WorkerRequest
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import Team
from phalanx.model.topology import Layer, Site, TopologyPath

NOW_S = 1_000_000
TEAMS = ("a", "b", "c", "d")
FAMILIES = ("capacity", "gang", "topology", "types", "fractions")
"""What the waiting jobs stress: single hosts, gangs over hosts, gangs inside one rack, two types, shares of cards."""


def world(hosts: int, waiting: int, family: str = "capacity", seed: int = 1) -> Snapshot:
    """Hosts of 8 GPUs in racks of 8, half of the GPUs taken by single-GPU jobs, and `waiting` jobs of the family."""
    draw = random.Random(f"{seed}/{hosts}/{waiting}/{family}")
    fleet = tuple(_host(number, family) for number in range(hosts))
    running = [_running(host, card) for host in fleet for card in range(draw.choice((0, 2, 4, 6, 8)))]
    queue = [_waiting(number, family, draw) for number in range(waiting)]
    return Snapshot(
        now_s=NOW_S,
        sites=(Site(id=SiteId("s")),),
        hosts=fleet,
        jobs=(*running, *queue),
        teams=tuple(Team(id=TeamId(team)) for team in TEAMS),
    )


def _host(number: int, family: str) -> Host:
    kind = "A100" if family == "types" and number % 3 == 0 else "H100"
    return Host(
        id=HostId(f"h{number:05}"),
        path=TopologyPath(site=SiteId("s"), rack=f"r{number // 8}"),
        gpus=tuple(Gpu(index=index, gpu_type=kind, memory_mib=80 * 1024) for index in range(8)),
        cpu_milli=128_000,
        memory_mib=1024 * 1024,
    )


def _running(host: Host, card: int) -> JobRecord:
    job = _job(f"run-{host.id}-{card}", "a", 1, 1)
    worker = WorkerPlacement(role="worker", index=0, host=host.id, gpus=(card,))
    return JobRecord(
        job=job,
        state=JobState.RUNNING,
        submitted_s=0,
        attempt=1,
        placement=Placement(workers=(worker,)),
        planned_s=10,
        started_s=20,
    )


def _waiting(number: int, family: str, draw: random.Random) -> JobRecord:
    gpus, workers = draw.choice((1, 1, 2, 4, 8)), 1
    topology: tuple[TopologyConstraint, ...] = ()
    types: tuple[GpuTypeChoice, ...] = ()
    if family in ("gang", "topology"):
        gpus, workers = 8, draw.choice((1, 2, 4))
    if family == "topology":
        topology = (TopologyConstraint(layer=Layer.RACK, strictness=Strictness.REQUIRED),)
    if family == "types":
        types = (GpuTypeChoice(gpu_type="A100"), GpuTypeChoice(gpu_type="H100", throughput_milli=2_000))
    milli = draw.choice((250, 500)) if family == "fractions" else gpus * 1000
    job = _job(f"wait-{number:05}", draw.choice(TEAMS), milli / 1000, workers, topology, types, draw.randint(1, 4))
    return JobRecord(job=job, submitted_s=draw.randrange(NOW_S))


def _job(
    name: str,
    team: str,
    gpus: float,
    workers: int,
    topology: tuple[TopologyConstraint, ...] = (),
    types: tuple[GpuTypeChoice, ...] = (),
    tier: int = 3,
) -> Job:
    request = WorkerRequest(gpu_milli=round(gpus * 1000), cpu_milli=4_000, memory_mib=16 * 1024)
    role = Role(count=workers, request=request, gpu_types=types)
    return Job(id=JobId(name), team=TeamId(team), roles=(role,), topology=topology, tier=tier)
