"""Families of single rounds, each stressing one thing that packing one gang after the other may miss; seeded."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from ..model.job import DatasetRef, TopologyConstraint
from ..model.snapshot import JobRecord, Snapshot
from ..model.team import GpuQuota, Team
from ..model.topology import Layer
from .family_blocks import CARDS, HOUR, NOW_S, SAVES, TEAMS, cached, fleet, gang, runs, tier_of, waits, world

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
            job = gang(f"run-{host.id}-{card}", draw, gpus=size, checkpoint=saves, **tier_of(draw, (5, 15, 50, 30)))
            running.append(runs(job, [(host, card)], ran_s=draw.randrange(700, 20 * HOUR)))
            card += size
    asked = 0
    while asked < count * CARDS // 2:
        workers, gpus = draw.choice(((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8)))
        queue.append(waits(gang(f"wait-{len(queue)}", draw, workers, gpus, **tier_of(draw, (10, 20, 50, 20))), draw))
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
        hosts.append(replace(host, cached=tuple(cached(each) for each in held), disk_free_mib=4 * 1024 * 1024))
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


def drains(draw: random.Random, count: int) -> Snapshot:
    """A starving gang for each of two GPU types, a quarter of its hosts, and short and long work for what is free now.

    Running work ends by its limits within 12 h, and nobody may be evicted: who starts where decides when hosts clear.
    """
    hosts = fleet(count, lambda number: "H100" if number % 2 else "A100")
    running, queue = [], list[JobRecord]()
    for host in hosts:
        used = draw.choice((4, 6, 8))
        ran_s = draw.randrange(700, 4 * HOUR)
        limit_s = ran_s + draw.randrange(HOUR // 2, 12 * HOUR)
        job = gang(f"run-{host.id}", draw, 1, used, tier=3, walltime_limit_s=limit_s)
        running.append(runs(job, [(host, 0)], ran_s=ran_s))
    for kind in ("A100", "H100"):
        job = gang(f"starving-{kind}", draw, max(2, count // 8), 8, (kind,), tier=3)
        queue.append(JobRecord(job=job, submitted_s=NOW_S - 12 * HOUR))
    for number in range(count):
        limit_s = draw.choice((1, 2, 4, 24)) * HOUR
        job = gang(f"wait-{number}", draw, 1, draw.choice((1, 1, 2, 4)), tier=3, walltime_limit_s=limit_s)
        queue.append(waits(job, draw))
    return world(hosts, running, queue)


FAMILIES: dict[str, Family] = {
    "uniform": uniform,
    "scarce types": scarce,
    "dear single victims": dear,
    "staggered victims": staggered,
    "rack gangs": racks,
    "cache against packing": cache,
    "guarantees": guarantees,
    "drains": drains,
}
