"""Small fleets on which starts need returns: free cards lie scattered between jobs that may move or shrink."""

from __future__ import annotations

import random
from dataclasses import replace

from phalanx.model.host import CachedDataset, Gpu, Host
from phalanx.model.ids import HostId, JobId, SiteId, TeamId
from phalanx.model.job import (
    AntiAffinity,
    CheckpointPolicy,
    DatasetRef,
    Elastic,
    Job,
    Preemptible,
    Role,
    WorkerRequest,
)
from phalanx.model.job_state import JobState
from phalanx.model.placement import Placement, WorkerPlacement
from phalanx.model.policy import EvictionPolicy, ObjectivePolicy, Policy, SolvePolicy, StandardGang
from phalanx.model.snapshot import JobRecord, Snapshot
from phalanx.model.team import GpuQuota, Team
from phalanx.model.topology import Layer, Link, Site, TopologyPath

NOW = 1_000_000
DATA = DatasetRef(name="d", size_mib=20_000, shards=4)


def moving(seed: int) -> tuple[Snapshot, Policy]:
    """A round of two or three hosts, each held in part by small jobs that save their work, and gangs that ask more."""
    rng = random.Random(f"moving {seed}")
    cards = rng.choice((2, 3, 3, 4))
    hosts = tuple(_host(rng, number, cards) for number in range(rng.choice((2, 2, 3))))
    free = {host.id: list(range(cards)) for host in hosts}
    running = [_runs(rng, f"r{number}", free, cards) for number in range(rng.choice((2, 3, 3, 4)))]
    waiting = [_waits(rng, f"j{number}", cards) for number in range(rng.choice((0, 1, 1, 1, 2)))]
    limit = (GpuQuota(gpu_type="H100", gpu_milli=1_000 * rng.randint(2, 2 * cards)),) if rng.random() < 0.15 else None
    teams = (Team(id=TeamId("a"), limit=limit), Team(id=TeamId("b"), weight=300))
    jobs = (*(record for record in running if record is not None), *waiting)
    snapshot = Snapshot(now_s=NOW, sites=(Site(id=SiteId("s")),), hosts=hosts, teams=teams, jobs=jobs)
    numbers = _policy(rng, cards)
    slow = Link(a="site:s/rack:r0", b="site:s", bandwidth_mbps=rng.choice((100, 4_000)))
    return replace(snapshot, links=(slow,) if rng.random() < 0.3 else ()), numbers


def _policy(rng: random.Random, cards: int) -> Policy:
    gangs = (StandardGang(workers=1, gpus=cards, layer=Layer.HOST), StandardGang(workers=2, gpus=1, layer=Layer.RACK))
    return Policy(
        objective=ObjectivePolicy(standard_gangs=gangs[: rng.choice((0, 1, 2, 2))], room_s=rng.choice((10, 60, 300))),
        eviction=EvictionPolicy(moves_per_hour=rng.choice((1, 2, 10)), max_loss_s=rng.choice((None, None, None, 60))),
        solve=SolvePolicy(budget_ms=60_000),
    )


def _host(rng: random.Random, number: int, cards: int) -> Host:
    shards = rng.randint(0, 4)
    copy = CachedDataset(dataset="d", digest="", shards=shards, shards_total=4, size_mib=5_000 * shards)
    return Host(
        id=HostId(f"h{number}"),
        path=TopologyPath(site=SiteId("s"), rack=rng.choice(("r0", "r1"))),
        gpus=tuple(Gpu(index=index, gpu_type="H100", memory_mib=80_000) for index in range(cards)),
        cpu_milli=rng.choice((4_000, 100_000, 100_000)),
        memory_mib=100_000,
        network_mbps=rng.choice((0, 10_000)),
        disk_free_mib=rng.choice((0, 15_000, 50_000)),
        cached=(copy,) if shards else (),
    )


def _runs(rng: random.Random, name: str, free: dict[HostId, list[int]], cards: int) -> JobRecord | None:
    """One to three workers of a card each, on hosts that keep a card free; None where there is no room."""
    count = rng.choice((1, 1, 2, 2, 3))
    seats = []
    for index in range(count):
        open_hosts = [host for host, left in free.items() if len(left) > rng.choice((0, 1, 1))]
        if open_hosts:
            host = rng.choice(open_hosts)
            card = free[host].pop(rng.randrange(len(free[host])))
            seats.append(WorkerPlacement(role="worker", index=index, host=host, gpus=(card,)))
    if not seats:
        return None
    job = Job(
        id=JobId(name),
        team=TeamId(rng.choice("ab")),
        roles=(Role(count=len(seats), request=WorkerRequest(gpu_milli=1_000, cpu_milli=1_000)),),
        tier=rng.choice((2, 3, 3, 3, 4)),
        preemptible=rng.choice((Preemptible.BY_HIGHER,) * 4 + (Preemptible.ANYTIME,)),
        movable=rng.random() < 0.9,
        checkpoint=CheckpointPolicy(interval_s=600, write_s=5, restart_s=rng.choice((0, 20, 90)), grace_s=10),
        elastic=Elastic(role="worker", sizes=tuple(range(1, len(seats) + 1))) if rng.random() < 0.7 else None,
        anti_affinity=(AntiAffinity(label="x", layer=Layer.HOST),) if rng.random() < 0.1 else (),
        dataset=DATA if rng.random() < 0.3 else None,
    )
    return JobRecord(
        job=job,
        state=JobState.RUNNING,
        submitted_s=NOW - 9_000,
        attempt=1,
        placement=Placement(workers=tuple(seats)),
        started_s=NOW - rng.choice((60, 3_000, 3_000, 8_000, 8_000)),
    )


def _waits(rng: random.Random, name: str, cards: int) -> JobRecord:
    """A gang that asks most of a host, or of each of two."""
    whole = rng.choice((max(1, cards - 1), cards - 1 or 1, cards, 1))
    count = rng.choice((1, 1, 1, 1, 2))
    job = Job(
        id=JobId(name),
        team=TeamId(rng.choice("ab")),
        roles=(Role(count=count, request=WorkerRequest(gpu_milli=1_000 * whole, cpu_milli=1_000)),),
        tier=rng.choice((1, 2, 3, 3)),
        dataset=DATA if rng.random() < 0.3 else None,
    )
    if count == 2 and rng.random() < 0.4:
        job = replace(job, elastic=Elastic(role="worker", sizes=(1, 2)))
    return JobRecord(job=job, submitted_s=NOW - rng.choice((50, 5_000, 90_000)))
