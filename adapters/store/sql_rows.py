"""Reading rows as mappings and writing one by its key, in one transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, Table, insert, update


class SqlRows:
    """The connection of a transaction. Writers are alone (see `database`), so that update-else-insert is safe."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def one(self, query: Select[Any]) -> dict[str, Any] | None:
        """The only row, or None."""
        row = self.connection.execute(query).mappings().one_or_none()
        return None if row is None else {str(name): value for name, value in row.items()}

    def all(self, query: Select[Any]) -> list[dict[str, Any]]:
        """All rows."""
        result = self.connection.execute(query)
        names = list(result.keys())
        return [dict(zip(names, row, strict=True)) for row in result]

    def put(self, table: Table, key: str, values: dict[str, Any]) -> None:
        """Replaces the row whose column `key` has the value given, or adds it."""
        found = self.connection.execute(update(table).where(table.c[key] == values[key]).values(values))
        if found.rowcount == 0:
            self.connection.execute(insert(table).values(values))
