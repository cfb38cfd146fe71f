"""The founding scenario: 7 hosts with 52 A100/H100 GPUs on three sites, four teams that each owned a part of them.

The constants were calibrated so that the fleet partitioned by team, first come first served, shows about 68 %
allocation and 10 h mean wait over seeds 1 to 5, and frozen on `FROZEN`, before Phalanx was run on it. Do not tune them.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, replace

from ..model.host import MILLI, Gpu, Host
from ..model.ids import HostId, JobId, SiteId, TeamId
from ..model.job import GpuTypeChoice, Job, Preemptible, Role, WorkerRequest
from ..model.team import GpuQuota, Team
from ..model.topology import Site, TopologyPath
from .overlay import DAY, HOUR, Overlay, laid_over
from .workload import SimJob, Workload

FROZEN = "2026-11-30"
FED_MILLI = 500
"""With the dataplane feeding the jobs (utilisation in training from 34 to 68 %), work takes that much of its time."""

FLEET = (
    ("north-1", "north", "H100", 8, "language"),
    ("north-2", "north", "H100", 8, "language"),
    ("south-1", "south", "A100", 8, "vision"),
    ("south-2", "south", "A100", 8, "vision"),
    ("south-3", "south", "A100", 8, "speech"),
    ("lab-1", "lab", "A100", 8, "robotics"),
    ("lab-2", "lab", "A100", 4, "robotics"),
)
"""Host, site, type, GPUs, and the team that owned it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What one team asks. `share_milli` of its own GPUs it would keep busy on average; sizes by weight."""

    team: str
    share_milli: int
    sizes: tuple[tuple[int, int], ...]


DEMANDS = (
    Demand(team="language", share_milli=670, sizes=((1, 40), (2, 25), (4, 20), (8, 14), (16, 1))),
    Demand(team="vision", share_milli=670, sizes=((1, 45), (2, 25), (4, 20), (8, 10))),
    Demand(team="speech", share_milli=670, sizes=((1, 50), (2, 25), (4, 20), (8, 5))),
    Demand(team="robotics", share_milli=670, sizes=((1, 50), (2, 25), (4, 20), (8, 5))),
)
DAYS = 28
MEDIAN_S = 2 * HOUR
SIGMA = 0.9
LONGEST_S = DAY
H100_MILLI = (1_500, 2_200)
BUSY_DAYS = 1.0
"""Mean length of a campaign, and of the pause between two: a team submits `BUSY` times as much in one."""
BUSY = 1.2
ANY_TYPE_MILLI = 850


def founding(seed: int, *, fed: bool = False, guaranteed: bool = False, days: float = DAYS) -> Workload:
    """The scenario for one seed: another sample of jobs, the same fleet; `fed` shortens the work by the dataplane.

    `guaranteed` guarantees each team the GPUs that it owned. The frozen figures are those of all `DAYS`.
    """
    owners = {HostId(name): TeamId(team) for name, _, _, _, team in FLEET}
    jobs = sorted((job for demand in DEMANDS for job in _jobs(demand, seed, days)), key=lambda each: each.submit_s)
    if fed:
        jobs = [replace(each, work_s=max(60, each.work_s * FED_MILLI // 1000)) for each in jobs]
    plain = Workload(
        name="founding" + ", fed" * fed + ", guaranteed" * guaranteed,
        hosts=tuple(_host(*row[:4]) for row in FLEET),
        jobs=tuple(jobs),
        sites=tuple(Site(id=SiteId(site)) for site in ("north", "south", "lab")),
        teams=tuple(_team(demand.team, guaranteed) for demand in DEMANDS),
        owners=owners,
        synthetic=(f"the whole scenario: made up, calibrated on the fleet partitioned by team, frozen on {FROZEN}",),
    )
    return laid_over(plain, Overlay(), seed)


def _host(name: str, site: str, kind: str, cards: int) -> Host:
    return Host(
        id=HostId(name),
        path=TopologyPath(site=SiteId(site)),
        gpus=tuple(Gpu(index=index, gpu_type=kind, memory_mib=80 * 1024) for index in range(cards)),
        cpu_milli=cards * 16_000,
        memory_mib=cards * 128 * 1024,
    )


def _team(name: str, guaranteed: bool) -> Team:
    owned: Counter[str] = Counter()
    for _, _, kind, cards, owner in FLEET:
        owned[kind] += cards if owner == name else 0
    quotas = tuple(GpuQuota(gpu_type=kind, gpu_milli=MILLI * cards) for kind, cards in owned.items() if cards)
    return Team(id=TeamId(name), weight=_gpus(name), guarantee=quotas if guaranteed else ())


def _gpus(team: str) -> int:
    return sum(cards for _, _, _, cards, owner in FLEET if owner == team)


def _jobs(demand: Demand, seed: int, days: float) -> list[SimJob]:
    """Jobs of one team: campaigns and pauses, working hours, log-normal run times, sizes by weight."""
    draw = random.Random(f"{seed}/founding/{demand.team}")
    busy = _campaigns(draw, days)
    jobs: list[SimJob] = []
    asked_s, wanted_s = 0.0, demand.share_milli / 1000 * _gpus(demand.team) * days * DAY
    own = next(kind for _, _, kind, _, owner in FLEET if owner == demand.team)
    while asked_s < wanted_s:
        submit_s = draw.randrange(round(days * DAY))
        if draw.random() * BUSY > _rate(submit_s, busy):
            continue
        job = _job(draw, demand, f"{demand.team}-{len(jobs)}", submit_s, own)
        jobs.append(job)
        speed = 1000 if own == "A100" else job.job.roles[0].throughput_milli(own) or 1000
        asked_s += job.job.gpu_milli / 1000 * job.work_s * 1000 / speed
    return jobs


def _campaigns(draw: random.Random, days: float) -> list[tuple[float, float]]:
    found, at = [], draw.uniform(0, BUSY_DAYS) * DAY * draw.choice((0, 1))
    while at < days * DAY:
        end = at + draw.expovariate(1 / BUSY_DAYS) * DAY
        found.append((at, end))
        at = end + draw.expovariate(1 / BUSY_DAYS) * DAY
    return found


def _rate(at_s: int, busy: list[tuple[float, float]]) -> float:
    """Relative rate of submissions: campaigns, and three times as many by day as by night."""
    by_day = 1.0 if 9 * HOUR <= at_s % DAY < 19 * HOUR else 1 / 3
    return by_day * (BUSY if any(start <= at_s < end for start, end in busy) else 1.0)


def _job(draw: random.Random, demand: Demand, name: str, submit_s: int, own: str) -> SimJob:
    gpus = draw.choices([size for size, _ in demand.sizes], weights=[weight for _, weight in demand.sizes])[0]
    work_s = round(min(LONGEST_S, max(120, MEDIAN_S * math.exp(SIGMA * draw.gauss(0, 1)))))
    h100 = GpuTypeChoice(gpu_type="H100", throughput_milli=draw.randint(*H100_MILLI))
    a100 = GpuTypeChoice(gpu_type="A100")
    flexible = draw.randrange(1000) < ANY_TYPE_MILLI
    kinds = (a100, h100) if flexible else (h100,) if own == "H100" else (a100,)
    request = WorkerRequest(
        gpu_milli=1000 * min(gpus, 8), cpu_milli=8_000 * min(gpus, 8), memory_mib=64 * 1024 * min(gpus, 8)
    )
    role = Role(count=max(1, gpus // 8), request=request, gpu_types=kinds)
    job = Job(id=JobId(name), team=TeamId(demand.team), roles=(role,), preemptible=Preemptible.BY_HIGHER, tier=3)
    return SimJob(job=job, submit_s=submit_s, work_s=work_s)
