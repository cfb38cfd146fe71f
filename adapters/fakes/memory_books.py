"""The rows of the store in memory: dicts by key, with the means to undo a transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ...model.ids import HostId, JobId, ReservationId, TeamId
from ...model.job_state import JobState
from ...model.reservation import Reservation
from ...model.snapshot import JobRecord, Snapshot
from ...model.topology import Link, Site
from ..ports import Lease, Page, RoundRecord, StoredEvent
from ..store.books import ClientKey, HostRow, IntentRow, LogEntry, TeamRow

K = TypeVar("K")
V = TypeVar("V")

_ABSENT: Any = object()


def _restore(row: dict[Any, Any], key: Any, value: Any) -> None:
    if value is _ABSENT:
        row.pop(key, None)
    else:
        row[key] = value


class MemoryBooks:
    """Rows in dicts by their key; `undo` remembers what each write of the transaction replaced."""

    def __init__(self) -> None:
        self.undo: list[tuple[dict[Any, Any], Any, Any]] = []
        self._numbers: dict[JobId, int] = {}
        self._ids: dict[int, JobId] = {}
        self._jobs: dict[JobId, JobRecord] = {}
        self._live: dict[JobId, JobRecord] = {}
        self._keys: dict[str, ClientKey] = {}
        self._intents: dict[JobId, IntentRow] = {}
        self._reservations: dict[ReservationId, Reservation] = {}
        self._hosts: dict[HostId, HostRow] = {}
        self._sites: dict[str, Site] = {}
        self._links: dict[str, tuple[Link, ...]] = {}
        self._teams: dict[TeamId, TeamRow] = {}
        self._log: dict[int, StoredEvent] = {}
        self._last: dict[str, int] = {}
        self._event_ids: dict[str, int] = {}
        self._leases: dict[str, Lease] = {}
        self._rounds: dict[int, RoundRecord] = {}
        self._snapshots: dict[int, Snapshot] = {}

    def roll_back(self) -> None:
        """Undoes what was written since `undo` was last cleared."""
        for row, key, value in reversed(self.undo):
            _restore(row, key, value)

    def _put(self, row: dict[K, V], key: K, value: V) -> None:
        self.undo.append((row, key, row.get(key, _ABSENT)))
        row[key] = value

    def _drop(self, row: dict[K, V], key: K) -> None:
        if key in row:
            self.undo.append((row, key, row.pop(key)))

    # Jobs, client keys, intents, reservations

    def job(self, job: JobId) -> JobRecord | None:
        return self._jobs.get(job)

    def jobs_in(self, states: Collection[JobState]) -> tuple[JobRecord, ...]:
        rows = self._jobs if any(state.ended for state in states) else self._live
        found = [record for record in rows.values() if record.state in states]
        return tuple(sorted(found, key=lambda record: self._numbers[record.id]))

    def page(self, states: Sequence[JobState], team: TeamId | None, limit: int, cursor: str | None) -> Page:
        before = len(self._ids) + 1 if cursor is None else int(cursor)
        found: list[JobRecord] = []
        for number in range(min(before, len(self._ids) + 1) - 1, 0, -1):
            record = self._jobs[self._ids[number]]
            if (states and record.state not in states) or (team is not None and record.job.team != team):
                continue
            if len(found) == limit:
                return Page(jobs=tuple(found), next_cursor=str(self._numbers[found[-1].id]))
            found.append(record)
        return Page(jobs=tuple(found))

    def put_job(self, record: JobRecord) -> None:
        if record.id not in self._numbers:
            self._put(self._numbers, record.id, len(self._numbers) + 1)
            self._put(self._ids, len(self._ids) + 1, record.id)
        self._put(self._jobs, record.id, record)
        if record.state.ended:
            self._drop(self._live, record.id)
        else:
            self._put(self._live, record.id, record)

    def client_key(self, key: str) -> ClientKey | None:
        return self._keys.get(key)

    def put_client_key(self, key: ClientKey) -> None:
        self._put(self._keys, key.key, key)

    def intent(self, job: JobId) -> IntentRow | None:
        return self._intents.get(job)

    def intents(self) -> tuple[IntentRow, ...]:
        rows = self._intents.values()
        return tuple(sorted(rows, key=lambda row: (row.intent.created_s, self._numbers[row.intent.job.id])))

    def put_intent(self, row: IntentRow) -> None:
        self._put(self._intents, row.intent.job.id, row)

    def drop_intent(self, job: JobId) -> None:
        self._drop(self._intents, job)

    def reservations(self) -> tuple[Reservation, ...]:
        return tuple(self._reservations[key] for key in sorted(self._reservations))

    def put_reservation(self, reservation: Reservation) -> None:
        self._put(self._reservations, reservation.id, reservation)

    def drop_reservations(self, ids: Iterable[ReservationId]) -> None:
        for key in ids:
            self._drop(self._reservations, key)

    # Sites, links, hosts, teams

    def host(self, host: HostId) -> HostRow | None:
        return self._hosts.get(host)

    def hosts(self) -> tuple[HostRow, ...]:
        return tuple(self._hosts[key] for key in sorted(self._hosts))

    def put_host(self, row: HostRow) -> None:
        self._put(self._hosts, row.host.id, row)

    def bump_hosts(self, hosts: Collection[HostId]) -> None:
        for key in hosts:
            row = self._hosts[key]
            self._put(self._hosts, key, replace(row, host=replace(row.host, version=row.host.version + 1)))

    def sites(self) -> tuple[Site, ...]:
        return tuple(self._sites[key] for key in sorted(self._sites))

    def put_site(self, site: Site) -> None:
        self._put(self._sites, site.id, site)

    def links(self) -> tuple[Link, ...]:
        return self._links.get("", ())

    def put_links(self, links: Sequence[Link]) -> None:
        self._put(self._links, "", tuple(links))

    def team(self, team: TeamId) -> TeamRow | None:
        return self._teams.get(team)

    def teams(self) -> tuple[TeamRow, ...]:
        return tuple(self._teams[key] for key in sorted(self._teams))

    def put_team(self, row: TeamRow) -> None:
        self._put(self._teams, row.team.id, row)

    # The log, leases, rounds

    def log(self, entry: LogEntry) -> int:
        number = self.log_number() + 1
        self._put(self._last, "log", number)
        stored = StoredEvent(
            number=number, at_s=entry.at_s, kind=entry.kind, subject=entry.subject, document=entry.document
        )
        self._put(self._log, number, stored)
        if entry.event_id is not None:
            self._put(self._event_ids, entry.event_id, number)
        return number

    def logged(self, event_id: str) -> bool:
        return event_id in self._event_ids

    def log_number(self) -> int:
        return self._last.get("log", 0)

    def events(self, after: int, limit: int, subject: str | None) -> tuple[StoredEvent, ...]:
        first = max(after, self.log_number() - len(self._log)) + 1
        found: list[StoredEvent] = []
        for number in range(first, self.log_number() + 1):
            if len(found) == limit:
                break
            entry = self._log[number]
            if subject is None or entry.subject == subject:
                found.append(entry)
        return tuple(found)

    def prune_log(self, up_to: int) -> None:
        for number in range(self.log_number() - len(self._log) + 1, up_to + 1):
            self._drop(self._log, number)

    def lease(self, name: str) -> Lease | None:
        return self._leases.get(name)

    def put_lease(self, lease: Lease) -> None:
        self._put(self._leases, lease.name, lease)

    def round_number(self) -> int:
        return max(self._rounds, default=0)

    def put_round(self, record: RoundRecord, packed: bytes | None) -> None:
        self._put(self._rounds, record.number, replace(record, snapshot=None))
        if record.snapshot is not None:
            self._put(self._snapshots, record.number, record.snapshot)

    def round(self, number: int) -> RoundRecord | None:
        record = self._rounds.get(number)
        return None if record is None else replace(record, snapshot=self._snapshots.get(number))

    def rounds(self, limit: int, before: int | None) -> tuple[RoundRecord, ...]:
        numbers = sorted((number for number in self._rounds if before is None or number < before), reverse=True)
        return tuple(self._rounds[number] for number in numbers[:limit])

    def prune_rounds(self, up_to: int, snapshots_up_to: int) -> None:
        for number in [number for number in self._rounds if number <= up_to]:
            self._drop(self._rounds, number)
        for number in [number for number in self._snapshots if number <= max(up_to, snapshots_up_to)]:
            self._drop(self._snapshots, number)
