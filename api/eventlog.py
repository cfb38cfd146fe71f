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


def entries(store: Store, after: int = 0) -> Iterator[StoredEvent]:
    """All entries after a number, oldest first."""
    while page := store.events(after=after, limit=_PAGE):
        yield from page
        after = page[-1].number
