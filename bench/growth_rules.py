"""A made-up fleet with the first so many kinds of rules in use: the others are taken out of hosts, teams and jobs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ..model.host import Host, HostState
from ..model.job import Preemptible, Role
from ..model.policy import Policy
from ..model.snapshot import JobRecord, Snapshot
from ..model.team import Team
from .large import Size
from .made_up import MadeUp

RULES = (
    "GPU types and their memory",
    "racks and tensor groups",
    "tiers and evictions",
    "limits of teams",
    "shares of cards and labels",
    "windows, spares, hosts out of service",
    "guarantees",
    "data sets and caches",
    "a reserved pool and drains",
)
"""In the order in which they come into use; what a fleet without any of them has is capacity and gangs alone."""

TYPES, RACKS, TIERS, LIMITS, SHARES, WINDOWS, GUARANTEES, DATA, DRAINS = range(1, len(RULES) + 1)
_NEVER_S = 365 * 86_400


def ruled(size: Size, seed: int, count: int) -> MadeUp:
    """The world of that size and seed with the first `count` of `RULES`."""
    policy = Policy()
    if count < DRAINS:
        policy = replace(policy, time=replace(policy.time, starve_after_s=_NEVER_S))
    change, equip = partial(_job, count=count), partial(_fleet, count=count)
    world = MadeUp(size, seed, policy, change=change, equip=equip)
    if count < DRAINS:
        world.policy = policy
    return world


def _job(record: JobRecord, count: int) -> JobRecord:
    job = replace(record.job, roles=tuple(_role(role, count) for role in record.job.roles))
    if count < RACKS:
        job = replace(job, topology=())
    if count < TIERS:
        job = replace(job, tier=3, preemptible=Preemptible.BY_HIGHER)
    if count < SHARES:
        job = replace(job, anti_affinity=())
    return replace(record, job=job if count >= DATA else replace(job, dataset=None))


def _role(role: Role, count: int) -> Role:
    request = role.request
    if count < SHARES and 0 < request.gpu_milli < 1_000:
        request = replace(request, gpu_milli=1_000, gpu_memory_mib=0)
    if count < TYPES:
        role = replace(role, gpu_types=())
        request = replace(request, gpu_memory_mib=0)
    return replace(role, request=request, parallelism=role.parallelism if count >= RACKS else None)


def _fleet(snapshot: Snapshot, count: int) -> Snapshot:
    hosts = tuple(_host(host, count) for host in snapshot.hosts)
    return replace(snapshot, hosts=hosts, teams=tuple(_team(team, count) for team in snapshot.teams))


def _host(host: Host, count: int) -> Host:
    if count < WINDOWS:
        gpus = tuple(replace(gpu, healthy=True) for gpu in host.gpus)
        host = replace(host, windows=(), spare=False, state=HostState.READY, gpus=gpus)
    return host if count >= DATA else replace(host, cached=())


def _team(team: Team, count: int) -> Team:
    if count < GUARANTEES:
        team = replace(team, guarantee=())
    return team if count >= LIMITS else replace(team, limit=None)
