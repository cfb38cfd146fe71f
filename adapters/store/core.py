"""The Store port over any library of rows: one method, one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...model.decision import Decision
from ...model.errors import InvalidInput, NotFound
from ...model.event import Event
from ...model.host import Host
from ...model.ids import HostId, JobId, SiteId, TeamId
from ...model.intent import Intent, Want
from ...model.job import Job
from ...model.job_state import HOLDING, WAITING, JobState
from ...model.policy import Policy
from ...model.snapshot import JobRecord, Snapshot
from ...model.team import Team
from ...model.topology import Link, Site
from ..ports import CommitOutcome, Lease, Page, RoundRecord, StoredEvent, Submitted
from . import commit, leases, queue, sweep, usage
from .books import Library, LogEntry
from .changes import is_name, require_host, require_job, to_text
from .events import append
from .health import new_inventory

MAX_PAGE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How many of the latest rounds, their snapshots and entries of the log are kept."""

    rounds: int = 20_000
    snapshots: int = 500
    log: int = 2_000_000


class BookStore:
    """`adapters.ports.Store` over a library of rows. Safe between threads."""

    def __init__(self, library: Library, policy: Policy, retention: Retention | None = None) -> None:
        self._library = library
        self._policy = policy
        self._retention = retention or Retention()

    def submit(self, job: Job, *, now_s: int, client_key: str | None = None) -> Submitted:
        """See the port."""
        with self._library.write() as books:
            return queue.submit(books, job, client_key, now_s, self._policy)

    def job(self, job: JobId) -> JobRecord:
        """See the port."""
        with self._library.read() as books:
            return require_job(books, job)

    def jobs(
        self,
        *,
        states: Sequence[JobState] = (),
        team: TeamId | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page:
        """See the port. At most 1000 a page."""
        _check_limit(limit, MAX_PAGE)
        if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
            raise InvalidInput("cursor", f"{cursor[:40]!r} is not a cursor", "next_cursor of the page before")
        if team is not None and not is_name(team):
            return Page(jobs=())
        with self._library.read() as books:
            return books.page(states, team, limit, cursor)

    def cancel(self, job: JobId, *, now_s: int) -> JobRecord:
        """See the port."""
        with self._library.write() as books:
            return queue.cancel(books, job, now_s)

    def hold(self, job: JobId, *, now_s: int) -> JobRecord:
        """See the port; a job that holds capacity is stopped first."""
        with self._library.write() as books:
            return queue.hold(books, job, now_s)

    def resume(self, job: JobId, *, now_s: int) -> JobRecord:
        """See the port."""
        with self._library.write() as books:
            return queue.resume(books, job, now_s)

    def set_priority(self, job: JobId, priority: int, *, now_s: int) -> JobRecord:
        """See the port."""
        with self._library.write() as books:
            return queue.set_priority(books, job, priority, now_s)

    def put_sites(self, sites: Sequence[Site], links: Sequence[Link] = ()) -> None:
        """See the port."""
        with self._library.write() as books:
            for site in sites:
                books.put_site(site)
            books.put_links(links)

    def put_teams(self, teams: Sequence[Team]) -> None:
        """See the port. A known team keeps its usage and spending unless the new one brings its own."""
        with self._library.write() as books:
            for team in teams:
                books.put_team(usage.new_team(books.team(team.id), team))
            known = {row.team.id for row in books.teams()}
            for index, team in enumerate(teams):
                if team.parent is not None and team.parent not in known:
                    raise InvalidInput(f"teams[{index}].parent", f"there is no team {team.parent!r}", "a known team")
            # A tree with a loop would make every later snapshot impossible.
            Snapshot(now_s=0, sites=(), hosts=(), teams=tuple(row.team for row in books.teams()))

    def put_host(self, host: Host, *, now_s: int) -> None:
        """See the port. InvalidInput for an unknown site, and while attempts use a card that would be gone."""
        with self._library.write() as books:
            sites = sorted(site.id for site in books.sites())
            if host.path.site not in sites:
                raise InvalidInput("path.site", f"there is no site {host.path.site!r}", f"one of {sites}")
            old = books.host(host.id)
            _check_cards(host, books.jobs_in(HOLDING))
            new = new_inventory(old, host, now_s)
            if new != old:
                books.put_host(new)
                body = to_text(new.host)
                books.log(LogEntry(at_s=now_s, kind="host_inventory", subject=f"host {host.id}", document=body))

    def hosts(self) -> tuple[Host, ...]:
        """See the port."""
        with self._library.read() as books:
            return tuple(row.host for row in books.hosts())

    def host(self, host: HostId) -> Host:
        """See the port."""
        with self._library.read() as books:
            return require_host(books, host).host

    def snapshot(self, now_s: int) -> Snapshot:
        """See the port. Teams' usage is decayed to `now_s` and includes what runs."""
        with self._library.read() as books:
            jobs = books.jobs_in(WAITING | HOLDING)
            return Snapshot(
                now_s=now_s,
                sites=books.sites(),
                links=books.links(),
                hosts=tuple(row.host for row in books.hosts()),
                jobs=jobs,
                reservations=books.reservations(),
                teams=usage.current(books.teams(), jobs, now_s, self._policy),
                store_version=books.log_number(),
            )

    def commit(self, decision: Decision, snapshot: Snapshot, *, term: int, now_s: int) -> CommitOutcome:
        """See the port."""
        with self._library.write() as books:
            return commit.commit(books, decision, snapshot, term=term, now_s=now_s, policy=self._policy)

    def append(self, events: Sequence[Event], *, now_s: int) -> int:
        """See the port."""
        with self._library.write() as books:
            return append(books, events, now_s, self._policy)

    def sweep(self, now_s: int) -> tuple[str, ...]:
        """See the port."""
        with self._library.write() as books:
            return sweep.sweep(books, now_s, self._policy)

    def intents(self, site: SiteId) -> tuple[Intent, ...]:
        """See the port. A start whose victims have not left yet is not shown: their hosts are not free."""
        with self._library.read() as books:
            rows = books.intents()
        live = {(row.intent.job.id, row.intent.attempt) for row in rows}
        return tuple(
            row.intent
            for row in rows
            if row.intent.site == site
            and (row.intent.want is Want.STOP or not any((ref.job, ref.attempt) in live for ref in row.after))
        )

    def acquire(self, name: str, holder: str, *, ttl_s: int, now_s: int) -> Lease | None:
        """See the port."""
        with self._library.write() as books:
            return leases.acquire(books, name, holder, ttl_s, now_s)

    def lease(self, name: str) -> Lease | None:
        """See the port."""
        with self._library.read() as books:
            return books.lease(name)

    def release(self, lease: Lease) -> None:
        """See the port."""
        with self._library.write() as books:
            leases.release(books, lease)

    def record_round(self, record: RoundRecord) -> int:
        """See the port. Old rounds, snapshots and entries of the log are dropped here."""
        packed = None if record.snapshot is None else self._library.pack(record.snapshot)
        with self._library.write() as books:
            number = record.number or books.round_number() + 1
            books.put_round(replace(record, number=number), packed)
            kept = self._retention
            books.prune_rounds(number - kept.rounds, number - kept.snapshots)
            books.prune_log(books.log_number() - kept.log)
            return number

    def rounds(self, *, limit: int = 50, before: int | None = None) -> tuple[RoundRecord, ...]:
        """See the port. At most 1000 at once."""
        _check_limit(limit, MAX_PAGE)
        with self._library.read() as books:
            return books.rounds(limit, before)

    def round(self, number: int) -> RoundRecord:
        """See the port."""
        with self._library.read() as books:
            record = books.round(number)
        if record is None:
            raise NotFound(f"there is no round {number}; it may have been dropped as too old")
        return record

    def events(self, *, after: int = 0, limit: int = 500, subject: str | None = None) -> tuple[StoredEvent, ...]:
        """See the port. At most 10,000 at once."""
        _check_limit(limit, 10 * MAX_PAGE)
        if subject is not None and not subject.isprintable():
            return ()
        with self._library.read() as books:
            return books.events(after, limit, subject)

    def note(self, kind: str, subject: str, document: str, *, now_s: int) -> int:
        """See the port."""
        with self._library.write() as books:
            return books.log(LogEntry(at_s=now_s, kind=kind, subject=subject, document=document))

    def close(self) -> None:
        """Frees connections."""
        self._library.close()


def _check_limit(limit: int, most: int) -> None:
    if not 1 <= limit <= most:
        raise InvalidInput("limit", str(limit), f"1 to {most}")


def _check_cards(host: Host, holding: Sequence[JobRecord]) -> None:
    for record in holding:
        for worker in record.placement.workers if record.placement else ():
            gone = [gpu for gpu in worker.gpus if host.gpu(gpu) is None] if worker.host == host.id else []
            if gone:
                raise InvalidInput("gpus", f"GPU {gone[0]} is gone but job {record.id} holds it", "all cards in use")
