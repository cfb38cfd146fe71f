"""Which sample comes when: a pure function of constants and one integer.

Sample number g since the start of training belongs to epoch g // n, position g % n, of n samples.

    position -> place     the epoch's sequence is cut into L equal lanes that are read round-robin
    place    -> block     shards are permuted per epoch; k consecutive ones form a block
    place    -> sample    the rows of a block are permuted among themselves

Epochs follow one another without a gap, so every global batch [g, g + G) is full. Sorted by lane it is cut into W
equal pieces, one per rank: a rank stays in few lanes and touches about 1/W of the shards in an epoch. Nothing
depends on the world size but that cut, so a run may go on with any W that divides G, from any g.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.random import PCG64, SeedSequence

from .errors import LoaderError

Ids = npt.NDArray[np.int64]

DEFAULT_SHARDS_PER_BLOCK = 8
DEFAULT_LANES = 8

# Purposes of random numbers: a shard permutation and a block's rows must never share a stream.
_SHARDS, _ROWS = 0, 1
_EPOCHS_KEPT = 2
_COUNTED = 1024
_MOST = (1 << 63) - 1 - (1 << 32)


@dataclass(frozen=True, slots=True)
class _Epoch:
    """An epoch's shards in reading order, and the place where each block starts, with n at the end."""

    shards: Ids
    block_starts: Ids


class Order:
    """The order of samples for ever.

    `shard_rows`: samples of every shard (>= 1); `seed` >= 0; `shards_per_block` >= 1 trades randomness against
    open shards; `lanes` >= 1. All four are constants of a training run. Without `shuffle`, samples come in the order
    in which they were written. Raises LoaderError for values out of range.
    """

    def __init__(
        self,
        shard_rows: Sequence[int],
        seed: int,
        *,
        shards_per_block: int = DEFAULT_SHARDS_PER_BLOCK,
        lanes: int = DEFAULT_LANES,
        shuffle: bool = True,
    ) -> None:
        if not len(shard_rows) or min(shard_rows) < 1:
            raise LoaderError("the order needs at least one shard, and every shard at least one row")
        if seed < 0 or shards_per_block < 1 or lanes < 1:
            raise LoaderError(
                f"seed {seed} must be >= 0, shards_per_block {shards_per_block} and lanes {lanes} must be >= 1"
            )
        self.seed = seed
        self.shards_per_block = shards_per_block
        self.shuffle = shuffle
        self._shard_rows: Ids = np.asarray(shard_rows, np.int64)
        self._shard_starts: Ids = np.concatenate(([0], np.cumsum(self._shard_rows)))
        self.rows = int(self._shard_starts[-1])
        self.lanes = min(lanes, self.rows) if shuffle else 1
        self.streams = 1
        self._epochs: OrderedDict[int, _Epoch] = OrderedDict()
        self._blocks: OrderedDict[tuple[int, int], Ids] = OrderedDict()

    def ids(self, positions: npt.ArrayLike) -> Ids:
        """The sample ids (0 <= id < rows) at any sample numbers g >= 0, in the same order."""
        g = np.asarray(positions, np.int64)
        epochs = g // self.rows
        ids = np.empty_like(g)
        for epoch in distinct(epochs).tolist():
            chosen = epochs == epoch
            ids[chosen] = self._epoch_ids(epoch, g[chosen] % self.rows)
        return ids

    def lane(self, positions: Ids) -> Ids:
        """The lane that each sample number falls into."""
        return positions % self.rows % self.lanes

    def rank_positions(self, g: int, global_batch: int, rank: int, world_size: int) -> Ids:
        """The sample numbers that fall to `rank` of the global batch [g, g + global_batch).

        Needs 0 <= rank < world_size and world_size dividing global_batch; raises LoaderError otherwise.
        """
        check_cut(global_batch, rank, world_size)
        positions = np.arange(g, g + global_batch, dtype=np.int64)
        return positions[rank_share(self.lane(positions), rank, world_size)]

    def rank_ids(self, g: int, global_batch: int, rank: int, world_size: int) -> Ids:
        """The sample ids of that piece; when shuffled, in rising order, so that a gather walks forward."""
        ids = self.ids(self.rank_positions(g, global_batch, rank, world_size))
        return np.sort(ids) if self.shuffle else ids

    def block_shards(self, positions: npt.ArrayLike) -> list[int]:
        """The shards of all blocks that hold the samples at these sample numbers, each once."""
        g = np.asarray(positions, np.int64)
        epochs = g // self.rows
        shards: dict[int, None] = {}
        for epoch in distinct(epochs).tolist():
            plan = self._epoch(epoch)
            for block in distinct(self._block_of(plan, self._places(g[epochs == epoch] % self.rows))).tolist():
                shards.update(dict.fromkeys(self._block_of_shards(plan, block).tolist()))
        return list(shards)

    @property
    def block_span(self) -> int:
        """How many sample numbers further on, on average, a lane has moved to its next block."""
        blocks = math.ceil(len(self._shard_rows) / self.shards_per_block)
        return math.ceil(self.rows / blocks) * self.lanes

    def _epoch_ids(self, epoch: int, positions: Ids) -> Ids:
        plan = self._epoch(epoch)
        places = self._places(positions)
        blocks = self._block_of(plan, places)
        ids = np.empty_like(positions)
        for block in distinct(blocks).tolist():
            chosen = blocks == block
            ids[chosen] = self._block_ids(epoch, block)[places[chosen] - plan.block_starts[block]]
        return ids

    def _places(self, positions: Ids) -> Ids:
        # n = L * length + longer: the first `longer` lanes have one sample more, and the remainder falls on them.
        length, longer = divmod(self.rows, self.lanes)
        lane = positions % self.lanes
        return lane * length + np.minimum(lane, longer) + positions // self.lanes

    @staticmethod
    def _block_of(plan: _Epoch, places: Ids) -> npt.NDArray[np.intp]:
        return np.searchsorted(plan.block_starts, places, side="right") - 1

    def _block_of_shards(self, plan: _Epoch, block: int) -> Ids:
        return plan.shards[block * self.shards_per_block : (block + 1) * self.shards_per_block]

    def _epoch(self, epoch: int) -> _Epoch:
        plan = self._epochs.get(epoch)
        if plan is None:
            shards = self._permutation(len(self._shard_rows), epoch, _SHARDS, 0)
            starts = np.concatenate(([0], np.cumsum(self._shard_rows[shards])))
            plan = _Epoch(shards, np.append(starts[: -1 : self.shards_per_block], starts[-1]))
            _remember(self._epochs, epoch, plan, _EPOCHS_KEPT)
        return plan

    def _block_ids(self, epoch: int, block: int) -> Ids:
        ids = self._blocks.get((epoch, block))
        if ids is None:
            shards = self._block_of_shards(self._epoch(epoch), block).tolist()
            starts = self._shard_starts
            rows = np.concatenate([np.arange(starts[s], starts[s + 1], dtype=np.int64) for s in shards])
            ids = rows[self._permutation(len(rows), epoch, _ROWS, block)]
            _remember(self._blocks, (epoch, block), ids, 2 * self.lanes + 2)
        else:
            self._blocks.move_to_end((epoch, block))
        return ids

    def _permutation(self, size: int, *purpose: int) -> Ids:
        if not self.shuffle:
            return np.arange(size, dtype=np.int64)
        # numpy promises the raw stream of a bit generator for ever, but not that of Generator.permutation.
        drawn = np.asarray(PCG64(SeedSequence((self.seed, *purpose))).random_raw(size))
        return np.argsort(drawn, kind="stable").astype(np.int64, copy=False)


