"""A change that a planner considers: hosts, jobs, teams, policy and prices, as data (`what_if` applies it)."""

from __future__ import annotations

from dataclasses import dataclass

from . import check
from .errors import InvalidInput
from .host import Host, HostState, Window
from .ids import HostId, JobId, TeamId
from .job import Job
from .team import GpuQuota

MOST_ADDED = 20_000
"""Hosts, or jobs, that a change may add."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddHosts:
    """`count` new hosts, either copies of the host `like` (in its rack, empty and ready) or of `host` as given."""

    like: HostId | None = None
    host: Host | None = None
    count: int = 1

    def __post_init__(self) -> None:
        check.integer("count", self.count, 1, MOST_ADDED, "hosts")
        if (self.like is None) == (self.host is None):
            raise InvalidInput("", "says neither or both of like and host", "like (a host to copy) or host (a new one)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeHost:
    """Another state, spare mark or other maintenance windows for a host; what is None stays."""

    host: HostId
    state: HostState | None = None
    spare: bool | None = None
    windows: tuple[Window, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddJobs:
    """`count` equal jobs, submitted now; several are named after the job with a number behind."""

    job: Job
    count: int = 1

    def __post_init__(self) -> None:
        check.integer("count", self.count, 1, MOST_ADDED, "jobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTeam:
    """Another weight, guarantee or limit for a team; what is None stays."""

    team: TeamId
    weight: int | None = None
    guarantee: tuple[GpuQuota, ...] | None = None
    limit: tuple[GpuQuota, ...] | None = None

    def __post_init__(self) -> None:
        check.optional_integer("weight", self.weight, 1, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePolicy:
    """One number of the policy by its path, such as `objective.horizon_s`; 1 and 0 for yes and no."""

    field: str
    value: int

    def __post_init__(self) -> None:
        check.integer("value", self.value, -check.MAX_AMOUNT)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrice:
    """What one GPU of a type costs, in thousandths of a currency unit per hour."""

    gpu_type: str
    milli_per_hour: int

    def __post_init__(self) -> None:
        check.gpu_type("gpu_type", self.gpu_type)
        check.integer("milli_per_hour", self.milli_per_hour)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """All that would be different; empty for no change. Prices hold for both sides of the comparison."""

    add_hosts: tuple[AddHosts, ...] = ()
    remove_hosts: tuple[HostId, ...] = ()
    hosts: tuple[ChangeHost, ...] = ()
    add_jobs: tuple[AddJobs, ...] = ()
    remove_jobs: tuple[JobId, ...] = ()
    teams: tuple[ChangeTeam, ...] = ()
    policy: tuple[ChangePolicy, ...] = ()
    prices: tuple[GpuPrice, ...] = ()

    def __post_init__(self) -> None:
        for field, entries in (("add_hosts", self.add_hosts), ("add_jobs", self.add_jobs)):
            check.integer(field, sum(entry.count for entry in entries), 0, MOST_ADDED, "in all")
        check.distinct("remove_hosts", self.remove_hosts, "host")
        check.distinct("hosts", (entry.host for entry in self.hosts), "host")
        check.distinct("remove_jobs", self.remove_jobs, "job")
        check.distinct("teams", (entry.team for entry in self.teams), "team")
        check.distinct("policy", (entry.field for entry in self.policy), "field")
        check.distinct("prices", (entry.gpu_type for entry in self.prices), "GPU type")
