"""Jobs, client keys, intents and reservations in SQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import delete, select

from ...model.ids import JobId, ReservationId, TeamId
from ...model.job_state import JobState
from ...model.reservation import Reservation
from ...model.snapshot import JobRecord
from ..ports import Page
from . import rows, tables
from .books import ClientKey, IntentRow
from .sql_rows import SqlRows

_RESERVATIONS = select(tables.reservations).order_by(tables.reservations.c.id)


class SqlJobBooks(SqlRows):
    """See `books.JobBooks`."""

    def job(self, job: JobId) -> JobRecord | None:
        """One job."""
        row = self.row(tables.jobs, "id", job)
        return None if row is None else rows.job_record(row)

    def jobs_in(self, states: Collection[JobState]) -> tuple[JobRecord, ...]:
        """All jobs in these states, in the order of their submission."""
        jobs = tables.jobs
        query = select(jobs).where(jobs.c.state.in_([state.value for state in states])).order_by(jobs.c.number)
        return tuple(rows.job_record(row) for row in self.all(query))

    def page(self, states: Sequence[JobState], team: TeamId | None, limit: int, cursor: str | None) -> Page:
        """Jobs, newest first; the cursor is the number of the last job shown."""
        jobs = tables.jobs
        query = select(jobs).order_by(jobs.c.number.desc()).limit(limit + 1)
        if states:
            query = query.where(jobs.c.state.in_([state.value for state in states]))
        if team is not None:
            query = query.where(jobs.c.team == team)
        if cursor is not None:
            query = query.where(jobs.c.number < int(cursor))
        found = self.all(query)
        more = str(found[limit - 1]["number"]) if len(found) > limit else None
        return Page(jobs=tuple(rows.job_record(row) for row in found[:limit]), next_cursor=more)

    def put_job(self, record: JobRecord) -> None:
        """Adds or replaces a job's row."""
        self.put(tables.jobs, "id", rows.job_values(record))

    def client_key(self, key: str) -> ClientKey | None:
        """What is known under this key."""
        row = self.row(tables.client_keys, "key", key)
        return None if row is None else ClientKey(**row)

    def put_client_key(self, key: ClientKey) -> None:
        """Keeps a new key."""
        values = {"key": key.key, "job": key.job, "document": key.document}
        self.add(tables.client_keys, values)

    def intent(self, job: JobId) -> IntentRow | None:
        """The unfinished intent of a job."""
        row = self.row(tables.intents, "job", job)
        return None if row is None else rows.intent_row(row)

    def intents(self) -> tuple[IntentRow, ...]:
        """All unfinished intents, in the order of their commit, then of submission."""
        intents, jobs = tables.intents, tables.jobs
        query = select(intents).join(jobs, jobs.c.id == intents.c.job).order_by(intents.c.created_s, jobs.c.number)
        return tuple(rows.intent_row(row) for row in self.all(query))

    def put_intent(self, row: IntentRow) -> None:
        """Adds or replaces the job's intent."""
        self.put(tables.intents, "job", rows.intent_values(row))

    def drop_intent(self, job: JobId) -> None:
        """Removes the job's intent, if any."""
        self.connection.execute(delete(tables.intents).where(tables.intents.c.job == job))

    def reservations(self) -> tuple[Reservation, ...]:
        """All drain reservations, by name."""
        return tuple(rows.reservation(row) for row in self.all(_RESERVATIONS))

    def put_reservation(self, reservation: Reservation) -> None:
        """Adds or replaces one."""
        self.put(tables.reservations, "id", rows.reservation_values(reservation))

    def drop_reservations(self, ids: Iterable[ReservationId]) -> None:
        """Removes these."""
        for key in ids:
            self.connection.execute(delete(tables.reservations).where(tables.reservations.c.id == key))
