"""Reading the store's log from its end and in whole."""

from __future__ import annotations

from collections.abc import Iterator

from ..adapters.ports import Store, StoredEvent

_PAGE = 1_000


def newest_number(store: Store, known: int = 0) -> int:
    """The number of the newest entry, 0 for an empty log; `known` is a number not beyond it."""
    low, step = known, 1
    while store.events(after=low + step, limit=1):
        low, step = low + step, step * 2
    high = low + step
    # The newest lies in (low, high], or is low itself.
    while low < high:
        middle = (low + high) // 2
        if store.events(after=middle, limit=1):
            low = middle + 1
        else:
            high = middle
    return low


def entries(store: Store, after: int = 0, subject: str | None = None) -> Iterator[StoredEvent]:
    """All entries after a number, oldest first; of one subject where it is given."""
    while page := store.events(after=after, limit=_PAGE, subject=subject):
        yield from page
        after = page[-1].number


def story_of(store: Store, job: str) -> list[StoredEvent]:
    """The entries about a job; of its checkpoints, which may be thousands, only the latest."""
    told = list(entries(store, subject=f"job {job}"))
    latest = next((entry for entry in reversed(told) if entry.kind == "gang_progress"), None)
    return [entry for entry in told if entry.kind != "gang_progress" or entry is latest]
