"""Which samples fall to one rank in the batches ahead, worked out for many batches at once.

Numpy's cost is per call: done batch by batch, finding the samples of a batch takes half as long as copying them.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .mixture import Sequencer
from .order import Ids, rank_share, rising_places
from .schedule import Schedule

# Sample numbers in one go: a few tenths of a millisecond, so that nobody waits long for the interpreter meanwhile.
_AT_ONCE = 4096
_MOST_BATCHES = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """One rank's piece of the batch at g: sample numbers, their ids, and which are no repeats.

    Sample i is row rows[i] of shard shard_of[i].
    """

    g: int
    positions: Ids
    ids: Ids
    real: npt.NDArray[np.bool_]
    shard_of: npt.NDArray[np.intp]
    rows: Ids


class Planner:
    """Pieces for the batches from the one at `first` on; safe for threads.

    `starts` are the first ids of the shards, with the end; with `sort` a piece is in rising order of ids, so that a
    gather walks forward. `ahead` is told the shards of the blocks in use, and of those that follow them.
    """

    def __init__(
        self,
        order: Sequencer,
        schedule: Schedule,
        starts: Ids,
        rank: int,
        world_size: int,
        first: int,
        *,
        sort: bool,
        ahead: Callable[[Iterable[int]], None] | None = None,
    ) -> None:
        self._order, self._schedule, self._starts = order, schedule, starts
        self.cut = (rank, world_size)
        self._sort, self._ahead = sort, ahead
        # A stretch is short against a block: what is asked for ahead is needed soon.
        sample_numbers = min(_AT_ONCE, order.block_span // 4)
        self._batches = max(1, min(_MOST_BATCHES, sample_numbers // schedule.global_batch))
        self._lock = threading.Lock()
        self._ready: dict[int, Piece] = {}
        self._next = schedule.start(first)

    def piece(self, g: int) -> Piece:
        """The piece of the batch at g, which is `first` or follows it; each can be had once."""
        with self._lock:
            while g not in self._ready:
                self._ready.update((piece.g, piece) for piece in self._stretch())
            return self._ready.pop(g)

    def _stretch(self) -> list[Piece]:
        at = [self._next]
        while len(at) <= self._batches:
            at.append(self._schedule.after(at[-1]))
        self._next = at.pop()
        mine, counted = self._share(*self._schedule.table(at))
        if self._ahead is not None:
            self._ahead(self._order.block_shards(mine.ravel()))
            self._ahead(self._order.block_shards(mine.ravel() + self._order.block_span))
        ids: Any = self._order.ids(mine.ravel()).reshape(mine.shape)
        if self._sort:
            rising = rising_places(ids)
            ids, mine = np.take_along_axis(ids, rising, axis=1), np.take_along_axis(mine, rising, axis=1)
            counted = np.take_along_axis(counted, rising, axis=1)
        shard_of = np.searchsorted(self._starts, ids, side="right") - 1
        rows = ids - self._starts[shard_of]
        return [Piece(*each) for each in zip(at, mine, ids, counted, shard_of, rows, strict=True)]

    def _share(self, numbers: Ids, real: npt.NDArray[np.bool_]) -> tuple[Any, Any]:
        rank, world_size = self.cut
        if world_size == 1 and self._sort:
            return numbers, real
        lanes = self._order.lane(numbers.ravel()).reshape(numbers.shape)
        mine = rank_share(lanes, rank, world_size)
        return np.take_along_axis(numbers, mine, axis=1), np.take_along_axis(real, mine, axis=1)
