"""The store in plain dicts: for tests and the simulator. Same rules as the SQL store, no durability."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ...model.policy import Policy
from ...model.snapshot import Snapshot
from ..store.books import Books
from ..store.core import BookStore, Retention
from .memory_books import MemoryBooks


class MemoryStore(BookStore):
    """A store that lives as long as the process."""

    def __init__(self, policy: Policy | None = None, retention: Retention | None = None) -> None:
        super().__init__(_MemoryLibrary(), policy or Policy(), retention)


class _MemoryLibrary:
    """One transaction at a time."""

    def __init__(self) -> None:
        self._books = MemoryBooks()
        self._lock = threading.RLock()

    @contextmanager
    def read(self) -> Iterator[Books]:
        with self._lock:
            yield self._books

    @contextmanager
    def write(self) -> Iterator[Books]:
        with self._lock:
            self._books.undo.clear()
            try:
                yield self._books
            except BaseException:
                self._books.roll_back()
                raise

    def pack(self, snapshot: Snapshot) -> None:
        """Rounds keep the snapshot itself."""

    def close(self) -> None:
        """Nothing to free."""
