"""The log, leases and rounds in SQL."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import delete, func, select, update

from ..ports import Lease, RoundRecord, StoredEvent
from . import rows, tables
from .books import LogEntry
from .sql_rows import SqlRows


class SqlLogBooks(SqlRows):
    """See `books.LogBooks`."""

    def log(self, entry: LogEntry) -> int:
        """Appends an entry; returns its number."""
        return self.add(tables.events, asdict(entry))

    def logged(self, event_id: str) -> bool:
        """Whether an event of that id is in the log."""
        return self.row(tables.events, "event_id", event_id) is not None

    def log_number(self) -> int:
        """The number of the last entry; 0 for an empty log."""
        return self.connection.scalar(select(func.max(tables.events.c.number))) or 0

    def events(self, after: int, limit: int, subject: str | None) -> tuple[StoredEvent, ...]:
        """Entries from number `after` (exclusive) on, oldest first."""
        log = tables.events.c
        query = select(log.number, log.at_s, log.kind, log.subject, log.document).where(log.number > after)
        if subject is not None:
            query = query.where(log.subject == subject)
        return tuple(StoredEvent(**row) for row in self.all(query.order_by(log.number).limit(limit)))

    def prune_log(self, up_to: int) -> None:
        """Drops entries up to this number (inclusive)."""
        if up_to > 0:
            self.connection.execute(delete(tables.events).where(tables.events.c.number <= up_to))

    def lease(self, name: str) -> Lease | None:
        """The lease of that name, in force or not."""
        row = self.row(tables.leases, "name", name)
        return None if row is None else Lease(**row)

    def put_lease(self, lease: Lease) -> None:
        """Adds or replaces a lease."""
        self.put(tables.leases, "name", asdict(lease))

    def round_number(self) -> int:
        """The number of the last round; 0 before the first."""
        return self.connection.scalar(select(func.max(tables.rounds.c.number))) or 0

    def put_round(self, record: RoundRecord, packed: bytes | None) -> None:
        """Adds or replaces a round."""
        self.put(tables.rounds, "number", rows.round_values(record, packed))

    def round(self, number: int) -> RoundRecord | None:
        """One round, with its snapshot where it is kept."""
        row = self.row(tables.rounds, "number", number)
        return None if row is None else rows.round_record(row)

    def rounds(self, limit: int, before: int | None) -> tuple[RoundRecord, ...]:
        """Rounds, newest first, without snapshots."""
        query = select(*[column for column in tables.rounds.c if column.name != "snapshot"])
        if before is not None:
            query = query.where(tables.rounds.c.number < before)
        query = query.order_by(tables.rounds.c.number.desc()).limit(limit)
        return tuple(rows.round_record(row) for row in self.all(query))

    def prune_rounds(self, up_to: int, snapshots_up_to: int) -> None:
        """Drops rounds up to a number (inclusive), and the snapshots of rounds up to another."""
        table = tables.rounds
        if up_to > 0:
            self.connection.execute(delete(table).where(table.c.number <= up_to))
        if snapshots_up_to > 0:
            stale = (table.c.number <= snapshots_up_to) & table.c.snapshot.is_not(None)
            self.connection.execute(update(table).where(stale).values(snapshot=None))
