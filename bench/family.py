"""Families of single rounds, each stressing one thing that packing one gang after the other may miss; seeded."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ..model.host import CachedDataset, Gpu, Host
from ..model.ids import HostId, JobId, SiteId, TeamId
from ..model.job import (
    CheckpointPolicy,
    DatasetRef,
    GpuTypeChoice,
    Job,
    Preemptible,
    Role,
    TopologyConstraint,
    WorkerRequest,
)
from ..model.job_state import JobState
from ..model.placement import Placement, WorkerPlacement
from ..model.snapshot import JobRecord, Snapshot
from ..model.team import GpuQuota, Team
from ..model.topology import Layer, Site, TopologyPath

NOW_S = 1_800_000_000
CARDS = 8
RACK = 8
HOUR = 3_600
TEAMS = tuple(TeamId(name) for name in ("a", "b", "c", "d"))
SAVES = CheckpointPolicy(interval_s=1_800, write_s=20, restart_s=60, grace_s=60)

Family = Callable[[random.Random, int], Snapshot]
"""Makes a round on about that many hosts."""


def uniform(draw: random.Random, count: int) -> Snapshot:
    """A mixed fleet under load: running work of all levels, a queue of all sizes and levels, more than fits."""
    hosts = fleet(count)
    running, queue = [], list[JobRecord]()
    for host in hosts:
        card = 0
        while card < CARDS and draw.random() < 0.75:
            size = min(draw.choice((1, 1, 2, 4, 8)), CARDS - card)
            saves = SAVES if draw.random() < 0.6 else None
            job = gang(f"run-{host.id}-{card}", draw, gpus=size, checkpoint=saves, **_tier(draw, (5, 15, 50, 30)))
            running.append(runs(job, [(host, card)], ran_s=draw.randrange(700, 20 * HOUR)))
            card += size
    asked = 0
    while asked < count * CARDS // 2:
        workers, gpus = draw.choice(((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8)))
        queue.append(waits(gang(f"wait-{len(queue)}", draw, workers, gpus, **_tier(draw, (10, 20, 50, 20))), draw))
        asked += workers * gpus
    return world(hosts, running, queue)


def scarce(draw: random.Random, count: int) -> Snapshot:
    """A quarter of the hosts of a rare type; half of the jobs take any type, some only the rare one: empty fleet."""
    hosts = fleet(count, lambda number: "H100" if number % 4 == 0 else "A100")
    queue: list[JobRecord] = []
    asked = 0
    while asked < count * CARDS * 1.1:
        kinds = draw.choices(((), ("H100",), ("A100",)), weights=(50, 20, 30))[0]
        gpus = draw.choice((1, 2, 4, 8, 8))
        queue.append(waits(gang(f"wait-{len(queue)}", draw, 1, gpus, kinds, tier=3), draw))
        asked += gpus
    return world(hosts, (), queue)


def dear(draw: random.Random, count: int) -> Snapshot:
    """Each urgent job alone would rather stop one dear job on one host than a gang on four, which serves four of them.

    The gangs save in time; the single ones lose 1.5 to 2.7 h, and cost less than a gang but more than its quarter.
    """
    hosts = fleet(count)
    running = []
    for first in range(0, count // 2 // 4 * 4, 4):
        job = gang(f"gang-{first}", draw, 4, 8, tier=3, checkpoint=SAVES)
        running.append(runs(job, [(host, 0) for host in hosts[first : first + 4]], ran_s=4 * HOUR))
    for host in hosts[count // 2 // 4 * 4 :]:
        job = gang(f"single-{host.id}", draw, 1, 8, tier=3)
        running.append(runs(job, [(host, 0)], ran_s=draw.randrange(round(1.5 * HOUR), round(2.7 * HOUR))))
    queue = [waits(gang(f"urgent-{n}", draw, 1, 8, tier=1), draw) for n in range(count // 8 // 2 * 4)]
    return world(hosts, running, queue)


def staggered(draw: random.Random, count: int) -> Snapshot:
    """Running jobs straddle neighbouring hosts, half on each, so that clearing neighbours stops fewer in all."""
    hosts = fleet(count)
    running = []
    for number, host in enumerate(hosts):
        job = gang(f"pair-{number}", draw, 2, 4, tier=3)
        following = hosts[(number + 1) % count]
        running.append(runs(job, [(host, 4), (following, 0)], ran_s=draw.randrange(700, 3 * HOUR)))
    queue = [waits(gang(f"urgent-{number}", draw, 1, 8, tier=1), draw) for number in range(count // 4)]
    return world(hosts, running, queue)


def racks(draw: random.Random, count: int) -> Snapshot:
    """Gangs that must each stay in one rack, and racks with some hosts free: which gangs together fill them?"""
    hosts = fleet(count)
    running = []
    for host in hosts:
        if draw.random() < 0.3:
            running.append(runs(gang(f"run-{host.id}", draw, 1, 8, tier=2), [(host, 0)], ran_s=HOUR))
    queue: list[JobRecord] = []
    asked = 0
    while asked < count * 1.1:
        workers = draw.choice((2, 3, 3, 4, 5))
        job = gang(f"wait-{len(queue)}", draw, workers, 8, tier=3, topology=(TopologyConstraint(layer=Layer.RACK),))
        queue.append(waits(job, draw))
        asked += workers
    return world(hosts, running, queue)


def cache(draw: random.Random, count: int) -> Snapshot:
    """Data sets lie on some hosts, which are the tightest for other jobs: loading anew, or breaking up a whole host?"""
    data = [
        DatasetRef(name=f"d{n}", digest=f"x{n}", size_mib=draw.randrange(50, 1_500) * 1024) for n in range(count // 2)
    ]
    hosts = []
    for host in fleet(count):
        held = draw.sample(data, 2)
        hosts.append(replace(host, cached=tuple(_cached(each) for each in held), disk_free_mib=4 * 1024 * 1024))
    running = []
    for host in hosts:
        used = draw.choice((0, 2, 4, 4, 6))
        if used:
            running.append(runs(gang(f"run-{host.id}", draw, 1, used, tier=2), [(host, 0)], ran_s=HOUR))
    queue = [
        waits(gang(f"wait-{n}", draw, 1, draw.choice((1, 2, 2, 4)), tier=3, dataset=draw.choice(data)), draw)
        for n in range(count)
    ]
    return world(hosts, running, queue)


def guarantees(draw: random.Random, count: int) -> Snapshot:
    """A team takes back what it is guaranteed, half of the fleet, from work of its level that borrowed it.

    As with dear victims, gangs on four hosts save in time and single jobs lose hours. Others wait without rights.
    """
    hosts = fleet(count)
    running = []
    for first in range(0, count // 2 // 4 * 4, 4):
        job = gang(f"gang-{first}", draw, 4, 8, team="b", tier=3, checkpoint=SAVES)
        running.append(runs(job, [(host, 0) for host in hosts[first : first + 4]], ran_s=4 * HOUR))
    for host in hosts[count // 2 // 4 * 4 :]:
        job = gang(f"single-{host.id}", draw, 1, 8, team="c", tier=3)
        running.append(runs(job, [(host, 0)], ran_s=draw.randrange(round(1.5 * HOUR), round(2.7 * HOUR))))
    number = count // 8 // 2 * 4
    queue = [waits(gang(f"own-{n}", draw, 1, 8, team="a", tier=3), draw) for n in range(number)]
    queue += [waits(gang(f"other-{n}", draw, 1, 8, team="d", tier=3), draw) for n in range(number)]
    quota = (GpuQuota(gpu_type="A100", gpu_milli=count * CARDS // 2 * 1_000),)
    teams = tuple(Team(id=team, guarantee=quota if team == "a" else ()) for team in TEAMS)
    return world(hosts, running, queue, teams=teams)


FAMILIES: dict[str, Family] = {
    "uniform": uniform,
    "scarce types": scarce,
    "dear single victims": dear,
    "staggered victims": staggered,
    "rack gangs": racks,
    "cache against packing": cache,
    "guarantees": guarantees,
}


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


def _tier(draw: random.Random, weights: Sequence[int]) -> dict[str, Any]:
    kind = draw.choices(range(4), weights=weights)[0]
    return {"tier": 4, "preemptible": Preemptible.ANYTIME} if kind == 3 else {"tier": kind + 1}


def _cached(data: DatasetRef) -> CachedDataset:
    return CachedDataset(
        dataset=data.name, digest=data.digest, shards=data.shards, shards_total=data.shards, size_mib=data.size_mib
    )
