"""The rows that one transaction reads and writes; SQL and plain dicts each implement them.

The rules (queue, commit, events, sweep) are written once, over this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from ...model.host import Host, HostState
from ...model.ids import HostId, JobId, ReservationId, TeamId
from ...model.intent import Intent
from ...model.job_state import JobState
from ...model.reservation import Reservation
from ...model.snapshot import JobRecord, Snapshot
from ...model.team import Team
from ...model.topology import Link, Site
from ..ports import Lease, Page, RoundRecord, StoredEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """A host, the state it returns to after it was seen down, and when (s) its agent last told something new."""

    host: Host
    ordered: HostState = HostState.READY
    ordered_cause: str = ""
    reported_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamRow:
    """A team, and the time (s) up to which its usage is decayed; None while nothing was charged."""

    team: Team
    usage_at_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRef:
    """One attempt of a job."""

    job: JobId
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IntentRow:
    """An intent, the attempts whose hosts it waits for, and the time (s) by which it must run."""

    intent: Intent
    after: tuple[AttemptRef, ...] = ()
    start_by_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKey:
    """A client's name for one submission, and the job that came of it as it was submitted."""

    key: str
    job: JobId
    document: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """An entry to be written; `event_id` is set for events from outside, which are applied once."""

    at_s: int
    kind: str
    subject: str
    document: str = "{}"
    event_id: str | None = None


class JobBooks(Protocol):
    """Jobs, client keys, intents, reservations."""

    def job(self, job: JobId) -> JobRecord | None:
        """One job."""

    def jobs_in(self, states: Collection[JobState]) -> tuple[JobRecord, ...]:
        """All jobs in these states, in the order of their submission."""

    def page(self, states: Sequence[JobState], team: TeamId | None, limit: int, cursor: str | None) -> Page:
        """Jobs, newest first."""

    def put_job(self, record: JobRecord) -> None:
        """Adds or replaces a job's row."""

    def client_key(self, key: str) -> ClientKey | None:
        """What is known under this key."""

    def put_client_key(self, key: ClientKey) -> None:
        """Keeps a new key."""

    def intent(self, job: JobId) -> IntentRow | None:
        """The unfinished intent of a job; there is at most one."""

    def intents(self) -> tuple[IntentRow, ...]:
        """All unfinished intents, in the order of their commit."""

    def put_intent(self, row: IntentRow) -> None:
        """Adds or replaces the job's intent."""

    def drop_intent(self, job: JobId) -> None:
        """Removes the job's intent, if any."""

    def reservations(self) -> tuple[Reservation, ...]:
        """All drain reservations, by name."""

    def put_reservation(self, reservation: Reservation) -> None:
        """Adds or replaces one."""

    def drop_reservations(self, ids: Iterable[ReservationId]) -> None:
        """Removes these."""


class FleetBooks(Protocol):
    """Sites, links, hosts, teams."""

    def host(self, host: HostId) -> HostRow | None:
        """One host."""

    def hosts(self) -> tuple[HostRow, ...]:
        """All hosts, by name."""

    def put_host(self, row: HostRow) -> None:
        """Adds or replaces a host's row."""

    def bump_hosts(self, hosts: Collection[HostId]) -> None:
        """Raises the versions of these hosts by one."""

    def sites(self) -> tuple[Site, ...]:
        """All sites, by name."""

    def put_site(self, site: Site) -> None:
        """Adds or replaces a site."""

    def links(self) -> tuple[Link, ...]:
        """All links."""

    def put_links(self, links: Sequence[Link]) -> None:
        """Replaces all links."""

    def team(self, team: TeamId) -> TeamRow | None:
        """One team."""

    def teams(self) -> tuple[TeamRow, ...]:
        """All teams, by name."""

    def put_team(self, row: TeamRow) -> None:
        """Adds or replaces a team."""


class LogBooks(Protocol):
    """The log, leases, rounds."""

    def log(self, entry: LogEntry) -> int:
        """Appends an entry; returns its number."""

    def logged(self, event_id: str) -> bool:
        """Whether an event of that id is in the log."""

    def log_number(self) -> int:
        """The number of the last entry; 0 for an empty log."""

    def events(self, after: int, limit: int, subject: str | None) -> tuple[StoredEvent, ...]:
        """Entries from number `after` (exclusive) on, oldest first."""

    def prune_log(self, up_to: int) -> None:
        """Drops entries up to this number (inclusive)."""

    def lease(self, name: str) -> Lease | None:
        """The lease of that name, in force or not."""

    def put_lease(self, lease: Lease) -> None:
        """Adds or replaces a lease."""

    def round_number(self) -> int:
        """The number of the last round; 0 before the first."""

    def put_round(self, record: RoundRecord, packed: bytes | None) -> None:
        """Adds or replaces a round; `packed` is its snapshot as `Library.pack` gave it."""

    def round(self, number: int) -> RoundRecord | None:
        """One round, with its snapshot where it is kept."""

    def rounds(self, limit: int, before: int | None) -> tuple[RoundRecord, ...]:
        """Rounds, newest first, without snapshots."""

    def prune_rounds(self, up_to: int, snapshots_up_to: int) -> None:
        """Drops rounds up to a number (inclusive), and the snapshots of rounds up to another."""


class Books(JobBooks, FleetBooks, LogBooks, Protocol):
    """All rows, inside one transaction."""


class Library(Protocol):
    """Opens transactions; a write is alone, and undone whole when its block raises."""

    def read(self) -> AbstractContextManager[Books]:
        """A transaction that sees one state of everything and writes nothing."""

    def write(self) -> AbstractContextManager[Books]:
        """A transaction that may write."""

    def pack(self, snapshot: Snapshot) -> bytes | None:
        """The snapshot as it is stored; made before the transaction, since it takes long."""

    def close(self) -> None:
        """Frees connections."""
