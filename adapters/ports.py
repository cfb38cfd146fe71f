"""The ports: what the loop, the API and the adapter processes ask of the world.

Each port has a real adapter and a fake that ships (`phalanx.adapters.fakes`), and both pass the same contract tests.
Every method is synchronous; `api` calls them in threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..model.decision import Decision
from ..model.event import Event
from ..model.host import Host
from ..model.ids import HostId, JobId, SiteId, TeamId
from ..model.intent import Instruction, Intent, Observation
from ..model.job import Job
from ..model.job_state import JobState
from ..model.snapshot import JobRecord, Snapshot
from ..model.team import Team
from ..model.topology import Link, Site


class Clock(Protocol):
    """Wall time; the simulator has a virtual one."""

    def now_s(self) -> int:
        """Seconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Waits, or lets the virtual clock advance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to lead (`name` "scheduler") or to drive a site ("adapter:<site>"), until `expires_s`.

    `term` rises each time the lease passes to another holder; every write of a leader carries it.
    """

    name: str
    holder: str
    term: int
    expires_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """The outcome of a submission: the job's name, and whether it is new (False: the client key was known)."""

    job: JobId
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    """`committed`, or the rows that changed since the snapshot ("job j1", "host h1"): plan again."""

    committed: bool
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """Wall milliseconds of one stage of a round."""

    stage: str
    milliseconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """One round as stored. `outcome`: "committed", "conflict", "violation", "nothing".

    `snapshot` is kept for replay until retention drops it.
    """

    number: int
    at_s: int
    outcome: str
    decision: Decision
    snapshot: Snapshot | None = None
    times: tuple[StageTime, ...] = ()
    violations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """One entry of the append-only log: what happened or was asked, in order."""

    number: int
    at_s: int
    kind: str
    subject: str
    document: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of jobs, newest first; `next_cursor` None on the last."""

    jobs: tuple[JobRecord, ...]
    next_cursor: str | None = None


class Store(Protocol):
    """The one truth. Each method is one transaction; raises NotFound, IllegalTransition, StaleTerm, InvalidInput."""

    def submit(self, job: Job, *, now_s: int, client_key: str | None = None) -> Submitted:
        """Puts a job in the queue (`blocked` while dependencies are unfinished).

        The same client key again returns the first job. InvalidInput for a name in use, an unknown dependency, an
        unknown team, or the same key with a different job.
        """

    def job(self, job: JobId) -> JobRecord:
        """One job."""

    def jobs(
        self,
        *,
        states: Sequence[JobState] = (),
        team: TeamId | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """Jobs, newest first, filtered."""

    def cancel(self, job: JobId, *, now_s: int) -> JobRecord:
        """Waiting jobs end at once; jobs that hold capacity are stopped first. Ended jobs stay as they are."""

    def hold(self, job: JobId, *, now_s: int) -> JobRecord:
        """Keeps a waiting job from being placed."""

    def resume(self, job: JobId, *, now_s: int) -> JobRecord:
        """Lets a held job queue again, with its age; requeues a failed, cancelled or expired one."""

    def set_priority(self, job: JobId, priority: int, *, now_s: int) -> JobRecord:
        """Changes the job's priority inside its team and level."""

    def put_sites(self, sites: Sequence[Site], links: Sequence[Link] = ()) -> None:
        """Adds or replaces sites, and all links."""

    def put_teams(self, teams: Sequence[Team]) -> None:
        """Adds or replaces teams."""

    def put_host(self, host: Host, *, now_s: int) -> None:
        """Adds a host or replaces its inventory, keeping state, strikes and cache of a known one."""

    def hosts(self) -> tuple[Host, ...]:
        """All hosts."""

    def host(self, host: HostId) -> Host:
        """One host."""

    def snapshot(self, now_s: int) -> Snapshot:
        """Everything a round may look at, read in one transaction (ended jobs are left out)."""

    def commit(self, decision: Decision, snapshot: Snapshot, *, term: int, now_s: int) -> CommitOutcome:
        """Writes the decision's intents if the rows it touches have the versions of `snapshot`, else nothing.

        Touched: jobs started, preempted, rejected; hosts and reservations used. StaleTerm when `term` is not the
        scheduler lease's.
        """

    def append(self, events: Sequence[Event], *, now_s: int) -> int:
        """Applies events once each, by id; late events of old attempts change nothing.

        Returns how many were new.
        """

    def sweep(self, now_s: int) -> tuple[str, ...]:
        """Applies what time alone decides: queue deadlines, start timeouts, walltime limits. Returns what it did."""

    def intents(self, site: SiteId) -> tuple[Intent, ...]:
        """The unfinished intents of a site."""

    def acquire(self, name: str, holder: str, *, ttl_s: int, now_s: int) -> Lease | None:
        """Takes or renews a lease; None while another holds it."""

    def lease(self, name: str) -> Lease | None:
        """The lease of that name, expired or not; None where nobody has ever taken it."""

    def release(self, lease: Lease) -> None:
        """Gives a lease back early."""

    def record_round(self, record: RoundRecord) -> int:
        """Stores a round; `number` 0 assigns the next. Returns the number."""

    def rounds(self, *, limit: int = 50, before: int | None = None) -> tuple[RoundRecord, ...]:
        """Rounds, newest first, without snapshots."""

    def round(self, number: int) -> RoundRecord:
        """One round, with its snapshot where it is kept."""

    def events(self, *, after: int = 0, limit: int = 500, subject: str | None = None) -> tuple[StoredEvent, ...]:
        """The log from number `after` (exclusive) on, oldest first; `subject` such as "job j1" narrows it."""

    def note(self, kind: str, subject: str, document: str, *, now_s: int) -> int:
        """Writes an entry into the log that changes nothing else; returns its number."""

    def close(self) -> None:
        """Frees connections."""


class Executor(Protocol):
    """One site's executor. Instructions are idempotent and keyed by (job, attempt)."""

    def observe(self) -> Observation:
        """What is really there. Called before the intents are read, so that a newborn gang is never swept."""

    def apply(self, instruction: Instruction) -> tuple[Event, ...]:
        """Carries out one instruction and tells what came of it; expected failures are events, not exceptions."""

    def logs(self, job: JobId, attempt: int, rank: int, *, tail: int = 200) -> tuple[str, ...]:
        """The last lines that a rank wrote."""

    def close(self) -> None:
        """Disconnects; running gangs run on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One card as the GPU library sees it; `pids` are the compute processes on it."""

    index: int
    name: str
    memory_mib: int
    memory_used_mib: int
    pids: tuple[int, ...] = ()


class GpuLibrary(Protocol):
    """NVML or its fake."""

    def read(self) -> tuple[GpuReading, ...]:
        """All cards of this host; empty where there is no GPU."""
