"""Large fleets and queues for timings, with every rule in use; a seed gives the same world every time.

Hosts of 8 cards in racks of 8, four racks to a zone, three sites, three GPU types; a few hosts out of service, spare
or near a maintenance window. Jobs from a share of a card to 64 GPUs, with CPU and memory of their own, four tiers,
limits on some teams, labels, tensor groups, racks required.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..model.host import Gpu, Host, HostState, Window
from ..model.ids import HostId, JobId, SiteId, TeamId
from ..model.job import (
    AntiAffinity,
    CheckpointPolicy,
    GpuTypeChoice,
    Job,
    Parallelism,
    Preemptible,
    Role,
    TopologyConstraint,
    WorkerRequest,
)
from ..model.job_state import JobState
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.team import GpuQuota, Team, Usage
from ..model.topology import Layer, Site, TopologyPath
from ..solver.books import Books
from ..solver.collector import paused_collector
from ..solver.placing import Placer
from .full_rules import with_datasets_and_hunger, with_guarantees_and_caches

NOW_S = 1_800_000_000
GIB = 1024
SITES = (SiteId("north"), SiteId("south"), SiteId("cloud"))
TYPES = (("H100", 80), ("A100", 80), ("L40S", 48))
TEAMS = tuple(TeamId(f"team-{number}") for number in range(12))
SIZES = {(1, 1): 72, (1, 2): 40, (1, 4): 32, (1, 8): 32, (2, 8): 14, (4, 8): 7, (8, 8): 3}
"""Workers and GPUs of each, and how many of 200 jobs are so: 5.9 GPUs on average."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A row of the table: hosts of 8 GPUs, waiting jobs, and the share of the cards in use before they come.

    `rack` hosts stand in one, the last host lacks `fewer` GPUs; `full` adds the rules of `full_rules`.
    """

    name: str
    hosts: int
    pending: int
    load: float = 0.9
    rack: int = 8
    fewer: int = 0
    full: bool = False


@paused_collector()
def fleet(
    size: Size,
    seed: int,
    *,
    equip: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
    change: Callable[[JobRecord], JobRecord] = lambda record: record,
) -> Snapshot:
    """The fleet and its teams, with running jobs up to the load and nobody waiting.

    `equip` changes hosts and teams before any job runs, `change` each job before it is placed.
    """
    draw = random.Random(f"fleet/{size.name}/{seed}")
    snapshot = Snapshot(
        now_s=NOW_S,
        sites=tuple(Site(id=site, on_premises=site != "cloud") for site in SITES),
        hosts=tuple(_host(number, size, draw) for number in range(size.hosts)),
        teams=_teams(size, draw),
    )
    if size.full:
        snapshot = with_guarantees_and_caches(snapshot, draw)
    snapshot = equip(snapshot)
    return replace(snapshot, jobs=_running(snapshot, size, draw, change))


def jobs(size: Size, seed: int, first: int, count: int, now_s: int = NOW_S) -> list[JobRecord]:
    """`count` jobs that wait, of the endless row of jobs of that seed, from number `first` on."""
    found = [_waiting(size, seed, number, now_s) for number in range(first, first + count)]
    return with_datasets_and_hunger(found, seed) if size.full else found


def _host(number: int, size: Size, draw: random.Random) -> Host:
    rack = number // size.rack
    zone = rack // min(4, size.rack)
    zones = -(-size.hosts // (size.rack * min(4, size.rack)))
    site = SITES[min(2, zone * 3 // zones)]
    gpu_type, memory_gib = TYPES[draw.choices((0, 1, 2), (5, 3, 2))[0] if number % size.rack == 0 else _type_of(rack)]
    host = _equipped(number, rack, zone, site, gpu_type, memory_gib, draw)
    return replace(host, gpus=host.gpus[: 8 - size.fewer]) if number == size.hosts - 1 else host


def _type_of(rack: int) -> int:
    return (0, 0, 1, 0, 2, 1, 0, 1, 0, 2)[rack % 10]


def _equipped(
    number: int, rack: int, zone: int, site: SiteId, gpu_type: str, memory_gib: int, draw: random.Random
) -> Host:
    state = draw.choices((HostState.READY, HostState.DOWN, HostState.CORDONED), (98, 1, 1))[0]
    windows = (Window(start_s=NOW_S + 6 * 3_600, end_s=NOW_S + 8 * 3_600),) if draw.random() < 0.02 else ()
    return Host(
        id=HostId(f"h{number:05}"),
        path=TopologyPath(
            site=site,
            zone=f"z{zone}",
            rack=f"r{rack}",
            nvlink=f"n{number // 4}" if gpu_type == "H100" and rack % 4 == 0 else None,
        ),
        gpus=tuple(
            Gpu(index=index, gpu_type=gpu_type, memory_mib=memory_gib * GIB, healthy=draw.random() > 0.002)
            for index in range(8)
        ),
        cpu_milli=128_000,
        memory_mib=(1_024 if gpu_type != "L40S" else 512) * GIB,
        network_mbps=400_000,
        state=state,
        windows=windows,
        spare=state is HostState.READY and draw.random() < 0.01,
    )


def _teams(size: Size, draw: random.Random) -> tuple[Team, ...]:
    """Two departments; every third team has a limit on one type."""
    parents = (TeamId("research"), TeamId("product"))
    milli = size.hosts * 8 * 1_000
    leaves = []
    for number, name in enumerate(TEAMS):
        limit = (GpuQuota(gpu_type="H100", gpu_milli=milli // 12),) if number % 3 == 0 else None
        usage = Usage(gpu_milli_s=draw.randrange(milli) * 3_600)
        weight = draw.choice((50, 100, 200))
        leaves.append(Team(id=name, parent=parents[number % 2], weight=weight, limit=limit, usage=usage))
    return (*(Team(id=name) for name in parents), *leaves)


def _waiting(size: Size, seed: int, number: int, now_s: int) -> JobRecord:
    draw = random.Random(f"job/{size.name}/{seed}/{number}")
    return JobRecord(job=_job(f"j{number:06}", draw), submitted_s=now_s - draw.randrange(3_600))


def _job(name: str, draw: random.Random) -> Job:
    workers, gpus = draw.choices(tuple(SIZES), tuple(SIZES.values()))[0]
    kind = draw.random()
    role = _role(workers, gpus * 1_000, draw)
    topology: tuple[TopologyConstraint, ...] = ()
    if kind < 0.05:
        role = _role(1, draw.choice((250, 500)), draw)
    elif kind < 0.08:
        role = Role(count=draw.choice((1, 4)), request=WorkerRequest(cpu_milli=16_000, memory_mib=64 * GIB))
    elif workers > 1 and kind < 0.3:
        topology = (TopologyConstraint(layer=Layer.RACK),)
    elif workers > 1 and kind < 0.4:
        role = replace(role, parallelism=Parallelism(tensor=2, pipeline=1, data=workers // 2))
    return Job(
        id=JobId(name),
        team=draw.choice(TEAMS),
        roles=(role,),
        tier=draw.choices((1, 2, 3, 4), (1, 2, 5, 2))[0],
        preemptible=Preemptible.ANYTIME if draw.random() < 0.2 else Preemptible.BY_HIGHER,
        topology=topology,
        anti_affinity=(AntiAffinity(label=f"service-{draw.randrange(8)}"),) if draw.random() < 0.02 else (),
        walltime_limit_s=draw.choice((3_600, 4 * 3_600, 12 * 3_600, 24 * 3_600, 72 * 3_600)),
        walltime_estimate_s=draw.choice((None, 1_800, 3 * 3_600, 10 * 3_600)),
        checkpoint=CheckpointPolicy(interval_s=1_800, write_s=60, restart_s=120) if draw.random() < 0.7 else None,
        off_premises=True if draw.random() < 0.3 else None,
    )


def _role(workers: int, milli: int, draw: random.Random) -> Role:
    gpus = max(1, milli // 1_000)
    cores, memory_gib = draw.choice(((8, 64), (8, 64), (12, 96), (15, 56)))
    if milli < 1_000:
        cores, memory_gib = 4, 16
    types = draw.choice(
        (
            (),
            (),
            (GpuTypeChoice(gpu_type="H100"),),
            (GpuTypeChoice(gpu_type="H100", throughput_milli=2_000), GpuTypeChoice(gpu_type="A100")),
            (GpuTypeChoice(gpu_type="A100"), GpuTypeChoice(gpu_type="L40S", throughput_milli=700)),
        )
    )
    request = WorkerRequest(
        gpu_milli=milli,
        gpu_memory_mib=8 * GIB if milli < 1_000 else draw.choice((0, 0, 0, 60 * GIB)),
        cpu_milli=gpus * cores * 1_000,
        memory_mib=gpus * memory_gib * GIB,
    )
    return Role(count=workers, request=request, gpu_types=types)


def _running(
    snapshot: Snapshot, size: Size, draw: random.Random, change: Callable[[JobRecord], JobRecord]
) -> tuple[JobRecord, ...]:
    """Jobs placed one after another until the cards in use reach the load, none for longer than its limit.

    What runs past its limit is stopped in no time: every plan would wait for room that is about to be free.
    """
    placer = Placer(snapshot, Policy(), Books(snapshot))
    most = size.load * sum(host.gpu_milli for host in snapshot.hosts)
    found: list[JobRecord] = []
    held = number = 0
    while held < most and number < 4 * size.hosts:
        job = _job(f"r{number:06}", draw)
        number += 1
        ran_s = draw.randrange(300, min(86_400, job.walltime_limit_s or 86_400))
        record = change(JobRecord(job=job, submitted_s=NOW_S - ran_s - 600))
        placement = placer.place(record)
        if placement is not None:
            held += record.job.gpu_milli
            found.append(
                replace(
                    record,
                    state=JobState.RUNNING,
                    attempt=1,
                    placement=placement,
                    planned_s=NOW_S - ran_s - 40,
                    started_s=NOW_S - ran_s,
                )
            )
    return tuple(found)
