"""What happened in the world, told to the store; applied once by event id."""

from __future__ import annotations

from dataclasses import dataclass

from .host import CachedDataset, HostState
from .ids import HostId, JobId, SiteId
from .intent import RankExit


@dataclass(frozen=True, slots=True, kw_only=True)
class GangReserved:
    """The resources of every worker of the attempt are held."""

    id: str
    at_s: int
    job: JobId
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRunning:
    """Every rank of the attempt runs."""

    id: str
    at_s: int
    job: JobId
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangExited:
    """The attempt has ended or is ending: all ranks exited by themselves, or one failed and the rest are stopped.

    `exits` lists the known exit codes; all zero is success. `lost_host` is set where a host died under it.
    """

    id: str
    at_s: int
    job: JobId
    attempt: int
    exits: tuple[RankExit, ...] = ()
    lost_host: HostId | None = None
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangStartFailed:
    """The attempt could not be reserved or launched; `host` is the one to blame, where known."""

    id: str
    at_s: int
    job: JobId
    attempt: int
    cause: str
    host: HostId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GangReleased:
    """Nothing of the attempt is left: processes gone, resources back, hosts verified clean."""

    id: str
    at_s: int
    job: JobId
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GangProgress:
    """The attempt wrote a checkpoint: seconds of work saved in it."""

    id: str
    at_s: int
    job: JobId
    attempt: int
    saved_work_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostChanged:
    """A host changed state, seen by the executor, the agent or an operator."""

    id: str
    at_s: int
    host: HostId
    state: HostState
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReport:
    """What the agent of one host reports: that it lives, its free disk, and its shard-cache inventory."""

    id: str
    at_s: int
    host: HostId
    site: SiteId
    disk_free_mib: int
    cached: tuple[CachedDataset, ...] = ()


GangEvent = GangReserved | GangRunning | GangExited | GangStartFailed | GangReleased | GangProgress
Event = GangEvent | HostChanged | AgentReport
