"""What the store wants of one attempt, committed before any effect; what an executor sees; what it is told to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .ids import HostId, JobId, SiteId
from .job import Job
from .placement import Placement


class Want(StrEnum):
    """What should become of the attempt."""

    RUN = "run"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One attempt that must run, or must be gone. `term` is the fencing number of the leader that wrote it.

    An intent stays until the executor has reported the attempt released (its hosts verified clean).
    """

    job: Job
    attempt: int
    site: SiteId
    term: int
    want: Want
    placement: Placement
    grace_s: int = 30
    created_s: int = 0
    stop_at_s: int | None = None


class GangPhase(StrEnum):
    """How far an attempt has come, as the executor sees it.

    `unknown`: a host or actor does not answer, which is not the same as lost. `broken`: the group or a worker is lost.
    """

    RESERVING = "reserving"
    RESERVED = "reserved"
    LAUNCHING = "launching"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExit:
    """The end of one rank: its exit code, negative for a signal."""

    rank: int
    code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedGang:
    """One attempt as it really is. `exits` are the ranks that have ended; `stopping` whether SIGTERM was sent.

    `lost_host` and `cause` say what broke a broken one.
    """

    job: JobId
    attempt: int
    phase: GangPhase
    exits: tuple[RankExit, ...] = ()
    stopping: bool = False
    cause: str = ""
    lost_host: HostId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedHost:
    """One host as the executor sees it. `leaked` names what still holds resources that the books show free."""

    host: HostId
    alive: bool
    leaked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What an executor sees of its site, read *before* the intents are."""

    gangs: tuple[ObservedGang, ...] = ()
    hosts: tuple[ObservedHost, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReserveGang:
    """Take the resources of every worker at once, or none."""

    intent: Intent


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchGang:
    """Start the command of every rank on the reserved resources; idempotent."""

    intent: Intent


@dataclass(frozen=True, slots=True, kw_only=True)
class StopGang:
    """Send the warning (SIGTERM); after `grace_s` kill what is left."""

    job: JobId
    attempt: int
    grace_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseGang:
    """All ranks have ended: give the resources back and verify the hosts clean. Also sweeps orphans.

    `hosts` are those the attempt was placed on, for an executor that has forgotten them; empty for an orphan.
    """

    job: JobId
    attempt: int
    orphan: bool = False
    hosts: tuple[HostId, ...] = ()


Instruction = ReserveGang | LaunchGang | StopGang | ReleaseGang
"""What an executor is told; each is idempotent and keyed by (job, attempt)."""
