"""Having the system forget a few rows of a shard that is on the disk for the rest, before it is read whole.

Rows that batches asked for one by one lie in memory in pages of 4 KiB. Reading on around them takes smaller requests to
the disk, and makes more small pages: two thirds of the rate, and twice the CPU.
"""

import os
from collections.abc import Collection

from .pages import let_go, share_in_memory
from .takes import Takes

# More than that is sooner kept than read again.
_MOST = 0.5
_PATIENCE_S = 0.05


def forget_rows(descriptor: int, places: Collection[tuple[int, int]], takes: Takes) -> None:
    """Has the system forget what it has of a shard's file, mapped at these places, if that is less than half.

    Nothing is lost: whoever reads there meanwhile has it read again. Not while gathers read, which would do that.
    """
    share = share_in_memory(*max(places, key=lambda place: place[1]))
    # Of other people's files the system says that all of it is in memory.
    if _MOST < share < 1:
        return

    def forget() -> None:
        for address, size in places:
            let_go(address, size)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    takes.when_none(forget, _PATIENCE_S)
