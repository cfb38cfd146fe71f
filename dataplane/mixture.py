"""Several data sets read as one, by weights: who gives sample number g is a pure function of g."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .errors import LoaderError
from .order import Ids, Order, distinct

CYCLE = 1000
_TURNS = 2
_CYCLES_KEPT = 2048


class Sequencer(Protocol):
    """What gives a loader its order: `Order`, or one made of several; `streams` counts those that are read at once."""

    lanes: int
    streams: int

    @property
    def rows(self) -> int: ...

    @property
    def block_span(self) -> int: ...

    def ids(self, positions: npt.ArrayLike) -> Ids: ...

    def lane(self, positions: Ids) -> Ids: ...

    def block_shards(self, positions: npt.ArrayLike) -> list[int]: ...


class SubsetOrder:
    """The order of chosen samples: that of a data set which has only them.

    `inner` orders places in `chosen`, rising sample ids; `shards` are the shards that have any of them.
    """

    def __init__(self, inner: Order, chosen: Ids, shards: Sequence[int]) -> None:
        self._inner, self._chosen, self._shards = inner, chosen, shards
        self.lanes, self.rows, self.block_span = inner.lanes, inner.rows, inner.block_span
        self.streams = inner.streams

    def ids(self, positions: npt.ArrayLike) -> Ids:
        """The sample ids at any sample numbers."""
        return self._chosen[self._inner.ids(positions)]

    def lane(self, positions: Ids) -> Ids:
        """The lane of each sample number."""
        return self._inner.lane(positions)

    def block_shards(self, positions: npt.ArrayLike) -> list[int]:
        """The shards of the blocks that hold these samples."""
        return [self._shards[index] for index in self._inner.block_shards(positions)]


class MixedOrder:
    """Interleaves orders by whole-number weights.

    Sample numbers are cut into cycles of `sum(weights)`; in each, order i has weights[i] turns, at places drawn with
    the seed, so that any stretch of a few cycles has the shares asked for. Each order runs on through its own epochs.
    """

    def __init__(
        self,
        orders: Sequence[Sequencer],
        weights: Sequence[int],
        id_starts: Sequence[int],
        shard_starts: Sequence[int],
        seed: int,
    ) -> None:
        self._orders, self._seed = tuple(orders), seed
        self._weights = np.asarray(weights, np.int64)
        self._id_starts, self._shard_starts = tuple(id_starts), tuple(shard_starts)
        self._cycle = int(self._weights.sum())
        self.rows = sum(order.rows for order in orders)
        self.lanes = max(order.lanes for order in orders)
        self.streams = sum(order.streams for order in orders)
        self.block_span = min(
            order.block_span * self._cycle // int(weight) for order, weight in zip(orders, self._weights, strict=True)
        )
        self._known: dict[int, tuple[Ids, Ids]] = {}

    def ids(self, positions: npt.ArrayLike) -> Ids:
        """The sample ids, over all data sets one after another, at any sample numbers."""
        who, own = self._turns(np.asarray(positions, np.int64))
        ids = np.empty_like(own)
        for index, order in enumerate(self._orders):
            mine = who == index
            if mine.any():
                ids[mine] = self._id_starts[index] + order.ids(own[mine])
        return ids

    def lane(self, positions: Ids) -> Ids:
        """The lane of each sample number in its own order: each rank gets its share of every data set."""
        who, own = self._turns(positions)
        lanes = np.empty_like(own)
        for index, order in enumerate(self._orders):
            lanes[who == index] = order.lane(own[who == index])
        return lanes

    def block_shards(self, positions: npt.ArrayLike) -> list[int]:
        """The shards of the blocks that hold these samples, numbered over all data sets one after another."""
        who, own = self._turns(np.asarray(positions, np.int64))
        shards: list[int] = []
        for index, order in enumerate(self._orders):
            mine = own[who == index]
            if len(mine):
                shards += [self._shard_starts[index] + shard for shard in order.block_shards(mine)]
        return shards

    def _turns(self, g: Ids) -> tuple[Ids, Ids]:
        """For each sample number, whose turn it is, and the sample number in that order."""
        if not len(g):
            return g, g
        cycles = g // self._cycle
        different = distinct(cycles).tolist()
        patterns = [self._pattern(cycle) for cycle in different]
        at = np.searchsorted(different, cycles) * self._cycle + g % self._cycle
        who = np.concatenate([pattern for pattern, _ in patterns])[at]
        own = cycles * self._weights[who] + np.concatenate([before for _, before in patterns])[at]
        return who, own

    def _pattern(self, cycle: int) -> tuple[Ids, Ids]:
        """Whose turn each place of a cycle is, and how many turns of the same one come before it there."""
        known = self._known.get(cycle)
        if known is None:
            turns = np.repeat(np.arange(len(self._weights), dtype=np.int64), self._weights)
            stream = np.random.PCG64(np.random.SeedSequence((self._seed, _TURNS, cycle)))
            pattern = turns[np.argsort(np.asarray(stream.random_raw(self._cycle)), kind="stable")]
            before = np.empty_like(pattern)
            for index in range(len(self._weights)):
                before[pattern == index] = np.arange(self._weights[index])
            known = pattern, before
            while len(self._known) > _CYCLES_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[cycle] = known
        return known


def whole_weights(weights: Sequence[float]) -> tuple[int, ...]:
    """Weights as turns out of about 1,000, each at least 1; whole numbers that are small enough stay as they are.

    Raises LoaderError unless all are above 0.
    """
    if not weights or min(weights) <= 0 or not all(np.isfinite(weights)):
        raise LoaderError(f"weights {list(weights)} must all be above 0")
    if all(float(weight).is_integer() for weight in weights) and sum(weights) <= CYCLE:
        return tuple(int(weight) for weight in weights)
    exact = np.asarray(weights, np.float64) / sum(weights) * CYCLE
    turns = np.maximum(1, np.floor(exact)).astype(int)
    for index in np.argsort(np.floor(exact) - exact, kind="stable")[: max(0, CYCLE - int(turns.sum()))]:
        turns[index] += 1
    return tuple(turns.tolist())


def describe(weights: Sequence[int], digests: Sequence[str]) -> dict[str, Any]:
    """What a loader's state must say of a mixture."""
    return {"datasets": list(digests), "weights": list(weights)}
