"""Reading rows as mappings and writing one by its key, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import Connection, Insert, Select, Table, Update, bindparam, insert, select, update


class SqlRows:
    """The connection of a transaction. Writers are alone (see `database`), so that update-else-insert is safe."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def row(self, table: Table, key: str, value: str | int) -> dict[str, Any] | None:
        """The row whose unique column `key` has that value, or None."""
        found = self.all(_select(table, key), {"key_": value})
        return found[0] if found else None

    def all(self, query: Select[Any], values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """All rows."""
        result = self.connection.execute(query, values or {})
        names = list(result.keys())
        return [dict(zip(names, row, strict=True)) for row in result]

    def put(self, table: Table, key: str, values: dict[str, Any]) -> None:
        """Replaces the row whose column `key` has the value given, or adds it."""
        found = self.connection.execute(_update(table, key, tuple(values)), {**values, "key_": values[key]})
        if found.rowcount == 0:
            self.add(table, values)

    def add(self, table: Table, values: dict[str, Any]) -> int:
        """Adds a row; returns its number where the table counts its rows, else 0."""
        made = self.connection.execute(_insert(table), values).inserted_primary_key
        return made[0] if made is not None and isinstance(made[0], int) else 0


# Statements are made once: building them anew costs more than running them.


@cache
def _select(table: Table, key: str) -> Select[Any]:
    return select(table).where(table.c[key] == bindparam("key_"))


@cache
def _insert(table: Table) -> Insert:
    return insert(table)


@cache
def _update(table: Table, key: str, columns: tuple[str, ...]) -> Update:
    return update(table).where(table.c[key] == bindparam("key_")).values({name: bindparam(name) for name in columns})