def distinct(numbers: npt.NDArray[np.integer[Any]]) -> Ids:
    """The different numbers, rising. `np.unique` imports numpy's masked arrays first: a fifth of a second."""
    if not len(numbers):
        return np.empty(0, np.int64)
    least = int(numbers.min())
    if int(numbers.max()) - least <= _COUNTED + 2 * len(numbers):
        return np.flatnonzero(np.bincount(numbers - least)) + least
    rising = np.sort(numbers)
    return rising[np.concatenate(([True], rising[1:] != rising[:-1]))].astype(np.int64, copy=False)


def rising_places(ids: Ids) -> Ids:
    """For each row of a table of ids >= 0, the places that put it in rising order; equal ids keep theirs."""
    width = ids.shape[1]
    if int(ids.max(initial=0)) > _MOST // max(1, width):
        return np.argsort(ids, axis=1, kind="stable")
    # Ids with their places in the low digits are all different: sorting them is several times faster.
    rising: Ids = np.sort(ids * width + np.arange(width), axis=1) % width
    return rising


def rank_share(lanes: Ids, rank: int, world_size: int) -> npt.NDArray[np.intp]:
    """Which samples of a global batch (the last axis) fall to a rank: sorted by lane, it is cut into equal pieces."""
    by_lane = np.argsort(lanes, axis=-1, kind="stable")
    share = lanes.shape[-1] // world_size
    return by_lane[..., rank * share : (rank + 1) * share]


def check_cut(global_batch: int, rank: int, world_size: int) -> None:
    """Raises LoaderError unless a global batch can be cut into equal pieces for these ranks."""
    if world_size < 1 or not 0 <= rank < world_size:
        raise LoaderError(f"rank {rank} of world size {world_size}: need 0 <= rank < world size")
    if global_batch < 1 or global_batch % world_size:
        raise LoaderError(
            f"global batch {global_batch} cannot be cut into {world_size} equal pieces; "
            f"take a positive multiple of {world_size}"
        )


def _remember(memory: OrderedDict[Any, Any], key: Any, value: Any, keep: int) -> None:
    memory[key] = value
    while len(memory) > keep:
        memory.popitem(last=False)
